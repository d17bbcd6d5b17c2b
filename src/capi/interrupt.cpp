// Long calls that their program ends: headroom_stop_when, and Python's signals by way of it.
#include "base/interrupt.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "headroom/headroom.h"

using namespace headroom;

namespace {

// Functions that every Python has. Its handlers of signals run in its main thread alone, so no other thread waits for its lock.
struct Python {
  int (*PyGILState_Ensure)() = nullptr;
  void (*PyGILState_Release)(int) = nullptr;
  int (*PyErr_CheckSignals)() = nullptr;
  void (*PyErr_Fetch)(void** type, void** value, void** traceback) = nullptr;
  void (*PyErr_Restore)(void* type, void* value, void* traceback) = nullptr;
};

struct Raised {  // what a handler raised: of the main thread, with Python's lock held
  void *type = nullptr, *value = nullptr, *traceback = nullptr;
};

Python python;
Raised raised;

template <class F>
bool find(F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

bool in_main_thread() { return syscall(SYS_gettid) == getpid(); }

int handlers_raised(void*) {
  if (!in_main_thread()) return 0;
  const int lock = python.PyGILState_Ensure();
  const bool ends = python.PyErr_CheckSignals() != 0;
  if (ends) python.PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
  python.PyGILState_Release(lock);
  return ends ? 1 : 0;
}

}  // namespace

void headroom_stop_when(int (*stop)(void*), void* user) { ask_host(stop, user); }

int headroom_python_heeds_signals(void) {
  const bool all = find(python.PyGILState_Ensure, "PyGILState_Ensure") && find(python.PyGILState_Release, "PyGILState_Release") &&
                   find(python.PyErr_CheckSignals, "PyErr_CheckSignals") && find(python.PyErr_Fetch, "PyErr_Fetch") &&
                   find(python.PyErr_Restore, "PyErr_Restore");
  if (all) headroom_stop_when(handlers_raised, nullptr);
  return all ? 1 : 0;
}

void headroom_python_raise(void) {
  if (!in_main_thread()) return;
  const Raised now = std::exchange(raised, {});
  if (now.type) python.PyErr_Restore(now.type, now.value, now.traceback);
}
