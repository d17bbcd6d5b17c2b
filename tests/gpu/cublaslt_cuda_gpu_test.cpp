// cuBLASLt as it is found at run time; needs a build with CUDA, but no card.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "gpu/cublaslt.h"

namespace headroom {
namespace {

std::string refusal() {
  try {
    blas::cublaslt();
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(Cublaslt, AFileThatIsNotItIsNamedAndTheNextCallLooksAgain) {
  setenv("HEADROOM_CUBLASLT", "/nowhere/libcublasLt.so", 1);
  EXPECT_NE(refusal().find("/nowhere/libcublasLt.so"), std::string::npos) << refusal();
  setenv("HEADROOM_CUBLASLT", "libm.so.6", 1);
  EXPECT_NE(refusal().find("has no cublasLtCreate"), std::string::npos) << refusal();
  unsetenv("HEADROOM_CUBLASLT");
  const std::string said = refusal();
  if (!said.empty()) {
    EXPECT_NE(said.find("nvidia-cublas"), std::string::npos) << said;
    GTEST_SKIP() << said;
  }
  EXPECT_GE(blas::cublaslt().cublasLtGetVersion(), 120000u);
}

}  // namespace
}  // namespace headroom
