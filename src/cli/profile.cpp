// headroom profile step|attention|-- COMMAND — where the time of a step, of attention or of any CUDA program goes.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/precision_words.h"
#include "base/text.h"
#include "cli/described_options.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "cli/ranks_options.h"
#include "studies/launch.h"
#include "studies/profile/program.h"
#include "studies/profile/study.h"
#include "studies/report/report.h"
#include "studies/step/step_time.h"

namespace headroom::cli {

namespace {

struct ProfileAsked {
  studies::StepTime step;
  ModelOptions model;
  RanksOptions ranks;
  studies::AttentionSweep attention;
  engine::Purpose phase = engine::Purpose::training;
  std::string trace;
  std::vector<std::string> command;
  std::int64_t steps = 3, warmup = 1;
  bool counters = false, only = false;
};

studies::ProfileOptions options_of(const ProfileAsked& a, const Common& common) {
  studies::ProfileOptions o;
  o.steps = int(a.steps);
  o.warmup = int(a.warmup);
  o.trace = a.trace;
  o.counters = a.counters;
  o.only = a.only;
  o.seed = common.seed;
  o.stop = interrupted;
  return o;
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
  return {"profile", data.title.empty() ? title : data.title,
          std::move(std::get<Record>(report.parts.back().is).parts)};  // the run's own section
}

int show_profile(studies::KeptProfile kept, const std::string& trace, const Common& common) {
  const auto record = [&](bool for_people) { return studies::profile_record(kept.result, for_people); };
  kept.outcome.record = for_format(common.format, record, kept.result.title, kept.result.device.name);
  const int code = show(std::move(kept.outcome), common);
  if (!trace.empty()) say(fmt::format("wrote {}; open it at ui.perfetto.dev", trace));
  return code;
}

int run_step(const ProfileAsked& a, const CLI::App& app, Common& common) {
  studies::StepTime t = a.step;
  t.models = a.model.models();
  t.seed = common.seed;
  check_lengths_said_once(app, !t.documents.empty());
  check(t.warmups.size() == 1, Code::bad_argument, "--warmup: a profile takes one value; {} were given", t.warmups.size());
  const dist::Seat seat = find_seat(a.ranks.asked());
  check_for_ranks(app, seat);
  t.ranks.count = seat.ranks;
  studies::only_step(t, a.phase);  // before ceilings are measured, for seconds
  return as_ranks(seat, app, common, [&](dist::Group* group) {
    const bool first = !group || group->first();
    Device d = chosen_device(common, group);
    if (!names_precision(app)) t.levers.precision = {engine::usual_precision(d)};
    const studies::Host host = quiet_host("profile", common);
    if (first) {
      studies::check_store(host);
      d = with_ceilings(std::move(d), common);
    }
    studies::ProfileOptions o = options_of(a, common);
    o.threads = t.threads;
    o.steps = t.steps;
    o.warmup = int(t.warmups.front());
    o.group = group;
    std::optional<studies::KeptProfile> kept;
    with_progress("profile", common, false, Elsewhere::nothing,
                  [&](const studies::Host& shown) { kept.emplace(profile_step_study(t, a.phase, d, o, shown)); });
    return first ? show_profile(std::move(*kept), a.trace, common) : int(yes);
  });
}

int run_attention(const ProfileAsked& a, const CLI::App& app, const Common& common) {
  check_lengths_said_once(app, !a.attention.documents.empty(), !a.attention.cached.empty());
  Device d = chosen_device(common);
  studies::AttentionSweep sweep = a.attention;
  if (!names_precision(app)) sweep.dtypes = {engine::usual_precision(d)};
  if (!sweep.cached.empty() && app.count("--len") == 0) sweep.lens = {1};
  sweep.seed = common.seed;
  const studies::Host host = quiet_host("profile", common);
  studies::variants_that_serve(sweep, d);  // before ceilings are measured, for seconds
  studies::check_store(host);
  d = with_ceilings(std::move(d), common);
  return show_profile(profile_attention_study(sweep, d, options_of(a, common), host), a.trace, common);
}

// The program's own output goes where it went; ours to standard error, unless --out names a file.
int run_program(const ProfileAsked& a, const Common& common) {
  const studies::ProgramRun run = studies::run_profiled(a.command);
  if (!a.trace.empty()) studies::write_program_trace(a.trace, run);
  const Record record = for_format(
      common.format, [&](bool for_people) { return studies::program_record(run, for_people); }, as_typed_in_a_shell(run.command), "");
  if (const std::string text = common.out.empty() ? render(record, common.format) : ""; !text.empty())
    std::fwrite(text.data(), 1, text.size(), stderr);
  else
    deliver(record, common);
  if (!a.trace.empty()) say(fmt::format("wrote {}; open it at ui.perfetto.dev", a.trace));
  if (const std::string kept = studies::keep_program(run, common.db); !kept.empty()) say(kept);
  return run.exit_code;
}

// Options that take lists elsewhere, and here one.
void say_one(CLI::App& app, std::initializer_list<std::pair<const char*, std::string>> shapes) {
  for (const auto& [option, shape] : shapes) app.get_option(option)->type_name(shape);
}

void add_recording(CLI::App& app, ProfileAsked& a) {
  add_file(app, "--trace", a.trace, "Write a Chrome trace here, for Perfetto; gzipped when it ends in .gz");
  add_flag(app, "--counters", a.counters, "Also read the hardware's counter of tensor-core activity, if permitted");
}

}  // namespace

RunCommand profile(CLI::App& app, Common& common) {
  auto a = std::make_shared<ProfileAsked>();
  a->attention.lens = {1024};
  a->step.steps = int(a->steps);
  a->step.warmups = {a->warmup};
  CLI::App* step = app.add_subcommand("step", "One step of a language model: forward, forward + backward, train")->fallthrough();
  add_model(*step, a->model);
  add_described(*step, a->step, {"phases", "seconds"});
  add_ranks(*step, a->ranks);
  add_value(*step, a->phase, {.name = "phase", .about = "The last phase to profile; the earlier phases are profiled too"});
  add_flag(*step, "--only", a->only, "Profile that phase alone");
  say_one(*step, {{"--len", "N"}, {"--warmup", "N"}});
  describe(engine::Levers{},
           [&]<class T>(const T&, const Description& d) { step->get_option(first_option_of(d))->type_name(shape_of<T>(d, "|")); });
  say_usual_precision(*step);
  step->get_option("--steps")->description("Recorded steps");
  step->get_option("--warmup")->description("Warm-up steps");
  add_recording(*step, *a);
  group_by_subject(*step);
  step->footer(
      "Examples:\n"
      "  headroom profile step --width 256 --layers 4 --heads 4 --trace step.json.gz\n"
      "  headroom profile step --model small --len 128 --batch 1 --out step.html\n"
      "  headroom profile step --device cuda --model small --len 1024 --precision bf16 --counters\n"
      "  headroom profile step --device cpu --ranks 2 --shard optimizer --width 256 --layers 4 --heads 4 --trace ranks.json.gz");
  CLI::App* attention = app.add_subcommand("attention", "One attention problem, every variant; the last one in full")->fallthrough();
  add_described(*attention, a->attention, {"warmup", "steps", "until", "seconds", "deterministic", "memory"});
  add_value(*attention, a->steps, {.name = "steps", .about = "Recorded calls", .allowed = {1, 1 << 20}});
  add_value(*attention, a->warmup, {.name = "warmup", .about = "Warm-up calls", .allowed = {0, 1 << 20}});
  say_one(*attention, {{"--dim", "N"}, {"--len", "N"}, {"--mask", "MASK"}, {"--precision", shape_of<Precision>({}, "|")}});
  say_usual_precision(*attention);
  attention->get_option("--dim")->description("Head dimension");
  attention->get_option("--len")->description("Length of the queries, and of the keys without --len-k");
  attention->get_option("--pass")->description("Recorded passes");
  add_recording(*attention, *a);
  attention->footer(
      "Examples:\n"
      "  headroom profile attention --attention plain --len 1024 --heads 8  # softmax against the matmuls\n"
      "  headroom profile attention --device cuda --attention plain,flash --precision bf16 --dim 128 --len 4096 --mask causal");
  app.require_subcommand(0, 1);
  app.add_option("command", a->command, "After --: any program that uses CUDA, and its arguments")->type_name("-- COMMAND");
  add_file(app, "--trace", a->trace, "Write a Chrome trace here, for Perfetto; gzipped when it ends in .gz");
  app.footer(
      "Examples:\n"
      "  headroom profile step --model small --len 128 --batch 1\n"
      "  headroom profile step --width 256 --layers 4 --heads 4 --trace step.json.gz\n"
      "  headroom profile attention --attention plain --len 1024 --heads 8  # softmax against the matmuls\n"
      "  headroom profile --trace run.json.gz -- python3 train.py  # any CUDA program, unchanged\n\n"
      "A COMMAND keeps its own output and exit code; the tables go to standard error, or to --out.");
  return [a, step, attention, &common] {
    const bool of_ours = step->parsed() || attention->parsed();
    check(!of_ours || a->command.empty(), Code::bad_argument, "'{}' is not the value of any option",
          a->command.empty() ? "" : a->command[0]);
    if (attention->parsed()) return run_attention(*a, *attention, common);
    if (!step->parsed()) {
      check(!a->command.empty(), Code::bad_argument, "give step, attention, or -- and a program (see headroom profile --help)");
      const std::string meant = did_you_mean(a->command[0], {"step", "attention"});  // a mistyped topic, unless a program has that name
      check(meant.empty() || studies::can_be_found(a->command[0]), Code::bad_argument,
            "there is no '{}'; choose from step, attention, or -- and a program{}", a->command[0], meant);
      a->command = studies::as_meant(a->command);
      return run_program(*a, common);
    }
    return run_step(*a, *step, common);
  };
}

}  // namespace headroom::cli
