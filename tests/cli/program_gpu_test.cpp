// The program where there is a card: it is the default, sweeps run on it, its ceilings are measured and kept.
#include "gpu/device.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class ProgramGpu : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    name = cuda_device(0).name;
  }
  Json answer(const std::string& arguments, int code = 0) const {
    const Ended e = run(arguments + " --format json --db " + db_);
    EXPECT_EQ(e.code, code) << arguments << ": " << e.err;
    return e.out.empty() ? Json() : Json::parse(e.out);
  }
  std::string name;
};

TEST_F(ProgramGpu, TheCardIsTheDefaultAndCanBeNamed) {
  EXPECT_EQ(answer("device --no-measure")["device"]["name"], name);
  EXPECT_EQ(answer("device --no-measure --device cuda:0")["device"]["name"], name);
  EXPECT_EQ(answer("device --no-measure --device cpu")["device"]["kind"], "cpu");
  refused("attention --device cuda:99", 1, "this machine has cuda:0");
}

TEST_F(ProgramGpu, TheSweepRunsOnTheCardAndGoesOn) {
  const std::string sweep = "attention --device cuda --batch 2 --dim 64 --len 256,1024 --dtype fp32,bf16 --variant all --steps 5";
  const Json j = answer(sweep);
  EXPECT_EQ(j["device"]["kind"], "cuda");
  EXPECT_TRUE(j["device"]["driver"].is_string() && j["device"]["timing"].is_string() && j["device"]["ceilings"].is_object()) << j["device"];
  EXPECT_LT(j["device"]["available_bytes"], j["device"]["memory_bytes"]);
  std::size_t ok = 0;
  for (const Json& r : j["rows"]) {
    if (r["status"] == "refused") continue;
    ++ok;
    EXPECT_EQ(r["status"], "ok") << r;
    EXPECT_EQ(r["peak_bytes"], r["forecast_peak_bytes"]) << r;
    EXPECT_EQ(r["device"], name);
  }
  EXPECT_GE(ok, 6u) << "plain_cuda in both types, flash_sm90 or another in bf16";
  EXPECT_EQ(answer("results 1")["rows"].size(), j["rows"].size());
}

TEST_F(ProgramGpu, CeilingsAreMeasuredKeptAndUsed) {
  const Json j = answer("device");
  ASSERT_GE(j["ceilings"].size(), 10u);
  int on_host = 0;
  for (const Json& r : j["ceilings"]) {
    const bool with_host = r["host_bytes_per_s"].is_number();
    on_host += with_host;
    EXPECT_GT(r[with_host ? "host_bytes_per_s" : r["what"] == "copy" ? "copy_bytes_per_s" : "flops_per_s"], 0.0) << r;
  }
  EXPECT_EQ(on_host, 3) << "to the host, from it, both ways";
  const Json kept = answer("attention --variant plain --len 256 --steps 1")["device"]["ceilings"];
  EXPECT_EQ(kept["source"], "measured by headroom device, run 1");
  EXPECT_GT(kept["tf32_flops"], kept["fp32_flops"]);
  EXPECT_GT(kept["bf16_flops"], kept["tf32_flops"]);
}

TEST_F(ProgramGpu, KernelsSayWhyTheyServeOrDoNot) {
  const Json rows = answer("kernels --dtype fp32")["attention"];
  for (const Json& r : rows) {
    if (r["variant"] == "plain_cuda") { EXPECT_EQ(r["forward"], "yes"); }
    if (r["variant"] == "flash_sm90") { EXPECT_EQ(r["forward"].get<std::string>().substr(0, 4), "no: "); }
    if (r["variant"] == "flash") { EXPECT_EQ(r["forward"], "no: needs the CPU"); }
  }
}

}  // namespace
}  // namespace headroom
