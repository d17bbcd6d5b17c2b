#include "dry/library/host.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "dry/library/next.h"
#include "dry/library/pace.h"
#include "dry/library/recorder.h"

namespace {

using namespace headroom::dry;

// Memory of the thread that is always there: a counter costs an instruction.
#define QUICK thread_local __attribute__((tls_model("initial-exec")))
QUICK HostWork counted{};
QUICK int own = 0;               // how deep the thread is in the observer's own functions; 0: it runs the program
QUICK bool listens = false;      // Python tells of this thread's calls, or it has none
std::atomic<bool> began{false};  // Python was told to tell of calls

enum Event { call = 0, returned = 3, builtin = 4 };  // Py_tracefunc's

// The functions of Python's interface that are called, found in the process.
struct Python {
  void* (*code_by_function)(void*) = nullptr;
  void (*release)(void*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  const char* (*text)(void*, std::ptrdiff_t*) = nullptr;
  void (*clear_error)() = nullptr;
  void* (*state)() = nullptr;
  int (*lock)() = nullptr;
  void (*unlock)(int) = nullptr;
  void (*profile)(int (*)(void*, void*, int, void*), void*) = nullptr;
  bool whole = false;

  Python() {
    const auto find = [](auto& f, const char* name) {
      return (f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(RTLD_DEFAULT, name))) != nullptr;
    };
    find(code_by_function, "PyFrame_GetCode");  // Python 3.8 has none
    whole = find(release, "Py_DecRef") && find(attribute, "PyObject_GetAttrString") && find(text, "PyUnicode_AsUTF8AndSize") &&
            find(clear_error, "PyErr_Clear") && find(state, "PyGILState_GetThisThreadState") && find(lock, "PyGILState_Ensure") &&
            find(unlock, "PyGILState_Release") && find(profile, "PyEval_SetProfile");
  }
  static const Python& get() {
    static const Python& py = *new Python;
    return py;
  }
  void* code(void* frame) const { return code_by_function ? code_by_function(frame) : attribute(frame, "f_code"); }
};

// Whether code is of the observer's files that compute beside the program. Those that wrap the program's own calls (steps.py) have it inside.
bool is_own(const Python& py, void* code) {
  bool is = false;
  void* const file = py.attribute(code, "co_filename");
  std::ptrdiff_t n = 0;
  const char* const text = file ? py.text(file, &n) : nullptr;
  if (text) {
    const std::string_view path(text, std::size_t(n));
    is = path.find("/headroom_dry/") != path.npos && !path.ends_with("/steps.py");
  }
  if (!text) py.clear_error();
  if (file) py.release(file);
  return is;
}

}  // namespace

extern "C" int headroom_dry_called(void*, void* frame, int what, void*);

namespace {

// Threads of autograd begin after the observer has, and what Python runs in them (hooks, the forward pass of a checkpoint, the observer's own
// kernels) would be counted wrongly. Such a thread holds no lock here, and PyTorch gave it a state of Python's.
void listen() {
  listens = true;
  const Python& py = Python::get();
  if (!py.whole || !py.state()) return;
  const int before = py.lock();
  py.profile(&headroom_dry_called, nullptr);
  py.unlock(before);
}

}  // namespace

namespace headroom::dry {

void host_worked() {
  if (!(counted.operations | counted.nodes | counted.functions | counted.builtins | counted.bytes)) return;
  Recorder::get().add(counted);
  pace_counted(counted);
  counted = {};
}

}  // namespace headroom::dry

extern "C" {

// A Py_tracefunc, which the observer gives to PyEval_SetProfile. Python's lock is held.
int headroom_dry_called(void*, void* frame, int what, void*) {
  const Python& py = Python::get();
  listens = true;
  began.store(true, std::memory_order_relaxed);
  static thread_local std::unordered_map<const void*, bool> codes;
  if (what == builtin) {
    counted.builtins += own == 0;
  } else if (what == returned) {
    own -= own > 0;
  } else if (what == call && own > 0) {
    ++own;
  } else if (what == call && py.whole && frame) {
    void* const code = py.code(frame);
    const auto [at, fresh] = codes.try_emplace(code, false);  // code of the observer is never freed, so no other gets its address
    if (fresh) at->second = is_own(py, code);
    py.release(code);
    own = int(at->second);
    counted.functions += own == 0;
  }
  return 0;
}

// PyTorch asks this at every call of its dispatcher and at every node of a backward pass: whether a profiler listens, and to what. Its answer goes
// through memory that the caller gives, so its size is not known here and need not be.
struct HeadroomDryListeners {
  std::byte bytes[1024];
  ~HeadroomDryListeners() {}
};
// NOLINTNEXTLINE: the mangled name of PyTorch 2.x
#define LISTENERS_NAME "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE"
HeadroomDryListeners headroom_dry_listeners(std::uint8_t) __asm__(LISTENERS_NAME);
HeadroomDryListeners headroom_dry_listeners(std::uint8_t scope) {
  static auto* const real = next<decltype(headroom_dry_listeners)>(LISTENERS_NAME, "libtorch_cpu.so", __builtin_return_address(0));
  if (scope == 1 && !listens && began.load(std::memory_order_relaxed)) listen();
  if (own == 0) {
    counted.operations += scope == 0;
    counted.nodes += scope == 1;
  }
  return real(scope);
}

// Every tensor of the host begins with this.
// NOLINTNEXTLINE: the mangled name of PyTorch 2.x
#define MEMORY_OF_HOST_NAME "_ZN3c109alloc_cpuEm"
void* headroom_dry_alloc_cpu(std::size_t) __asm__(MEMORY_OF_HOST_NAME);
void* headroom_dry_alloc_cpu(std::size_t bytes) {
  static auto* const real = next<decltype(headroom_dry_alloc_cpu)>(MEMORY_OF_HOST_NAME, "libc10.so", __builtin_return_address(0));
  counted.bytes += own == 0 ? bytes : 0;
  return real(bytes);
}
}
