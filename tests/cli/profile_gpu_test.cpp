// headroom profile where there is a card: another CUDA program, which is this one, is seen from outside.
#include "gpu/device.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class ProfileGpu : public Program {};

TEST_F(ProfileGpu, AnotherProgramsKernelsAreSeen) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
  const std::string json = (folder_ / "program.json").string();
  const Ended e = run("profile --format json --out " + json + " -- " + HEADROOM_BINARY_DIR +
                      "/headroom attention --device cuda --variant plain_cuda --len 256 --batch 1 --steps 3 --warmup 1 --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("plain_cuda"), std::string::npos) << "its own output is on standard output";
  const Json j = Json::parse(text_of(json));
  ASSERT_TRUE(j.contains("kernels")) << j;
  double shares = 0;
  bool softmax = false;
  for (const Json& k : j["kernels"]) {
    shares += k["share"].get<double>();
    softmax |= k["kernel"].get<std::string>().find("attention_plain_softmax") != std::string::npos;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_TRUE(softmax);
  EXPECT_GT(j["peak_bytes"], 0);
}

}  // namespace
}  // namespace headroom
