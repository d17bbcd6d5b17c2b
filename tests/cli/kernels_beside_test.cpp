// libheadroom_cuda.so beside the program: where it is, every call finds its function; a file that is not it is refused in one line.
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Kernels : public Program {
 protected:
  void TearDown() override {
    unsetenv("HEADROOM_CUDA_LIBRARY");
    Program::TearDown();
  }
  void refused_with(const std::string& library, const std::string& said) const {
    setenv("HEADROOM_CUDA_LIBRARY", library.c_str(), 1);
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

TEST_F(Kernels, AFileThatIsDamagedIsRefused) {
  const auto file_of = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return at(name);
  };
  const std::string not_loaded = "the GPU kernels beside this program cannot be loaded: ";
  refused_with(file_of("empty.so", ""), not_loaded + at("empty.so") + ": file too short");
  refused_with(file_of("text.so", std::string(5000, 'x')), not_loaded + at("text.so") + ": invalid ELF header");
  refused_with(folder_, not_loaded + folder_.string() + ": cannot read file data: Is a directory");
  const std::string whole = text_of(HEADROOM_FAKES_DIR "/fake_kernels_lacking.so");
  ASSERT_GT(whole.size(), 10'000u);
  refused_with(file_of("half.so", whole.substr(0, whole.size() / 2)), not_loaded + at("half.so") + " is cut off: it has ");
  refused_with(file_of("head.so", whole.substr(0, 100)), not_loaded + at("head.so") + " is cut off within its first bytes");
  std::string elsewhere = whole;
  elsewhere[18] = char(elsewhere[18] + 1);  // the machine that it is for
  refused_with(file_of("elsewhere.so", elsewhere), not_loaded + at("elsewhere.so") + ": ");
  if (geteuid() != 0) {  // root reads what it may not
    fs::permissions(file_of("locked.so", whole), fs::perms::none);
    refused_with(at("locked.so"), not_loaded + at("locked.so") + ": cannot open shared object file: Permission denied");
  }
}

// A run that names no device takes the GPU where one is; kernels that cannot be used must not turn it into a slow one without a word.
TEST_F(Kernels, NoDefaultHidesKernelsThatCannotBeUsed) {
  setenv("HEADROOM_CUDA_LIBRARY", HEADROOM_FAKES_DIR "/fake_kernels_other.so", 1);
  refused("attention --len 16", 1, "belongs to another build of headroom: it is 0.0");
  refused("attention --len 16", 1, "; build it again, remove it, or name the device cpu");
  refused("memory model --model small --batch 1 --len 128", 1, "belongs to another build of headroom");
  EXPECT_EQ(run("attention --device cpu --variant flash --len 16 --heads 1 --dim 8 --steps 1 --warmup 0").code, 0) << text_of(at("err"));
}

TEST_F(Kernels, AForecastOfACardNeedsNone) {
  setenv("HEADROOM_CUDA_LIBRARY", "/nowhere/libheadroom_cuda.so", 1);
  EXPECT_EQ(run("plan --device h200 --model small --batch 1 --len 128 --most 1").code, 0) << text_of(folder_ / "err");
  EXPECT_EQ(run("device --device cpu --no-measure --format json").code, 0) << text_of(at("err"));
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
