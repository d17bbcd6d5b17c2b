// headroom step — time forward, backward and optimiser of a language model.
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/threads.h"
#include "cli/step_options.h"
#include "store/results.h"
#include "studies/rows_table.h"

namespace headroom::cli {

void add_holding(CLI::App& app, HoldingAsked& a) {
  add_choice(app, "--masters", a.masters, {"whole", "halves"}, "FP32 weights: beside their bf16 copies, or sharing their bytes");
  add_choice(app, "--gradients", a.gradients, {"whole", "half", "none"},
             "Of the blocks' matrices: FP32; rounded to the precision; or never held: the product updates the weight");
  add_choice(app, "--update", a.updating, {"after", "during"}, "AdamW after backward, or group by group inside it: no clipping");
}

engine::Holding HoldingAsked::settings() const {
  return {masters == "halves" ? engine::Masters::halves : engine::Masters::whole,
          updating == "during" ? engine::Updating::during : engine::Updating::after, engine::gradients_named(gradients)};
}

void add_step(CLI::App& app, StepAsked& a) {
  StepTime& s = a.study;
  add_model(app, a.model);
  add_integer(app, "--batch", s.batch, {1, 1 << 30}, "Sequences");
  add_integers(app, "--len", s.lens, {1, 1 << 30}, "Tokens of a sequence");
  add_choices(app, "--precision", a.precisions, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choice(app, "--keep,--recompute", a.keep, keep_words(), "What a block remembers for backward");
  add_choice(app, "--attention", s.attention, {"flash", "plain"}, "Attention variant");
  add_holding(app, a.holding);
  add_integer(app, "--steps", a.steps, {1, 1 << 20}, "Calls that count");
  add_integers(app, "--warmup", s.warmups, {0, 1 << 20}, "Calls before them; a row for each");
  add_integer(app, "--threads", a.threads, {0, 4096}, "Threads; 0: every core");
  add_bytes(app, "--memory", a.memory, "Pretend to have this much [what is available]");
}

StepTime StepAsked::settings(const Common& common) const {
  StepTime t = study;
  for (const std::string& name : parse_list(model.name, "--model")) {
    ModelOptions one = model;
    one.name = name;
    t.models.push_back(one.config());
  }
  t.precisions = precisions_of(precisions);
  t.keep = *engine::keep_named(keep);
  t.holding = holding.settings();
  t.steps = int(steps);
  t.seed = common.seed;
  return t;
}

namespace {

std::string settings_json(const StepTime& t, const StepAsked& a, int threads) {
  auto models = nlohmann::ordered_json::array();
  for (const auto& m : t.models) models.push_back(nlohmann::ordered_json::parse(engine::to_json(m)));
  return nlohmann::ordered_json{{"models", models},
                                {"batch", t.batch},
                                {"len", t.lens},
                                {"precision", a.precisions},
                                {"keep", a.keep},
                                {"attention", t.attention},
                                {"masters", a.holding.masters},
                                {"updating", a.holding.updating},
                                {"gradients", a.holding.gradients},
                                {"phases", t.phases},
                                {"steps", t.steps},
                                {"seconds", t.seconds},
                                {"warmup", t.warmups},
                                {"threads", threads},
                                {"memory", t.memory_bytes},
                                {"seed", t.seed}}
      .dump();
}

// Every row is in the store as soon as it is there.
Record kept_step_time(StepTime t, const StepAsked& a, const Device& d, int threads, const Common& common) {
  Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::write);
  const auto run = results.start_run("step", settings_json(t, a, threads), d.name);
  t.row_added = [&](const Table& rows) {
    const std::size_t last = rows.rows.size() - 1;
    results.add_row(run, {nlohmann::json{last}.dump(), studies::row_object(rows, last).dump(), "{}"});
  };
  Record record = step_time(t, d, threads, interrupted);
  if (!interrupted()) results.finish_run(run);
  std::fputs(fmt::format("run {} in {}\n", run, results.file()).c_str(), stderr);
  return record;
}

}  // namespace

Run step(CLI::App& app, Common& common) {
  auto a = std::make_shared<StepAsked>();
  add_step(app, *a);
  add_choices(app, "--phase", a->study.phases, {"forward", "forward+backward", "train"}, "What a call does; a row for each");
  add_number(app, "--seconds", a->study.seconds, 0, 1e6, "A row that counts longer than this stops as soon as it has three; 0: never");
  app.footer(
      "Examples:\n  headroom step --width 256 --layers 4 --heads 4 --len 256\n  headroom step --model small --len 128,256 --memory 4\n"
      "  headroom step --device cuda --model small,medium,large,xl,2.7B --len 128,256,512,1024 --precision fp32,bf16 --seconds 1\n"
      "  headroom step --device cuda --model small --len 1024 --precision bf16 --warmup 0,1,2,5");
  return [a, &common] {
    StepTime t = a->settings(common);
    Device d = chosen_device(common);
    if (const auto kept = kept_ceilings(d, common)) {
      if (d.kind == DeviceKind::cuda) d.ceilings = *kept;
      if (d.kind == DeviceKind::cpu && a->threads == 0) t.matmul_flops = kept->fp32_flops;  // it used every core
    }
    t.memory_bytes = a->memory.value_or(d.memory_bytes);
    const int threads = a->threads > 0 ? int(a->threads) : available_cores();
    return deliver(kept_step_time(t, *a, d, threads, common), common, interrupted() ? failed : yes);
  };
}

}  // namespace headroom::cli
