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

#ifdef HEADROOM_KERNELS_DRY
// Every call of a step goes through the library, graphs, events and copies among them; the card answers and computes nothing.
TEST_F(Kernels, AStepOnACardThatIsNotThereRunsThroughThem) {
  setenv("HEADROOM_CUDA_LIBRARY", HEADROOM_KERNELS_DRY, 1);
  const std::string on_h200 = "forecast --device h200 -- " HEADROOM_BINARY_DIR "/headroom ";
  const std::string step = "step --layers 2 --width 128 --heads 2 --vocab 100 --batch 2 --len 128 --warmup 1 --steps 2 --format json ";
  for (const char* precision : {"bf16", "fp8", "fp32"}) {
    const Ended e = run(on_h200 + step + "--precision " + precision + " --device cuda:0 --out " + at("step.json"));
    ASSERT_EQ(e.code, 0) << e.err;
    const Json rows = Json::parse(text_of(at("step.json")))["rows"];
    EXPECT_EQ(rows.size(), 3u) << precision;
    for (const Json& row : rows) {
      EXPECT_EQ(row["status"], "ok") << row["why"];
      EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]) << precision << " " << row["phase"];
    }
  }
  const Ended e = run(on_h200 + step + "--device cuda:1");
  EXPECT_NE(e.code, 0);
  EXPECT_NE(e.err.find("--device: cuda:1 cannot be had: this machine has cuda:0 to cuda:0"), std::string::npos) << e.err;
}
#endif
#else
TEST_F(Kernels, WithoutThemItSaysHowTheyAreBuilt) {
  refused("attention --device cuda:99", 1,
          "there are no GPU kernels beside this program: 'make build' builds libheadroom_cuda.so where nvcc is");
}
#endif

}  // namespace
}  // namespace headroom
