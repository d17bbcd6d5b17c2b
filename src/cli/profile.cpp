// headroom profile step|attention|-- COMMAND — where the time of a step, of attention or of any CUDA program goes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/attention_options.h"
#include "cli/step_options.h"
#include "store/results.h"
#include "studies/profile.h"
#include "studies/profile_program.h"
#include "studies/report/report.h"

namespace headroom::cli {

namespace {

struct ProfileAsked {
  StepAsked step;
  AttentionAsked attention;
  std::string phase = "train", trace;
  std::vector<std::string> command;
  std::int64_t steps = 3, warmup = 1;
  bool counters = false;
};

template <class T>
const T& only(const std::vector<T>& list, const char* option) {
  check(list.size() == 1, Code::bad_argument, "{}: a profile is of one at a time, {} were given", option, list.size());
  return list.front();
}

studies::ProfileOptions options_of(const ProfileAsked& a, const Common& common) {
  studies::ProfileOptions o;
  o.steps = int(a.steps), o.warmup = int(a.warmup), o.trace = a.trace, o.counters = a.counters;
  o.seed = common.seed, o.stop = interrupted;
  return o;
}

// Last of the preparations: where nobody kept them they are measured, for seconds.
Device with_ceilings(Device d, const Common& common) {
  if (auto kept = kept_ceilings(d, common))
    d.ceilings = *kept;
  else if (d.ceilings.copy_bytes_per_s <= 0)  // not a card that is known by name
    d.ceilings = ceilings_here(d, common);
  return d;
}

// A row for each line of the short tables; a long table is one row, its lines in the detail.
void keep(const studies::ProfileResult& result, const std::string& what, const nlohmann::ordered_json& settings, const Device& device,
          const Common& common) {
  Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::write);
  const auto run = results.start_run("profile", settings.dump(), device.name);
  const auto record = nlohmann::ordered_json::parse(render_json(studies::profile_record(result, false)));
  const auto add = [&](const nlohmann::ordered_json& row, const nlohmann::ordered_json& detail) {
    results.add_row(run, {nlohmann::json{row.value("table", ""), results.rows(run).size()}.dump(), row.dump(), detail.dump()});
  };
  nlohmann::ordered_json whole{{"table", "step"}, {"what", what}};
  for (const auto& [name, value] : record.items())
    if (!value.is_structured()) whole[name] = value;
  add(whole, nlohmann::ordered_json::object());
  for (const auto& [name, rows] : record.items()) {
    if (!rows.is_array() || name == "notes") continue;
    if (name == "timeline" || name == "memory" || name == "at_peak" || name == "gaps") {
      add({{"table", name}, {"rows", rows.size()}}, {{"rows", rows}});
      continue;
    }
    for (const auto& line : rows) {
      nlohmann::ordered_json row{{"table", name}};
      row.update(line);
      add(row, nlohmann::ordered_json::object());
    }
  }
  if (!interrupted()) results.finish_run(run);
  std::fputs(fmt::format("run {} in {}\n", run, results.file()).c_str(), stderr);
}

// A page is the report of this one run: charts beside the tables.
Record for_format(Format format, const std::function<Record(bool for_people)>& record, const std::string& title,
                  const std::string& machine) {
  if (format != Format::html) return record(format == Format::text || format == Format::markdown);
  Record data = record(false);
  if (std::none_of(data.parts.begin(), data.parts.end(), [](const Part& p) { return std::holds_alternative<Table>(p.is); })) return data;
  studies::ReportRun run = studies::run_from_text(render_json(data), "profile");
  run.machine = machine;
  Record report = studies::report_of({run}, nullptr);
  return {"profile", title, std::move(std::get<Record>(report.parts.back().is).parts)};  // the run's own section
}

int show(const studies::ProfileResult& result, const std::string& trace, const Common& common) {
  const auto record = [&](bool for_people) { return studies::profile_record(result, for_people); };
  const int code = deliver(for_format(common.format, record, result.title, result.device.name), common, interrupted() ? failed : yes);
  if (!trace.empty()) std::fputs(fmt::format("wrote {}; open it at ui.perfetto.dev\n", trace).c_str(), stderr);
  return code;
}

int run_step(const ProfileAsked& a, const Common& common) {
  const StepTime t = a.step.settings(common);
  studies::ProfileStep s;
  const engine::ModelConfig& model = only(t.models, "--model");
  s.recipe = {model, t.batch, only(t.lens, "--len"), only(t.precisions, "--precision"), {t.keep}, t.attention};
  s.recipe.purpose = a.phase == "forward"            ? engine::Purpose::forward
                     : a.phase == "forward+backward" ? engine::Purpose::gradients
                                                     : engine::Purpose::training;
  s.recipe.holding = t.holding;
  const Device d = with_ceilings(chosen_device(common), common);
  s.memory_bytes = a.step.memory.value_or(d.memory_bytes);
  studies::ProfileOptions o = options_of(a, common);
  o.threads = int(a.step.threads);
  const auto result = studies::profile_step(s, d, o);
  keep(result, "step",
       {{"what", "step"},
        {"model", model.name},
        {"batch", t.batch},
        {"len", t.lens[0]},
        {"precision", name_of(t.precisions[0])},
        {"keep", a.step.keep},
        {"attention", t.attention},
        {"masters", a.step.holding.masters},
        {"gradients", a.step.holding.gradients},
        {"updating", a.step.holding.updating},
        {"phase", a.phase},
        {"steps", a.steps},
        {"warmup", a.warmup}},
       d, common);
  return show(result, a.trace, common);
}

// Those that serve the problem; who was asked for by name and does not is an error, before the first is run.
std::vector<std::string> who_serves(const studies::AttentionSweep& sweep, const Device& device) {
  const bool all = std::find(sweep.variants.begin(), sweep.variants.end(), "all") != sweep.variants.end();
  std::vector<std::string> names, refusals;
  for (const studies::AttentionCase& c : studies::cases_of(sweep, device)) {
    check(c.too_large.empty(), Code::bad_argument, "{}", c.too_large);
    if (c.variant) names.emplace_back(c.variant->name);
    if (!c.variant) refusals.push_back(fmt::format("{} does not serve {}: {}", c.wanted, studies::describe(c.problem), c.refusal));
  }
  check(refusals.empty() || (all && !names.empty()), Code::unsupported, "{}", joined(refusals, "; "));
  return names;
}

int run_attention(const ProfileAsked& a, const Common& common) {
  const auto sweep = a.attention.settings();
  Device d = chosen_device(common);
  studies::ProfileAttention p;
  p.problem =
      sweep.problem(only(sweep.dtypes, "--dtype"), only(sweep.masks, "--mask"), only(sweep.dims, "--dim"), only(sweep.lens, "--len"));
  p.variants = who_serves(sweep, d), p.passes = sweep.passes;
  d = with_ceilings(std::move(d), common);
  const auto result = studies::profile_attention(p, d, options_of(a, common));
  keep(result, "attention",
       {{"what", "attention"},
        {"variant", sweep.variants},
        {"dtype", a.attention.dtypes[0]},
        {"batch", sweep.batch},
        {"heads", sweep.heads},
        {"dim", sweep.dims[0]},
        {"len", sweep.lens[0]},
        {"mask", a.attention.masks[0]},
        {"pass", a.attention.pass},
        {"steps", a.steps},
        {"warmup", a.warmup}},
       d, common);
  return show(result, a.trace, common);
}

// The program's own output goes where it went; ours to standard error, unless --out names a file.
int run_program(const ProfileAsked& a, const Common& common) {
  const studies::ProgramRun run = studies::run_profiled(a.command);
  if (!a.trace.empty()) studies::write_program_trace(a.trace, run);
  const Record record = for_format(
      common.format, [&](bool for_people) { return studies::program_record(run, for_people); }, joined(run.command, " "), "");
  if (common.out.empty())
    std::fputs(render(record, common.format).c_str(), stderr);
  else
    deliver(record, common);
  if (!a.trace.empty()) std::fputs(fmt::format("wrote {}; open it at ui.perfetto.dev\n", a.trace).c_str(), stderr);
  return run.exit_code;
}

// Options that take lists elsewhere, and here one.
void say_one(CLI::App& app, std::initializer_list<std::pair<const char*, const char*>> shapes) {
  for (const auto& [option, shape] : shapes) app.get_option(option)->type_name(shape);
}

void add_recording(CLI::App& app, ProfileAsked& a) {
  add_file(app, "--trace", a.trace, "Write a Chrome trace here, for Perfetto; gzipped when it ends in .gz");
  add_flag(app, "--counters", a.counters, "Also the hardware's own count of tensor-core activity, where it permits that");
}

}  // namespace

Run profile(CLI::App& app, Common& common) {
  auto a = std::make_shared<ProfileAsked>();
  a->attention.sweep.lens = {1024};
  a->step.steps = a->steps, a->step.study.warmups = {a->warmup};
  CLI::App* step = app.add_subcommand("step", "One step of a language model: forward, forward + backward, train")->fallthrough();
  add_step(*step, a->step);
  add_choice(*step, "--phase", a->phase, {"forward", "forward+backward", "train"}, "The largest that is profiled; those before it are too");
  say_one(*step, {{"--len", "N"}, {"--warmup", "N"}, {"--precision", "fp32|tf32|bf16|fp16"}});
  step->get_option("--steps")->description("Steps that are recorded");
  step->get_option("--warmup")->description("Steps before them");
  add_recording(*step, *a);
  step->footer(
      "Examples:\n"
      "  headroom profile step --width 256 --layers 4 --heads 4 --trace step.json.gz\n"
      "  headroom profile step --model small --len 128 --batch 1 --out step.html\n"
      "  headroom profile step --device cuda --model small --len 1024 --precision bf16 --counters");
  CLI::App* attention = app.add_subcommand("attention", "One attention problem, variant beside variant; the last in full")->fallthrough();
  add_attention(*attention, a->attention);
  add_integer(*attention, "--steps", a->steps, {1, 1 << 20}, "Calls that are recorded");
  add_integer(*attention, "--warmup", a->warmup, {0, 1 << 20}, "Calls before them");
  say_one(*attention, {{"--dim", "N"}, {"--len", "N"}, {"--mask", "MASK"}, {"--dtype", "fp32|tf32|bf16|fp16|fp8"}});
  attention->get_option("--dim")->description("Head dimension");
  attention->get_option("--len")->description("Length of the queries, and of the keys unless --len-k says otherwise");
  attention->get_option("--pass")->description("What is recorded");
  add_recording(*attention, *a);
  attention->footer(
      "Examples:\n"
      "  headroom profile attention --variant plain --len 1024 --heads 8         (softmax against the matmuls)\n"
      "  headroom profile attention --device cuda --variant plain,flash --dtype bf16 --dim 128 --len 4096 --mask causal");
  app.require_subcommand(0, 1);
  app.add_option("command", a->command, "After --: any program that uses CUDA, and its arguments")->type_name("-- COMMAND");
  add_file(app, "--trace", a->trace, "Write a Chrome trace here, for Perfetto; gzipped when it ends in .gz");
  app.footer(
      "Examples:\n"
      "  headroom profile step --model small --len 128 --batch 1\n"
      "  headroom profile step --width 256 --layers 4 --heads 4 --trace step.json.gz\n"
      "  headroom profile attention --variant plain --len 1024 --heads 8         (softmax against the matmuls)\n"
      "  headroom profile --trace run.json.gz -- python3 train.py                (any CUDA program, unchanged)\n\n"
      "A COMMAND keeps its own output and exit code; the tables go to standard error, or to --out.");
  return [a, step, attention, &common] {
    const bool of_ours = step->parsed() || attention->parsed();
    check(!of_ours || a->command.empty(), Code::bad_argument, "'{}' belongs to no option", a->command.empty() ? "" : a->command[0]);
    if (attention->parsed()) return run_attention(*a, common);
    if (!step->parsed()) {
      check(!a->command.empty(), Code::bad_argument, "say what: step, attention, or -- and a program (see headroom profile --help)");
      return run_program(*a, common);
    }
    a->steps = a->step.steps, a->warmup = only(a->step.study.warmups, "--warmup");
    return run_step(*a, common);
  };
}

}  // namespace headroom::cli
