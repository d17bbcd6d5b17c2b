// What is said of a profiled program: from a log whose times are known.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/render.h"
#include "studies/profile_program.h"

namespace headroom::studies {
namespace {

constexpr std::int64_t ms = 1'000'000;

// Device 0: a copy, 98 ms of getting ready, then ten kernels of 1 ms, 0.25 ms apart. Device 1: one kernel all the while.
ProgramRun run() {
  using profile::SliceKind;
  ProgramRun r;
  r.command = {"train"}, r.wall_s = 1;
  profile::ActivityLog log;
  log.loaded_ns = 5 * ms;
  log.slices.push_back({"copy to device", SliceKind::copy, -1, 0, 10 * ms, 12 * ms, 7, 64});
  log.slices.push_back({"ours::step<int>", SliceKind::kernel, -1, 1, 11 * ms, 200 * ms, 7, 0});
  for (int i = 0; i < 10; ++i) {
    const std::int64_t start = 110 * ms + i * 5 * ms / 4;
    log.slices.push_back({"ours::step<float>", SliceKind::kernel, -1, 0, start, start + ms, 7, 0});
  }
  log.ended_ns = 300 * ms;
  r.logs.push_back(std::move(log));
  return r;
}

TEST(ProgramRecord, APauseIsNoGap) {
  const auto j = nlohmann::json::parse(render_json(program_record(run(), false)));
  const double first = 2 + 98 + 9 * 1.25 + 1, busy = 2 + 10 + 189;
  EXPECT_DOUBLE_EQ(j["busy_ms"], busy);
  EXPECT_DOUBLE_EQ(j["pauses_ms"], 98);
  EXPECT_NEAR(j["busy_share"].get<double>(), busy / (first + 189), 1e-9);
  EXPECT_NEAR(j["busy_share_between_pauses"].get<double>(), busy / (first - 98 + 189), 1e-9);
  ASSERT_EQ(j["pauses"].size(), 1u);
  EXPECT_DOUBLE_EQ(j["pauses"][0]["at_ms"], 12 - 5);
  EXPECT_EQ(j["pauses"][0]["before"], "ours::step<float>");
  ASSERT_EQ(j["gaps"].size(), 1u) << "what another device does fills no gap, and leaves none";
  EXPECT_EQ(j["gaps"][0]["count"], 9);
  EXPECT_NEAR(j["gaps"][0]["ms"].get<double>(), 9 * 0.25, 1e-9);
}

TEST(ProgramRecord, PeopleReadShortNamesThatTellKernelsApart) {
  const std::string text = render_text(program_record(run(), true));
  EXPECT_NE(text.find("  step<float>"), std::string::npos) << text;
  EXPECT_NE(text.find("  step<int>"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom::studies
