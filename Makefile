# Front door for people. CMake does the work; every target here can be had by hand with the presets of CMakePresets.json.
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= $(JOBS)
PREFIX ?= /usr/local
PYTHON ?= python3
BUILD := build/release
SOURCES = git ls-files --cached --others --exclude-standard '*.h' '*.hpp' '*.cpp' '*.c' '*.cu' '*.cuh'
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
# Presets share what compiles equally: where ccache is installed, `make no-cuda` after `make test` compiles little.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@sh tools/setup

export KERNELS  # GPU kernels: ON, OFF, or AUTO where nvcc is; where it is not set, a first `make run` without a GPU builds none

build: setup  ## build/release/headroom and libheadroom.so
	@sh tools/configure
	@cmake --build --preset release --target product

run: export COLUMNS ?= 100
run:  ## install what is missing, build, show what fits a card and what attention takes, run a short study on this machine, write a page
	@sh tools/setup run
	@sh tools/configure program
	@cmake --build --preset release --target program
	$(BUILD)/headroom plan --as pytorch --model llama-3.1-8b --batch 2 --len 2048 --device 4090 \
	  --most 4
	$(BUILD)/headroom memory attention --heads 32 --dim 128 --dtype bf16 \
	  --len 8192,65536 --device 4090 || test $$? = 3
	$(BUILD)/headroom attention --device cpu --variant plain,flash --dtype fp32 \
	  --batch 1 --heads 4 --dim 64 --len 256,512,1024,2048 --warmup 1 --steps 5
	$(BUILD)/headroom step --device cpu --layers 4 --width 256 --heads 4 --vocab 1000 \
	  --batch 2 --len 128 --warmup 1 --steps 3
	$(BUILD)/headroom report --out build/report.html
	@echo "Open this page in a browser; it has the newest run of every command, these two among them:"
	@echo "  $(CURDIR)/build/report.html"

browser:  # for the tests of pages; they skip where it cannot be had
	@sh tools/setup browser

test: browser build  ## install what is missing, build, and run every test that this machine can run
	@cmake --build --preset release
	@ctest --preset release -j $(TEST_JOBS)

# As on a machine without CUDA, also where it is installed: what concerns that machine is built and tested.
WITHOUT_CUDA = $(shell echo "$$PATH" | tr : '\n' | while read -r d; do [ -x "$$d/nvcc" ] || printf '%s:' "$$d"; done | sed 's/:$$//')
no-cuda: setup
	@env -u CUDACXX -u CUDA_HOME -u CUDA_PATH PATH="$(WITHOUT_CUDA)" sh -c 'cmake --preset no-cuda --log-level=WARNING && \
	  cmake --build --preset no-cuda --target product house_test cli_slow_test && ctest --preset no-cuda -j $(TEST_JOBS)'

check: build  ## what is too long for every change: headers one by one, and every fast test under the sanitizers
	@cmake --build --preset release
	@ctest --preset check
	@$(MAKE) --no-print-directory asan TEST_JOBS=$(TEST_JOBS)

gpu-test: setup  ## only the tests that need a GPU, and only what they need is built
	@sh tools/configure
	@cmake --build --preset release --target gpu_tests
	@ctest --preset release -L gpu -j $(JOBS)

wheel: build  ## one Python wheel with library and program inside, for every Python from 3.9: build/wheel/*.whl
	@cmake --build --preset release --target portable
	@sh tools/wheel $(BUILD)

test-torch: build  ## install torch into build/torch (large, once), and run the tests that need it
	@sh tests/python/torch . $(BUILD)

bench: build  ## every table of the docs again on this machine, peers in turns where PYTHON has torch: build/bench.json, build/bench.html
	@cmake --build --preset release --target peers_libraries
	$(BUILD)/headroom bench --python $(PYTHON) --out build/bench.json
	$(BUILD)/headroom report build/bench.json --out build/bench.html

install: build  ## into PREFIX (/usr/local): program, library, headers, CMake and pkg-config files, completion for shells, manual page
	@cmake --install $(BUILD) --prefix $(PREFIX)

ASAN ?= all
asan: setup  ## build with the address and undefined-behaviour sanitizers, and run the fast tests under them (300 random attention problems of 2000, a fifth of the traces)
	@sh tools/configure asan
	@cmake --build --preset asan --target $(ASAN)
	@ctest --preset asan -j $(TEST_JOBS)

tsan: setup  ## the same under the thread sanitizer
	@cmake --preset tsan --log-level=WARNING
	@cmake --build --preset tsan
	@ctest --preset tsan -j $(JOBS)

format:  ## clang-format every source
	@sh tools/setup lint
	@$(SOURCES) | xargs -r clang-format -i

format-check:  ## whether clang-format would change a source: seconds; part of .ci/run
	@sh tools/setup lint
	@$(SOURCES) | xargs -r clang-format --dry-run --Werror

FUZZ_SECONDS ?= 60
fuzz:  ## a minute of libFuzzer on everything that parses (FUZZ_SECONDS=60)
	@sh tools/setup fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz
	@sh tests/fuzz/run build/fuzz $(FUZZ_SECONDS)

clean:  ## remove build/
	@rm -rf build

.PHONY: help setup build run browser test check no-cuda gpu-test wheel test-torch bench install asan tsan format format-check fuzz clean
