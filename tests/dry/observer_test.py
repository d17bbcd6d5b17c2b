"""The observer's files without PyTorch: it stays out of the way, hands on to another sitecustomize, and begins when `torch` is imported."""

import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest

SOURCE = os.environ["HEADROOM_SOURCE_DIR"]
OBSERVER = os.path.join(SOURCE, "src", "dry", "observer")

DOORS = """
#include <cstdio>
#include <cstdint>
extern "C" int headroom_dry_version() { return 1; }
extern "C" void headroom_dry_mark(const char* what, const char* text, std::int64_t value) { std::printf("mark %s|%s|%ld\\n", what, text, long(value)); std::fflush(stdout); }
"""

LIBRARY = os.environ.get("HEADROOM_DRY_LIBRARY", "")
TORCH = """
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
namespace at {
enum class RecordScope : std::uint8_t { FUNCTION, BACKWARD_FUNCTION };
struct StepCallbacks { long one[20]; ~StepCallbacks() { one[0] = 0; } };
__attribute__((noinline, visibility("default"))) std::optional<StepCallbacks> getStepCallbacksUnlessEmpty(RecordScope scope) {
  if (scope == RecordScope::FUNCTION) return {};
  return StepCallbacks{{7, 8, 9}};
}
}
namespace c10 { __attribute__((noinline, visibility("default"))) void* alloc_cpu(std::size_t bytes) { return reinterpret_cast<void*>(bytes + 1); } }
extern "C" long run(int operations, int nodes) {
  long sum = reinterpret_cast<std::intptr_t>(c10::alloc_cpu(600));
  for (int i = 0; i < operations; ++i) sum += at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
  for (int i = 0; i < nodes; ++i) sum += at::getStepCallbacksUnlessEmpty(at::RecordScope::BACKWARD_FUNCTION)->one[2];
  return sum;
}
// As autograd does: a thread of C++ gets a state of Python's, gives the lock back, runs a node, and calls what Python gave it.
extern "C" int PyGILState_Ensure(); extern "C" void PyGILState_Release(int);
extern "C" void* PyEval_SaveThread(); extern "C" void PyEval_RestoreThread(void*);
extern "C" void backward(void (*hook)()) {
  std::thread([hook] {
    const int state = PyGILState_Ensure();
    void* const thread = PyEval_SaveThread();
    run(0, 1);
    hook();
    PyEval_RestoreThread(thread);
    PyGILState_Release(state);
  }).join();
}
"""


class Observer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.doors = os.path.join(cls.scratch.name, "doors.so")
        source = os.path.join(cls.scratch.name, "doors.cpp")
        with open(source, "w") as f:
            f.write(DOORS)
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", source, "-o", cls.doors], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def folder(self, files):
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as f:
                f.write(textwrap.dedent(text))
        return folder

    def run_python(self, code, *more, dry=True, **environment):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([OBSERVER, *more]), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        if dry:
            env["LD_PRELOAD"] = self.doors
        done = subprocess.run([sys.executable, "-u", "-c", code], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout.split("\n")[:-1]

    def test_another_sitecustomize_runs(self):
        theirs = self.folder({"sitecustomize.py": "print('theirs', __name__)\nword = 3\n"})
        self.assertEqual(self.run_python("import sitecustomize; print(sitecustomize.word)", theirs), ["theirs sitecustomize", "3"])

    def test_a_program_without_torch_sees_nothing_of_it(self):
        self.assertEqual(self.run_python("import sys; print([m for m in sys.modules if m.startswith('torch')])"), ["[]"])

    def test_a_run_that_is_not_dry_has_no_observer(self):
        torch = self.folder({"torch/__init__.py": "", "torch/version.py": "cuda = None\n"})
        code = "import sys, torch; print([type(f).__name__ for f in sys.meta_path if type(f).__name__ == 'AfterImport'])"
        self.assertEqual(self.run_python(code, torch, dry=False), ["[]"])

    def test_a_torch_of_the_cpu_is_told(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '2.9.0+cpu'\n", "torch/version.py": "cuda = None\n"})
        self.assertEqual(self.run_python("import torch; print('trains on the CPU')", torch), ["mark torch|2.9.0+cpu|0"])
        lines = self.run_python("import torch; print(torch.__version__)", torch, HEADROOM_DRY_VALUES="0")
        self.assertEqual(lines, ["mark torch|2.9.0+cpu|0", "2.9.0+cpu"])

    def test_a_question_whether_torch_is_there_is_no_import(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n"})
        code = "import importlib.util as u; print(u.find_spec('torch').name, u.find_spec('torch').name); import torch; print(torch.__version__)"
        self.assertEqual(self.run_python(code, torch, HEADROOM_DRY_VALUES="0"), ["torch torch", "mark torch|9.0|0", "9.0"])

    def test_an_import_that_fails_fails_as_it_did(self):
        torch = self.folder({"torch/__init__.py": "raise ImportError('broken here')\n"})
        code = "try:\n    import torch\nexcept ImportError as e:\n    print(e)"
        self.assertEqual(self.run_python(code, torch), ["broken here"])
        is_there = "import importlib.util; print(importlib.util.find_spec('torch') is None)"
        self.assertEqual(self.run_python(is_there), self.run_python(is_there, dry=False))

    def test_another_torch_than_expected_goes_on_without_observer(self):
        torch = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = '99.0'\n"})
        lines = self.run_python("import torch; print('goes on')", torch)
        self.assertEqual(lines[0], "mark torch|9.0|1")
        self.assertTrue(lines[1].startswith("mark note|the observer could not begin with torch: "), lines)
        self.assertEqual(lines[2], "goes on")

    def test_a_version_that_is_too_old_is_said(self):
        for version, said in ("2.3.1+cu121", 1), ("1.13.1", 1), ("2.4.0", 0), ("2.10.0+cu128", 0), ("3.0a0+git12", 0), ("mine", 0):
            torch = self.folder({"torch/__init__.py": f"from . import version\n__version__ = '{version}'\n", "torch/version.py": "cuda = '12.1'\n"})
            notes = [line for line in self.run_python("import torch", torch) if "is older than 2.4" in line]
            self.assertEqual(len(notes), said, version)

    def test_a_tensor_without_memory_is_not_asked_for_its_address(self):
        code = textwrap.dedent("""
            from headroom_dry.floats import Floats
            class Fake:  # as a FakeTensor of PyTorch's
                requires_grad, dtype, layout = False, type("", (), {"is_floating_point": True}), "strided"
                def __init__(self, n): self.n = n
                def numel(self): return self.n
                def data_ptr(self): print("was asked"); return 0
                def storage_offset(self): return 0
                def element_size(self): return 4
            class Plain(Fake): pass
            floats = Floats()
            floats.plain, floats.torch = {Plain}, type("", (), {"strided": "strided"})
            sparse = Plain(100)
            sparse.layout = "sparse"
            print(floats.is_hopeful(Fake(100)), floats.is_hopeful(sparse), floats.is_out_of_sight(Fake(1 << 19)), floats.is_out_of_sight(Plain(1 << 19)))
        """)
        self.assertEqual(self.run_python(code), ["was asked", "False False True True"])

    def test_pytorchs_own_kernels_are_chosen_where_only_a_card_knows_times(self):
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/runtime/__init__.py": "",
                                "torch/_inductor/select_algorithm.py": """
            class ExternKernelCaller: pass
            class TritonTemplateCaller: pass
            class AlgorithmSelectorCache:
                def __call__(self, name, choices):
                    return min(self.make_benchmark_fn()(choices).items(), key=lambda c: c[1])[0], len(choices)
                @classmethod
                def make_benchmark_fn(cls):
                    return lambda choices: {c: float("inf") if hasattr(c, "fails") else -float(i) for i, c in enumerate(choices)}
            """, "torch/_inductor/runtime/coordinate_descent_tuner.py": """
            class CoordescTuner:
                def call_func(self, func, config): return func(config)
                def autotune(self, func, config, timing=None): return min((func(c), c) for c in range(config, 9))[1]
            """, "torch/_inductor/runtime/autotune_cache.py": """
            class AutotuneCache:
                def read_best(self, meta, configs): return configs[0]
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor import select_algorithm as s
            from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner
            own, failing, other = s.ExternKernelCaller(), s.ExternKernelCaller(), [s.TritonTemplateCaller() for _ in range(20)]
            failing.fails = True
            cache = s.AlgorithmSelectorCache()
            for choices in ([*other, own], [own], other, [*other, failing, own]):
                best, run = cache("mm", choices)
                print(best is own or best is other[0], run)
            tried = []
            print(CoordescTuner().autotune(tried.append, 4), tried, CoordescTuner().autotune(tried.append, 4, 1.0), tried)
            from torch._inductor.runtime.autotune_cache import AutotuneCache
            print(AutotuneCache().read_best({}, [3, 4]))  # what an earlier run chose is measured again, in memory as on a card
            """
        lines = self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0")[1:]
        self.assertEqual(lines[0], "mark tuned|torch.compile would choose kernels by their times on the card; PyTorch's own were kept|0")
        self.assertEqual(lines[1:], ["True 2", "True 1", "True 2", "True 3", "4 [4] 4 [4]", "None"])

    def test_of_a_kernels_settings_the_first_that_can_run_is_measured(self):
        triton = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n", "triton/__init__.py": "", "triton/runtime/__init__.py": "",
                              "triton/runtime/autotuner.py": """
            class Autotuner:
                def __init__(self, graph=False): self.seen, self.cache, self.graph = [], {}, graph
                def _bench(self, x, config):
                    self.seen.append(config)
                    times = [float("inf")] * 3 if config > 90 else [5.0, 4.0, 6.0]
                    return times[0] if self.graph else times
                def check_disk_cache(self, tuning_key, configs, bench_fn): raise OSError("read or written")
                def run(self, x):
                    def benchmark():
                        times = {c: self._bench(x, config=c) for c in (99, 98, 3, 2, 1)}
                        self.cache[x] = min(times, key=times.get)
                    if x not in self.cache and self.check_disk_cache(x, (), benchmark):
                        raise ValueError("no time of a card is kept")
                    return self.cache[x]
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from triton.runtime.autotuner import Autotuner
            for kernel in (Autotuner(), Autotuner(graph=True)):  # the second as in Triton 3.0 and 3.1
                for x in (7, 7, 8):
                    print(kernel.run(x), kernel.seen)
            """
        lines = self.run_python(textwrap.dedent(code), triton, HEADROOM_DRY_VALUES="0")
        self.assertEqual(lines, (["3 [99, 98, 3]"] * 2 + ["3 [99, 98, 3, 99, 98, 3]"]) * 2)

    def test_the_object_whose_method_a_frame_is_of_is_found(self):
        code = """
            import sys
            from headroom_dry.rules import owner
            class Thing:
                def plain(self): return owner(sys._getframe()) is self
                def in_a_cell(self): return (lambda: self)() is owner(sys._getframe())
                def deleted(self):
                    del self
                    return owner(sys._getframe()) is None
                def from_within(self): return (lambda: owner(sys._getframe(1)) is self)()
            thing = Thing()
            print(thing.plain(), thing.in_a_cell(), thing.deleted(), thing.from_within(), owner(sys._getframe()))
            """
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["True True True True None"])

    def test_products_that_inductor_may_pad_are_guessed(self):
        """A memo in a file, as inductor's, would hand one run's choice to the next."""
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/fx_passes/__init__.py": "",
                                "torch/_inductor/fx_passes/pad_mm.py": """
            def get_cached_should_pad(key): raise OSError
            set_cached_should_pad = get_cached_base_mm_benchmark_time = set_cached_base_mm_benchmark_time = get_cached_should_pad
            def is_padded_faster(key, ori_time, pad_time): return ori_time > 1.1 * pad_time
            def should_pad(*args): return _should_pad(*args)
            def _should_pad(match, mat1, mat2, op, input=None):
                known = get_cached_should_pad(str((mat1.shape, mat2.shape)))
                return is_padded_faster(str((mat1.shape, mat2.shape)), 1.0, 1.0) if known is None else known
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor.fx_passes import pad_mm
            class Matrix:
                def __init__(self, *shape, across=False): self.shape, self.across = shape, across
                def stride(self): return (1, self.shape[0]) if self.across else (self.shape[1], 1)
                def element_size(self): return 2
            class Varies:
                def __init__(self, hint): self.node = __import__('types').SimpleNamespace(hint=hint)
                def __repr__(self): return "n"
            large, small = (Matrix(2994, 480), Matrix(480, 19001)), (Matrix(4596, 320), Matrix(320, 1111))
            weights, even = (Matrix(320, 4596, across=True), Matrix(4596, 320)), (Matrix(320, 4600, across=True), Matrix(4600, 320))
            varying = Matrix(320, Varies(4596), across=True), Matrix(Varies(4596), 320)
            for _ in range(2):
                print([pad_mm.should_pad(None, *product, "mm") for product in (large, small, weights, even, varying)])
            """
        how = {"random": [True, False, True, False, False], "balanced": [False] * 5, "worst": [True] * 5}
        for routing, choices in how.items():
            lines = self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0", HEADROOM_DRY_ROUTING=routing)[1:]
            self.assertRegex(lines[0], r"^mark routed\|.*\|3$")
            self.assertEqual(lines[1:], [str(choices), str(choices)])

    def test_compile_workers_that_do_not_end_are_not_waited_for(self):
        inductor = self.folder({"torch/__init__.py": "from . import version\n__version__ = '9.0'\n", "torch/version.py": "cuda = None\n",
                                "torch/_inductor/__init__.py": "", "torch/_inductor/compile_worker/__init__.py": "",
                                "torch/_inductor/compile_worker/subproc_pool.py": """
            import subprocess, sys
            class SubprocPool:
                def __init__(self, seconds):
                    self.process = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])
                def shutdown(self):
                    self.process.wait(300)
            """})
        code = """
            from headroom_dry import start, tuning
            tuning.begin(start.after_import, __import__('types').SimpleNamespace(_C=None))
            from torch._inductor.compile_worker.subproc_pool import SubprocPool
            for seconds in 0, 60:
                pool = SubprocPool(seconds)
                tuning.WORKERS_END_S = 30 if seconds == 0 else 0.1
                pool.shutdown()
                print(pool.process.returncode)
            """
        self.assertEqual(self.run_python(textwrap.dedent(code), inductor, HEADROOM_DRY_VALUES="0")[1:], ["0", "-9"])

    def test_convolutions_that_are_chosen_by_their_times_are_said(self):
        code = """
            import sys, types
            from headroom_dry import tuning
            class Setting:
                def __init__(self, setter): self.setter = setter
                def __set__(self, _, value): self.setter(value)
            said = []
            c = types.SimpleNamespace(_set_cudnn_benchmark=said.append)
            class Module:
                benchmark = Setting(c._set_cudnn_benchmark)
            torch = types.SimpleNamespace(_C=c, backends=types.SimpleNamespace(cudnn=Module()))
            tuning.begin(lambda *_: None, torch)
            torch.backends.cudnn.benchmark = False
            print(said)
            torch.backends.cudnn.benchmark = True
            c._set_cudnn_benchmark(True)  # as flags() does
            print(said)
            """
        mark = "mark benchmark|torch.backends.cudnn.benchmark would choose cuDNN's convolutions by their times on the card|0"
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["[False]", mark, mark, "[False, True, True]"])

    def entries(self, code, *more):
        """The record of a dry run with the real library, as (kind, payload), and what the program printed."""
        if not LIBRARY:
            self.skipTest("this build has no libheadroom_dry.so")
        record = tempfile.mkdtemp(dir=self.scratch.name)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([OBSERVER, *more]), "PYTHONDONTWRITEBYTECODE": "1", "LD_PRELOAD": LIBRARY, "HEADROOM_DRY_FOLDER": record}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        with open(os.path.join(record, os.listdir(record)[0]), "rb") as f:
            data = f.read()
        at, out = struct.unpack_from("<I", data, 12)[0], []
        while at + 16 <= len(data):
            kind, words = struct.unpack_from("<HH", data, at)
            if not kind:
                break
            out.append((kind, data[at + 16:at + words * 8]))
            at += words * 8
        return out, done.stdout.split()

    def phases(self, code):
        """The phases that the library marks by the frames alone: `made(bytes)` makes a block of the card, `gradients(on)` says whether autograd records."""
        c10 = os.path.join(tempfile.mkdtemp(dir=self.scratch.name), "libc10.so")
        source = "namespace c10 { struct GradMode { static bool is_enabled(); }; bool on = true; bool GradMode::is_enabled() { return on; } }\n" \
                 'extern "C" void gradients(int on) { c10::on = on; }\n'
        command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-Wl,-soname,libc10.so", "-x", "c++", "-", "-o", c10]
        subprocess.run(command, input=source, text=True, check=True)
        torch = self.folder({
            "torch/nn.py": "class Module:\n    def __call__(self, run):\n        return run(self)\n",
            "torch/utils/_contextlib.py": "def decorated(run):\n    gradients(0)\n    run()\n    gradients(1)\n",
            "torch/distributed/fsdp/_state.py": "def _pre_forward(run):\n    run()\n",
            "torch/_functorch/_aot_autograd/runtime_wrappers.py": "def forward(run):\n    gradients(0)\n    run()\n    gradients(1)\n"})
        begin = f"""
            import ctypes, sys, types
            from headroom_dry import layout, library
            gradients = ctypes.CDLL({c10!r}).gradients
            report = getattr(library._all, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
            report.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16
            def made(bytes):
                report(1 << 30, bytes, bytes, bytes, 1)
            def file(name):
                words = {{"gradients": gradients}}
                exec(compile(open({torch!r} + "/torch/" + name).read(), {torch!r} + "/torch/" + name, "exec"), words)
                return types.SimpleNamespace(**words)
            Module, decorated = file("nn.py").Module, file("utils/_contextlib.py").decorated
            library.python(ctypes.byref(layout.learn(types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module)))))
            """
        entries, said = self.entries(textwrap.dedent(begin) + textwrap.dedent(code))
        names, out = {}, []
        for kind, payload in entries:
            if kind == 1:  # Kind::name
                number, length = struct.unpack_from("<2I", payload)
                names[number] = payload[8:8 + length].decode()
            elif kind == 17 and names[struct.unpack_from("<I", payload)[0]] == "phase":
                out.append(names.get(struct.unpack_from("<2I", payload)[1], ""))
        return out

    def test_what_fsdp_gathers_before_a_forward_pass_is_no_evaluation(self):
        gather = textwrap.dedent("""
            gather = file("distributed/fsdp/_state.py")._pre_forward
            def root(module):
                gather(lambda: decorated(lambda: made(512)))
                made(512)
            """)
        self.assertEqual(self.phases(gather + "Module()(root)"), ["forward"])
        evaluation = "Module()(lambda module: decorated(lambda: made(512)))"
        self.assertEqual(self.phases(evaluation), ["evaluation"])
        later = "decorated(lambda: Module()(lambda module: made(512)))\ndecorated(lambda: Module()(lambda module: gather(lambda: made(512))))"
        self.assertEqual(self.phases(gather + later), ["evaluation"])

    def test_a_compiled_forward_pass_is_one(self):
        code = """
            forward = file("_functorch/_aot_autograd/runtime_wrappers.py").forward
            forward(lambda: made(512))
            """
        self.assertEqual(self.phases(code), ["forward"])

    def counted(self, code, *more):
        """What a dry run counted of the host before each mark of its thread: operations, nodes, functions, builtins, bytes."""
        entries, said = self.entries(code, *more)
        counts, out, mark, work = [0] * 5, [], 17, 20  # Kind::mark, Kind::host_work
        for kind, payload in entries:
            if kind == work:
                counts = [a + b for a, b in zip(counts, struct.unpack_from("<4IQ", payload))]
            elif kind == mark:
                out.append(tuple(counts))
                counts = [0] * 5
        return out, said

    def test_what_python_calls_is_counted_without_the_observers_own(self):
        own = self.folder({"headroom_dry/own.py": "def beside(f):\n    for _ in range(1000):\n        f()\n"})
        code = """
            import importlib.util, sys
            from headroom_dry import library
            spec = importlib.util.spec_from_file_location("own", sys.argv[-1] if len(sys.argv) > 1 else FILE)
            own = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(own)
            def f():
                return len("word")
            def raises():
                raise ValueError
            def both():
                for _ in range(40):
                    f()
                own.beside(f)
                try:
                    own.beside(raises)
                except ValueError:
                    pass
                for _ in range(10):
                    f()
            library.count_calls()
            library.mark("begin")
            both()
            library.mark("end")
            """.replace("FILE", repr(os.path.join(own, "headroom_dry", "own.py")))
        first, _ = self.counted(code)
        self.assertEqual(self.counted(code)[0], first)
        operations, nodes, functions, builtins, _ = first[-1]
        self.assertEqual((operations, nodes), (0, 0))
        self.assertEqual(functions, 1 + 50, "both and f; what the observer's file calls is not the program's")
        self.assertTrue(50 <= builtins < 60, builtins)

    def torch(self):
        """A library that asks for profilers and takes memory of the host as PyTorch does."""
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        source, torch = os.path.join(folder, "torch.cpp"), os.path.join(folder, "libtorch_cpu.so")
        with open(source, "w") as f:
            f.write(TORCH)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", torch], check=True)
        return torch

    def test_threads_of_autograd_are_counted_as_the_others(self):
        """What the program's hooks call counts there, and what the observer's kernels do does not."""
        own = self.folder({"headroom_dry/own.py": "def kernel(torch, f):\n    torch.run(70, 0)\n    for _ in range(100):\n        f()\n"})
        code = f"""
            import ctypes, importlib.util
            from headroom_dry import library
            spec = importlib.util.spec_from_file_location("own", {os.path.join(own, "headroom_dry", "own.py")!r})
            own = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(own)
            torch = ctypes.CDLL({self.torch()!r})
            def f():
                return len("word")
            def hook():
                library.mark("begin")
                for _ in range(40):
                    f()
                own.kernel(torch, f)
                torch.run(3, 0)
                library.mark("end")
            library.count_calls()
            torch.backward(ctypes.CFUNCTYPE(None)(hook))
            """
        operations, nodes, functions, _, _ = self.counted(code)[0][-1]
        self.assertEqual((operations, nodes, functions), (3, 0, 40))

    def test_operations_and_nodes_are_counted_and_profilers_get_their_answer(self):
        torch = self.torch()
        code = f"""
            import ctypes
            from headroom_dry import library
            torch = ctypes.CDLL({torch!r})
            library.mark("begin")
            print(torch.run(30, 20))
            library.mark("end")
            """
        counts, said = self.counted(code)
        self.assertEqual(said, [str(601 + 20 * 9)])
        self.assertEqual((*counts[-1][:2], counts[-1][4]), (30, 20, 600))

    def test_what_the_observer_sends_at_the_end_waits_for_nobody(self):
        code = """
            import atexit, time
            from headroom_dry import library, steps
            library.at_end(lambda: print("sent"))
            library.at_end(lambda: 1 / 0)
            atexit.register(lambda: time.sleep(60))
            steps.PATIENCE_S = 0.2
            steps.end("enough", 0)
            """
        lines = self.run_python(textwrap.dedent(code))
        self.assertEqual(lines[0], "mark end|enough|0")
        self.assertIn("failed at the end: ZeroDivisionError", lines[1])
        self.assertEqual(lines[2:], ["sent"])
        once = "from headroom_dry import library; library.at_end(lambda: print('sent'))"
        self.assertEqual(self.run_python(once), ["sent"])
        hard = "import os; from headroom_dry import library; library.at_end(lambda: print('sent', os.getpid() == p, flush=True)); p = os.getpid()\n"
        self.assertEqual(self.run_python(hard + "os._exit(0)"), ["sent True"])
        self.assertEqual(self.run_python(hard + "import atexit; atexit.register(lambda: os._exit(0))"), ["sent True"])
        self.assertEqual(self.run_python(hard + "if os.fork() == 0: os._exit(0)\nos.wait(); os._exit(status=0)"), ["sent True"])
        stuck = "import os; from headroom_dry import library; library.EXIT_PATIENCE_S = 0.2; library.at_end(lambda: __import__('time').sleep(60)); os._exit(0)"
        self.assertEqual(self.run_python(stuck), [])

    def test_a_program_goes_on_for_a_while_after_enough_steps(self):
        begin = """
            import os, sys, time
            from headroom_dry import rest, steps
            rest.LEAST_S = rest.MOST_S = rest.GRACE_S = 0.2
            sys.excepthook = lambda kind, *more: print("shown", kind.__name__, flush=True)
            rest.begin("enough", steps.end, alone=False)
            """
        settled, ended = "mark settled|enough|0", "mark end|enough|0"

        def said(code):
            return self.run_python(textwrap.dedent(begin) + code)
        self.assertEqual(said("print('evaluated')"), [settled, "evaluated"])
        self.assertEqual(said("import atexit\natexit.register(print, 'left')\nwhile True: pass"), [settled, ended, "left"])
        self.assertEqual(said("time.sleep(60)"), [settled, ended])
        self.assertEqual(said("raise ValueError('no file')"),
                         [settled, "mark note|after its steps agreed, it failed here (ValueError: no file)|0", ended])
        self.assertEqual(said("raise RuntimeError('CUDA out of memory')"), [settled, "shown RuntimeError"])
        self.assertEqual(said("steps.end('train.py:3 waits', 1)"), [settled, "mark note|after its steps agreed, train.py:3 waits|0", ended])
        self.assertEqual(said("print([rest.is_long() for _ in range(10)].count(True))"), [settled, "1"])

    def test_what_is_saved_after_enough_steps_is_written_nowhere(self):
        code = """
            import sys, types
            from headroom_dry import rest, steps
            theirs, user = types.ModuleType("safetensors.torch"), types.ModuleType("user")
            theirs.save_file = user.write = lambda tensors, name: print("saved", name)
            sys.modules.update({"safetensors.torch": theirs, "user": user})
            save = rest.save(lambda obj, f: print("saved", f))
            save(1, "a"), user.write(1, "b")
            rest.begin("enough", steps.end, alone=True)
            save(1, "a"), user.write(1, "b"), theirs.save_file(1, "c"), save(1, 7)
            """
        self.assertEqual(self.run_python(textwrap.dedent(code)), ["saved a", "saved b", "mark settled|enough|0", f"saved {os.devnull}", "saved 7"])

    def test_this_interpreters_frames_are_understood(self):
        code = """\
            import ctypes
            from headroom_dry import layout, library
            library.python(ctypes.byref(layout.learn()))
            report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
            report.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16
            def inner():
                report(1 << 21, 512, 512, 1 << 21, 1)
            def outer():
                yield inner()
            list(map(lambda one: [*outer()], "a"))
            """
        names, stacks, block = {}, {}, None
        for kind, payload in self.entries(code)[0]:
            if kind == 1:
                number, length = struct.unpack_from("<2I", payload)
                names[number] = payload[8:8 + length].decode()
            elif kind == 2:
                number, count = struct.unpack_from("<2I", payload)
                stacks[number] = [struct.unpack_from("<3I", payload, 8 + 16 * i) for i in range(count)]
            elif kind == 3:
                block = struct.unpack_from("<QqQQ4I", payload)
        frames = [(names[file], names[function], line) for file, function, line in stacks[block[6]]]
        self.assertEqual(frames, [("<string>", "inner", 7), ("<string>", "outer", 9), ("<string>", "<lambda>", 10), ("<string>", "<module>", 10)])


if __name__ == "__main__":
    unittest.main()
