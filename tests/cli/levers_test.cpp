// Every lever is given to every command of a step. What ran is held against what was asked: the row says the word, and the bytes are
// those of a dry run of that recipe.
#include "tests/levers.h"

#include <fmt/format.h>

#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/keep_auto.h"
#include "engine/model/models.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

using engine::LeverCase;

class LeverProgram : public ModelProgram {
 protected:
  void SetUp() override {
    ModelProgram::SetUp();
    put("model.json", engine::to_json(engine::model_of_levers()));
    std::string tokens;  // 3000 numbers of 16 bits
    for (int i = 0; i < 3000; ++i) tokens += {char(i * 7 % 251), char(i % 2)};
    put("tokens.bin", tokens);
    keep_ceilings(1e9);
  }
  // The report on the newest run, a step, draws the live bytes of that step.
  void expect_live_bytes(std::size_t peak) const {
    const Ended page = run("report --format html --db " + db_);
    EXPECT_EQ(page.code, 0) << page.err;
    EXPECT_NE(page.out.find(fmt::format("peak {}\"", bytes_in_words(double(peak)))), std::string::npos) << "live bytes of another step";
  }
  std::string model() const { return " --model " + at("model.json") + " --len 64 --batch 4"; }
};

// One value of each lever that a CPU takes: the first that is not as usual.
std::vector<LeverCase> one_of_each() {
  std::vector<LeverCase> some;
  for (LeverCase& c : engine::lever_cases()) {
    const auto said = engine::changed(c.levers);
    const bool changed = std::any_of(said.begin(), said.end(), [&](const auto& one) { return one.first == c.lever; });
    if (changed && c.levers.precision.math != Math::tf32 && (some.empty() || some.back().lever != c.lever)) some.push_back(std::move(c));
  }
  return some;
}

TEST_F(LeverProgram, IsWhatStepAndProfileRun) {
  const Device cpu = cpu_device();
  const std::string small = model() + " --device cpu --threads 1 --steps 1 --warmup 0 --phase train";
  for (const LeverCase& c : one_of_each()) {
    SCOPED_TRACE(c.lever + " " + c.word);
    const std::string options = options_of_levers(c.levers);
    const std::size_t peak = engine::forecast_peak(engine::step_of_levers(c.levers), cpu, 1);
    const Json step = answer("step" + small + options)["rows"][0];
    EXPECT_EQ(step[c.lever], c.word);
    EXPECT_EQ(step["peak_bytes"], peak);
    EXPECT_EQ(step["forecast_peak_bytes"], peak);
    expect_live_bytes(peak);
    EXPECT_EQ(answer("profile step --only" + small + options)["peak_bytes"], peak);
  }
}

TEST_F(LeverProgram, PackedDocumentsAreWhatStepAndProfileRun) {
  const std::string packed =
      " --model " + at("model.json") + " --documents 40,24 --batch 4 --device cpu --threads 1 --steps 1 --warmup 0 --phase train";
  engine::Recipe recipe = engine::step_of_levers({});
  recipe.documents = engine::packed_as({40, 24});
  const std::size_t peak = engine::forecast_peak(recipe, cpu_device(), 1);
  EXPECT_EQ(answer("step" + packed)["rows"][0]["peak_bytes"], peak);
  expect_live_bytes(peak);
  EXPECT_EQ(answer("profile step --only" + packed)["peak_bytes"], peak);
}

TEST_F(LeverProgram, IsWhatMemoryAndPlanForecast) {
  const Device h200 = device_described("h200");
  for (const LeverCase& c : engine::lever_cases()) {
    if (!c.levers.keep.found() || c.levers.keep.host != 0) continue;  // found by each with a memory of its own; plan has no row of it
    SCOPED_TRACE(c.lever + " " + c.word);
    const engine::Recipe recipe = engine::step_of_levers(c.levers);
    const std::size_t peak = engine::forecast_peak(recipe, h200, 1);
    const std::string kept = engine::kept_in_words(recipe), word = c.lever == "keep" ? kept : c.word;
    const std::string said = options_of_levers(c.levers), fp32 = said.find("--precision") == std::string::npos ? " --precision fp32" : "";
    const Json memory = answer("memory model --device h200" + model() + said + fp32)["rows"][0];
    EXPECT_EQ(memory[c.lever], word);
    EXPECT_EQ(memory["train_peak_bytes"], peak);
    const Json plan = answer("plan --device h200 --most 1000" + model() + options_of_levers(c.levers, true));
    bool found = false;
    for (const Json& row : plan["rows"]) {
      EXPECT_EQ(row[c.lever], word);
      if (row["micro_batch"] != 4) continue;
      found = true;
      EXPECT_EQ(row["peak_bytes"], peak);
    }
    EXPECT_TRUE(found) << plan;
  }
}

TEST_F(LeverProgram, IsWhatTrainRunsKeepsAndGoesOnFrom) {
  const Device cpu = cpu_device();
  const std::string train = "train --validate 1 --log-every 1 --device cpu --threads 1 --tokens " + at("tokens.bin") + model();
  for (const LeverCase& c : one_of_each()) {
    SCOPED_TRACE(c.lever + " " + c.word);
    const std::string options = options_of_levers(c.levers), folder = " --save " + at(c.lever);
    const std::size_t sampled = 4 * std::size_t(engine::model_of_levers().vocab);
    const Json first = answer(train + options + folder + " --steps 1");
    EXPECT_EQ(first["forecast_peak_bytes"], engine::forecast_peak(engine::step_of_levers(c.levers), cpu, 1) + sampled);
    EXPECT_EQ(first["peak_bytes"], first["forecast_peak_bytes"]);
    EXPECT_EQ(answer(train + options + folder + " --steps 2 --resume")["step"], 2);
    if (c.lever == "keep") continue;                                      // whatever is kept, the bits are the same
    const Json unasked = answer(train + folder + " --steps 3 --resume");  // it goes on with its own levers
    EXPECT_EQ(unasked["step"], 3);
    EXPECT_EQ(unasked["peak_bytes"], first["peak_bytes"]);
    engine::Levers other = c.levers;
    const engine::Levers usual;
    describe(other, [&](auto& member, const Description& d) {
      if (d.name == c.lever)
        describe(usual, [&](const auto& its, const Description& of) {
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(member)>, std::remove_cvref_t<decltype(its)>>)
            if (std::string_view(of.name) == d.name) member = its;
        });
    });
    if (c.lever == "scales") other.scales = engine::usual_scales;
    if (!engine::is_taken(other)) continue;
    if (c.lever == "copies") {  // wherever they are made, the bits are the same
      EXPECT_EQ(answer(train + options_of_levers(other) + folder + " --copies made --steps 3 --resume")["step"], 3);
      continue;
    }
    const Ended e =
        run(train + options_of_levers(other, true) + folder + " --steps 3 --resume --db " + db_);  // unsaid levers are the checkpoint's
    EXPECT_EQ(e.code, 2) << e.err;
    EXPECT_NE(e.err.find("was trained with"), std::string::npos) << e.err;
  }
}

}  // namespace
}  // namespace headroom
