#include "engine/pass/recorded.h"

#include <gtest/gtest.h>

#include "tests/engine/recorded_repeats.h"

namespace headroom::engine {
namespace {

TEST(Recorded, AStepOnACpuIsCalledAgain) {
  for (const char* precision : {"fp32", "bf16", "fp8"}) {
    SCOPED_TRACE(precision);
    expect_recorded_steps_repeat({tiny(), 2, 9, *precision_named(precision)}, cpu_device());
  }
}

}  // namespace
}  // namespace headroom::engine
