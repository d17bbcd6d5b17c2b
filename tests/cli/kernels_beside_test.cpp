// libheadroom_cuda.so beside the program: where it is, every call finds its function; a file that is not it is refused in one line.
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Kernels : public Program {
 protected:
  void TearDown() override {
    unsetenv("HEADROOM_CUDA");
    Program::TearDown();
  }
  void refused_with(const std::string& library, const std::string& said) const {
    setenv("HEADROOM_CUDA", library.c_str(), 1);
    refused("attention --device cuda:99", 1, "cuda:99 cannot be had: " + said);
  }
};

TEST_F(Kernels, AFileThatIsNotOfThisBuildIsRefused) {
  refused_with("/nowhere/libheadroom_cuda.so", "the GPU kernels beside this program cannot be loaded: /nowhere");
  refused_with("libm.so.6", "libm.so.6 belongs to another build of headroom: it has no headroom_cuda");
  refused_with(HEADROOM_FAKES_DIR "/fake_kernels_other.so",
               HEADROOM_FAKES_DIR "/fake_kernels_other.so belongs to another build of headroom: it is 0.0");
  refused_with(HEADROOM_FAKES_DIR "/fake_kernels_lacking.so",
               HEADROOM_FAKES_DIR "/fake_kernels_lacking.so belongs to another build of headroom: it lacks");
}

TEST_F(Kernels, AForecastOfACardNeedsNone) {
  setenv("HEADROOM_CUDA", "/nowhere/libheadroom_cuda.so", 1);
  EXPECT_EQ(run("plan --device h200 --model small --batch 1 --len 128 --most 1").code, 0) << text_of(folder_ / "err");
  EXPECT_EQ(run("device --no-measure --format json").code, 0);
}

#ifdef HEADROOM_HAS_KERNELS
TEST_F(Kernels, EveryCallOfTheProgramIsInTheLibrary) {
  refused("attention --device cuda:99", 1, "cuda:99 cannot be had: this machine has");
}
#else
TEST_F(Kernels, WithoutThemItSaysHowTheyAreBuilt) {
  refused("attention --device cuda:99", 1,
          "there are no GPU kernels beside this program: 'make build' builds libheadroom_cuda.so where nvcc is");
}
#endif

}  // namespace
}  // namespace headroom
