#include "dry/library/python.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dry/library/recorder.h"

namespace headroom::dry {

namespace {

std::atomic<int> most_frames = 48;

struct Waiting {
  Block block;
  std::uint64_t at_ns;
};

struct Here {
  Place place{};
  std::vector<Waiting> waiting;
  bool looking = false;
  ~Here();
};
thread_local Here thread;
thread_local bool ended = false;  // the thread is past its destructors

// What we need of Python's interface, found in the process: none of it in a program without Python.
struct Python {
  using Object = void*;
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  Object (*this_thread)() = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  Object (*frame)() = nullptr;  // borrowed
  Object (*back)(Object) = nullptr;
  Object (*code)(Object) = nullptr;
  int (*line)(Object) = nullptr;
  int (*instruction)(Object) = nullptr;  // from 3.11 on
  Object (*attribute)(Object, const char*) = nullptr;
  const char* (*text)(Object, std::ptrdiff_t*) = nullptr;
  void (*increase)(Object) = nullptr;
  void (*decrease)(Object) = nullptr;
  void (*clear_error)() = nullptr;
  bool whole = false;

  template <class F>
  static bool find(F*& f, const char* name) {
    f = reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
    return f != nullptr;
  }
  Python() {
    whole = find(is_initialized, "Py_IsInitialized") && find(this_thread, "PyGILState_GetThisThreadState") &&
            find(ensure, "PyGILState_Ensure") && find(release, "PyGILState_Release") && find(frame, "PyEval_GetFrame") &&
            find(back, "PyFrame_GetBack") && find(code, "PyFrame_GetCode") && find(line, "PyFrame_GetLineNumber") &&
            find(attribute, "PyObject_GetAttrString") && find(text, "PyUnicode_AsUTF8AndSize") && find(increase, "Py_IncRef") &&
            find(decrease, "Py_DecRef") && find(clear_error, "PyErr_Clear");
    find(instruction, "PyFrame_GetLasti");
    if (!find(is_finalizing, "Py_IsFinalizing")) find(is_finalizing, "_Py_IsFinalizing");
  }
};

const Python& python() {
  static const Python& one = *new Python;
  return one;
}

// Names of code objects and numbers of stacks. Python's lock guards them; a fork begins anew, as the record does.
struct Known {
  struct Code {
    std::uint32_t file, function;
    std::unordered_map<int, std::uint32_t> lines;  // by instruction
  };
  std::uint32_t generation = 0;
  std::unordered_map<void*, Code> codes;  // a reference to each is kept, so that no other gets its address
  std::map<std::vector<std::uint64_t>, std::uint32_t> stacks;
  std::mutex mutex;  // of a Python without a global lock
};

std::uint32_t name_of(const Python& py, void* code, const char* attribute) {
  void* const value = py.attribute(code, attribute);
  if (!value) {
    py.clear_error();
    return 0;
  }
  std::ptrdiff_t n = 0;
  const char* const text = py.text(value, &n);
  const std::uint32_t id = text ? Recorder::get().name({text, std::size_t(n)}) : 0;
  if (!text) py.clear_error();
  py.decrease(value);
  return id;
}

std::uint32_t read_stack(const Python& py) {
  static Known& known = *new Known;
  Recorder& record = Recorder::get();
  const std::lock_guard lock(known.mutex);
  if (known.generation != record.generation()) {
    known.codes.clear();
    known.stacks.clear();
    known.generation = record.generation();
  }
  static thread_local std::vector<Frame> frames;
  frames.clear();
  void* frame = py.frame();
  if (frame) py.increase(frame);
  for (int depth = 0; frame && depth < most_frames; ++depth) {
    void* const code = py.code(frame);
    const auto [at, fresh] = known.codes.try_emplace(code);
    Known::Code& c = at->second;
    if (fresh) {
      py.increase(code);
      c.file = name_of(py, code, "co_filename");
      c.function = name_of(py, code, "co_name");
    }
    py.decrease(code);
    std::uint32_t line = 0;
    if (py.instruction) {
      const auto [seen, first] = c.lines.try_emplace(py.instruction(frame));
      if (first) seen->second = std::uint32_t(py.line(frame));
      line = seen->second;
    } else {
      line = std::uint32_t(py.line(frame));
    }
    frames.push_back({c.file, c.function, line, 0});
    void* const outer = py.back(frame);
    py.decrease(frame);
    frame = outer;
  }
  if (frame) py.decrease(frame);
  if (frames.empty()) return 0;
  std::vector<std::uint64_t> key;
  for (const Frame& f : frames) key.push_back(std::uint64_t(f.file) << 40 ^ std::uint64_t(f.function) << 20 ^ f.line);
  const auto [at, fresh] = known.stacks.try_emplace(std::move(key), std::uint32_t(known.stacks.size() + 1));
  if (fresh)
    record.add(Stack{.id = at->second, .count = std::uint32_t(frames.size())},
               {reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof(Frame)});
  return at->second;
}

}  // namespace

Here::~Here() {
  for (const Waiting& w : waiting) Recorder::get().add(w.block, {}, w.at_ns);
  ended = true;
}

Place here() { return ended ? Place{} : thread.place; }
std::uint32_t scope() { return here().scope; }
std::uint32_t set_scope(std::uint32_t number) { return ended ? 0 : std::exchange(thread.place.scope, number); }
void set_frames(int most) { most_frames = std::clamp(most, 0, 1000); }

Place look() {
  const Python& py = python();
  if (ended || thread.looking || !most_frames || !py.whole || !Recorder::get().on()) return here();
  thread.place.stack = 0;
  if (!py.is_initialized() || (py.is_finalizing && py.is_finalizing()) || !py.this_thread()) return here();
  thread.looking = true;  // freeing a frame may run anything
  const int state = py.ensure();
  thread.place.stack = read_stack(py);
  py.release(state);
  thread.looking = false;
  return thread.place;
}

void wait_for_place(const Block& block) {
  Recorder& record = Recorder::get();
  if (!record.on()) return;
  if (ended || !python().whole || (block.bytes < 0 && thread.waiting.empty())) return record.add(block);
  thread.waiting.push_back({block, record.now_ns()});
}

void settle() {
  if (ended || thread.waiting.empty() || thread.looking) return;
  const Place place = look();
  for (Waiting& w : thread.waiting) {
    w.block.place = place;
    Recorder::get().add(w.block, {}, w.at_ns);
  }
  thread.waiting.clear();
}

}  // namespace headroom::dry
