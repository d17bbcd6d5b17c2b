// Every lever of a step, given to every command that takes it: each runs or forecasts the same step, to the byte.
#include <fmt/format.h>

#include "base/text.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

// A large vocabulary, so that logits are seen in the peak as people read it.
constexpr const char* model = "--layers 3 --width 64 --heads 4 --kv-heads 2 --vocab 1000 --batch 2 --device cpu --steps 1 --warmup 0 ";

class Levers : public Program, public testing::WithParamInterface<const char*> {};

TEST_P(Levers, AreWhatEveryCommandTakes) {
  const std::string lever = GetParam();
  const bool documents = lever.find("--documents") != std::string::npos;
  const std::string asked = fmt::format("{}{}{} --db {} --format json", model, documents ? "" : "--len 48 ", lever, db_);
  const Ended step = run("step --phase train " + asked);
  ASSERT_EQ(step.code, 0) << step.err;
  const Json row = Json::parse(step.out)["rows"][0];
  const auto peak = row["forecast_peak_bytes"].get<std::int64_t>();
  EXPECT_EQ(row["peak_bytes"], peak);

  const Ended page = run("report --format html --db " + db_);
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find(fmt::format("peak {}\"", bytes_in_words(double(peak)))), std::string::npos) << "live bytes of another step";

  const Ended profile = run("profile step --only " + asked);
  ASSERT_EQ(profile.code, 0) << profile.err;
  EXPECT_EQ(Json::parse(profile.out)["peak_bytes"], peak);

  if (documents) return;  // no lever of memory model
  std::string without_run = asked;
  without_run.erase(without_run.find("--steps 1 --warmup 0 "), std::string("--steps 1 --warmup 0 ").size());
  const Ended memory = run("memory model " + without_run);
  ASSERT_EQ(memory.code, 0) << memory.err;
  EXPECT_EQ(Json::parse(memory.out)["rows"][0]["train_peak_bytes"], peak);
}

INSTANTIATE_TEST_SUITE_P(Each, Levers,
                         testing::Values("--precision bf16", "--precision fp8", "--precision fp8 --scales tensor",
                                         "--precision fp8 --scales row", "--precision bf16 --logits half", "--documents 30,18",
                                         "--keep input", "--keep groups:2", "--keep host", "--attention plain",
                                         "--precision bf16 --masters halves", "--update during", "--precision bf16 --gradients half",
                                         "--precision bf16 --gradients none --masters halves --update during"));

}  // namespace
}  // namespace headroom
