#include "dry/library/python.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dry/library/frames.h"
#include "dry/library/recorder.h"

namespace headroom::dry {

namespace {

std::atomic<int> most_frames = 48;

struct Waiting {
  BlockChange block;
  std::uint64_t at_ns;
};

struct Here {
  CallSite place{};
  std::uint32_t scope_told = 0;  // by the observer, for this thread
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
  std::mutex mutex;  // for a Python without a global lock
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

// The same without Python's lock. No reference is kept, so a code object is known by what it holds, too: another may get its address.
struct Seen {
  struct Code {
    const void *file_text = nullptr, *function_text = nullptr;
    std::uint32_t file = 0, function = 0;
    bool checkpoint = false, switched = false,
         own = false;                    // it is PyTorch's checkpointing, or a decorator such as no_grad, or the observer
    bool differentiable = false;         // it calls a torch.autograd.Function, or saves for backward by hooks: both without gradients
    bool compiled = false;               // it is the forward function of a compiled graph that has a backward one
    bool gathers = false;                // it is FSDP, which gathers a module's weights without gradients just before its forward
    std::unordered_map<int, int> lines;  // by instruction
  };
  std::uint32_t generation = 0;
  std::unordered_map<const void*, Code> codes;
  std::map<std::vector<std::uint64_t>, std::uint32_t> stacks;
  std::unordered_map<const void*, std::uint32_t> objects;
  std::map<std::uint64_t, std::uint32_t> modules;  // by autograd's number of the node that follows
  std::string told;                                // the observer's phase
  std::uint32_t phase = 0;                         // the last that was marked here: a name
  std::mutex mutex;

  void begin(Recorder& record) {
    if (generation == record.generation()) return;
    generation = record.generation();
    codes.clear(), stacks.clear(), objects.clear(), modules.clear();
    phase = 0;
  }
};
Seen& seen() {
  static Seen& one = *new Seen;
  return one;
}

constexpr std::size_t most_modules = 1 << 16;  // operations that a backward pass finds again

// The path of a file of PyTorch's, in any environment.
bool is_of(std::string_view file, std::string_view part) { return file.find(part) != std::string_view::npos; }

struct Found {
  std::uint32_t stack = 0, module = 0;
  bool checkpoint = false, compiled = false, gathers = false;
  // A module calls another in which something is decorated with no_grad, and the block is made in there; or in a function with its own gradient.
  bool switched = false;
};

Seen::Code described(const PythonCode& code, Recorder& record) {
  const std::string file = utf8_of(code.file), function = utf8_of(code.function);
  return {
      code.file,
      code.function,
      record.name(file),
      record.name(function),
      file.ends_with("torch/utils/checkpoint.py"),
      file.ends_with("torch/utils/_contextlib.py"),
      is_of(file, "/headroom_dry/"),
      file.ends_with("torch/autograd/function.py") || file.ends_with("torch/autograd/graph.py"),
      file.ends_with("torch/_functorch/_aot_autograd/runtime_wrappers.py") && function == "forward",
      function.ends_with("_pre_forward") && (is_of(file, "torch/distributed/fsdp/") || is_of(file, "torch/distributed/_composable/fsdp/")),
      {}};
}

Found find_frames(Seen& s, Recorder& record) {
  static thread_local std::vector<PythonFrame> raw;
  static thread_local std::vector<Frame> frames;
  raw.resize(std::size_t(most_frames) * 2);
  frames.clear();
  Found found;
  bool switched = false;
  const void* decorated = nullptr;  // the module of what is decorated
  for (const PythonFrame& f : std::span(raw).first(python_frames(raw.data(), raw.size()))) {
    if (f.object && switched && !decorated) decorated = f.object;
    found.switched |= decorated && f.object && f.object != decorated;
    if (f.object && !found.module) found.module = s.objects.try_emplace(f.object, std::uint32_t(s.objects.size() + 1)).first->second;
    if (frames.size() >= std::size_t(most_frames)) continue;
    const PythonCode code = code_of(f);
    Seen::Code& c = s.codes[f.code];
    if (c.file_text != code.file || c.function_text != code.function) c = described(code, record);
    found.checkpoint |= c.checkpoint;
    switched |= c.switched;
    found.switched |= c.differentiable || c.gathers;
    found.compiled |= c.compiled;
    found.gathers |= c.gathers;
    if (c.own) continue;
    const auto [line, fresh] = c.lines.try_emplace(f.instruction);
    if (fresh) line->second = line_of(f);
    if (line->second >= 0) frames.push_back({c.file, c.function, std::uint32_t(line->second), 0});
  }
  if (frames.empty()) return found;
  std::vector<std::uint64_t> key;
  for (const Frame& f : frames) key.push_back(std::uint64_t(f.file) << 40 ^ std::uint64_t(f.function) << 20 ^ f.line);
  const auto [at, fresh] = s.stacks.try_emplace(std::move(key), std::uint32_t(s.stacks.size() + 1));
  found.stack = at->second;
  if (fresh)
    record.add(Stack{.id = at->second, .count = std::uint32_t(frames.size())},
               {reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof(Frame)});
  return found;
}

// A block's stack, its module and its phase. The module of a backward pass is that of the operation that made the node; under a checkpoint
// the frames have it again.
CallSite look_without_lock() {
  Recorder& record = Recorder::get();
  Seen& s = seen();
  const Autograd autograd = autograd_now();
  const std::lock_guard lock(s.mutex);
  s.begin(record);
  const Found found = find_frames(s, record);
  std::uint32_t module = found.module;
  if (autograd.backward && !module) {
    const auto at = s.modules.upper_bound(autograd.sequence);
    if (at != s.modules.end()) module = at->second;
  } else if (!autograd.backward && module && autograd.enabled && autograd.sequence) {
    s.modules[autograd.sequence] = module;
    if (s.modules.size() > most_modules) s.modules.erase(s.modules.begin());
  }
  if (s.told.empty() && !autograd.backward) {
    const bool forward = autograd.enabled || found.checkpoint || found.compiled;
    std::uint32_t phase = s.phase;  // what a part without gradients belongs to, the blocks before it say
    if (found.compiled || (found.module && (forward || !found.switched)))
      phase = record.name(forward ? "forward" : "evaluation");
    else if (found.module && found.gathers && phase == 0)
      phase = record.name("forward");  // that of the outermost module is the first block of its forward
    if (phase != s.phase) record.add(Mark{record.name("phase"), phase, 0});
    s.phase = phase;
  }
  return {found.stack, module};
}

}  // namespace

std::uint32_t number_of_object(const void* object) {
  Seen& s = seen();
  const std::lock_guard lock(s.mutex);
  const auto at = s.objects.find(object);
  return at == s.objects.end() ? 0 : at->second;
}

void phase_told(std::string_view phase) {
  Seen& s = seen();
  const std::lock_guard lock(s.mutex);
  s.told = phase;
  s.phase = 0;
}

Here::~Here() {
  for (const Waiting& w : waiting) Recorder::get().add(w.block, {}, w.at_ns);
  ended = true;
}

CallSite here() { return ended ? CallSite{} : thread.place; }
std::uint32_t scope() { return here().scope; }
std::uint32_t set_scope(std::uint32_t number) {
  if (ended) return 0;
  thread.place.scope = number;
  return std::exchange(thread.scope_told, number);
}
void set_frames(int most) { most_frames = std::clamp(most, 0, 1000); }

CallSite look() {
  if (!ended && most_frames && frames_are_known() && Recorder::get().on()) {
    const std::uint32_t told = thread.scope_told;
    thread.place = look_without_lock();
    if (told) thread.place.scope = told;
    return thread.place;
  }
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

void wait_for_place(const BlockChange& block) {
  Recorder& record = Recorder::get();
  if (!record.on()) return;
  if (!ended && most_frames && frames_are_known()) {
    settle();
    BlockChange here = block;
    here.place = block.bytes > 0 ? look() : thread.place;
    return record.add(here);
  }
  if (ended || !python().whole || (block.bytes < 0 && thread.waiting.empty())) return record.add(block);
  thread.waiting.push_back({block, record.now_ns()});
}

void settle() {
  if (ended || thread.waiting.empty() || thread.looking) return;
  const CallSite place = look();
  for (Waiting& w : thread.waiting) {
    w.block.place = place;
    Recorder::get().add(w.block, {}, w.at_ns);
  }
  thread.waiting.clear();
}

}  // namespace headroom::dry
