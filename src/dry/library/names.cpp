// An answer for every other function that programs import: names.inc lists them by what they answer. A function that this library defines itself
// wins over the one here, which is weak.
#include "dry/library/world.h"

using headroom::dry::accepted;
using headroom::dry::refused;

#define WEAK(name) extern "C" __attribute__((weak)) int name

// A library's function that works on the card: it is recorded as accepted, and says so.
#define ACCEPTED(name) \
  WEAK(name)() { return accepted(#name); }
// A setter, or a destructor: nothing depends on it.
#define QUIET(name) \
  WEAK(name)() { return 0; }
// It gives a handle through its first parameter.
#define CREATES(name)      \
  WEAK(name)(void** out) { \
    *out = new char[64](); \
    return 0;              \
  }
// A function of the runtime or the driver that is not supported, as an old driver would say.
#define REFUSED(name) \
  WEAK(name)() { return refused(#name); }
// CUPTI: not initialised. PyTorch's profiler then goes without.
#define NOT_INITIALISED(name) \
  WEAK(name)() { return 15; }

#include "dry/library/names.inc"
