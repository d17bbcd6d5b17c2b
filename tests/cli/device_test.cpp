// What `headroom device` measured is what forecasts of this machine go by, and what it writes is read elsewhere.
#include "base/device.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

class DeviceProgram : public ModelProgram {
 protected:
  void keep(bool efficiencies) const {  // every op at 1.5 times its roofline
    const std::vector<std::string> rows{
        R"({"what": "step", "model": "wide", "ms": 3, "forecast_ms": 3.1})",
        R"({"what": "efficiency", "precision": "fp32", "product": 1.5, "gradient_product": 1.5, "elementwise": 1.5, "loss": 1.5,
            "update": 1.5, "attention_64": 1.5, "attention_64_backward": 1.5, "attention_128": 1.5, "attention_128_backward": 1.5,
            "within": 1.25})"};
    keep_device(db_, 5e10, efficiencies ? rows : std::vector<std::string>());
  }
};

TEST_F(DeviceProgram, WhatWasMeasuredIsWhatForecastsGoBy) {
  const std::string asked = " --len 64 --precision fp32,bf16" + small_model, here = "memory model --device cpu" + asked;
  EXPECT_TRUE(answer(here)["rows"][0]["ms_at_least"].is_null()) << "nothing was measured yet";
  keep(false);
  const Json bound = answer(here)["rows"][0];
  EXPECT_GT(bound["ms_at_least"], 0.0);
  EXPECT_TRUE(bound["ms"].is_null()) << bound;
  keep(true);
  const Json rows = answer(here)["rows"];
  const double ms = rows[0]["ms"];
  EXPECT_NEAR(ms, 1.5 * rows[0]["ms_at_least"].get<double>(), 1e-6 * ms);
  EXPECT_NEAR(rows[0]["ms_high"].get<double>(), 1.25 * ms, 1e-6 * ms);
  EXPECT_NEAR(rows[0]["ms_low"].get<double>(), ms / 1.25, 1e-6 * ms);
  EXPECT_TRUE(rows[1]["ms"].is_null()) << "no step in bf16 was measured";
  keep(false);
  EXPECT_EQ(answer(here)["rows"][0]["ms"], ms) << "later ceilings alone leave what steps were measured";
  const Json planned = answer("plan --device cpu --attention flash --precision fp32 --len 64" + small_model)["rows"][0];
  EXPECT_GT(planned["ms"], planned["ms_at_least"]);
}

TEST_F(DeviceProgram, ASavedFileForecastsAsTheMachineDoes) {
  keep(true);
  const std::string file = at("mine.json"), asked = " --len 64" + small_model;
  const Ended e = run("device --no-measure --device cpu --save " + file + " --db " + db_);
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.err.find("mine.json describes this machine"), std::string::npos) << e.err;
  const Device saved = device_described(file), here = cpu_device();
  EXPECT_EQ(saved.kind, DeviceKind::cpu);
  EXPECT_EQ(saved.name, here.name);
  EXPECT_EQ(saved.units, here.units);
  const Json one = answer("memory model --device cpu" + asked)["rows"][0],
             other = answer("memory model --device " + file + asked)["rows"][0];
  EXPECT_NEAR(other["ms"].get<double>(), one["ms"].get<double>(), 1e-6 * one["ms"].get<double>());
}

TEST_F(DeviceProgram, WhatCannotBeIsSaidInOneLine) {
  refused("device --efficiencies --no-measure", 2, "--efficiencies measures; leave --no-measure out");
  refused("device --efficiencies --known", 2, "--efficiencies measures; leave --known out");
  refused("device --precision bf16", 2, "--precision is of the steps of --efficiencies; give that too");
  refused("device --precision bf61 --efficiencies", 2, "there is no 'bf61'");
  refused("device --known --save " + at("x.json"), 2, "--save writes this machine; leave --known out");
  refused("device --device cpu --no-measure --save " + at("x.json") + " --db " + db_, 1, "nothing was measured of");
  EXPECT_FALSE(fs::exists(at("x.json")));
}

}  // namespace
}  // namespace headroom
