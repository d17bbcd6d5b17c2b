// A shell may hide its cards (CUDA_VISIBLE_DEVICES=""), and a dry run rightly has none there. Tests that need no card do not inherit that.
#include <cstdlib>

namespace {
[[maybe_unused]] const int unset = unsetenv("CUDA_VISIBLE_DEVICES");
}
