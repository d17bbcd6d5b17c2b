// headroom compare A B — compares two runs, by number or as files. Exit 3 when something in B is slower.
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/described_options.h"
#include "cli/options.h"
#include "studies/report/report.h"
#include "studies/results/kernels.h"
#include "studies/results/step_ops.h"

namespace headroom::cli {

namespace {

// Other runs of the same settings on the same machine by the same version: before B for A, after A for B, so that neither stands for the other.
void add_again(studies::ComparedRun& run, const Results& results, std::int64_t id, const std::function<bool(std::int64_t)>& on_its_side) {
  constexpr std::size_t most = 32;
  const auto own = results.run(id);
  for (const StoredRun& other : results.runs()) {
    const bool again = own && other.id != id && on_its_side(other.id) && other.command == own->command && other.settings == own->settings &&
                       other.machine == own->machine && other.version == own->version && !other.finished.empty();
    if (!again || run.again.size() == most) continue;
    try {
      run.again.push_back(studies::compared(studies::run_from_store(results, other)).rows);
    } catch (const Error&) {  // a damaged one says nothing of the others
    }
  }
}

studies::ComparedRun read_run(const std::string& word, const Common& common) {
  if (is_regular_file(word)) {
    const auto runs = studies::runs_from_text(read_file(word, "compare", most_json_bytes), word);
    check(runs.size() == 1, Code::bad_argument, "'{}' has {} runs; a comparison needs one run per file", word, runs.size());
    return studies::compared(runs.front());
  }
  const auto id = run_number(word);
  const Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::read);
  return studies::compared(studies::run_from_store(results, run_kept(&results, id)));
}

// The forecast and the profile of a step of ours, or of a program, as files: how long each op or kernel was forecast to take, and took.
struct ForecastBesideProfile {
  std::optional<studies::OpsJoined> ops;
  std::optional<studies::KernelsJoined> kernels;
};
ForecastBesideProfile forecast_beside_profile(const std::string& a, const std::string& b) {
  if (!is_regular_file(a) || !is_regular_file(b)) return {};
  const auto parsed = [](const std::string& file) { return parse_json_or_discard<RowObject>(read_file(file, "compare", most_json_bytes)); };
  const RowObject of_a = parsed(a), of_b = parsed(b);
  if (auto ops = studies::joined_ops(of_a, of_b)) return {std::move(ops), {}};
  const auto files = studies::kernels_of(of_a, of_b);
  if (!files) return {};
  return {{}, studies::joined_kernels(files->forecast, files->ran)};
}

}  // namespace

RunCommand compare(CLI::App& app, Common& common) {
  struct Asked {
    std::string a, b;
    double tolerance = 0.02;
  };
  auto asked = std::make_shared<Asked>();
  app.add_option("A", asked->a, "The earlier run: its number, or a file that --format json or csv wrote")->required();
  app.add_option("B", asked->b, "The later run, in the same form")->required();
  add_value(app, asked->tolerance, {.name = "tolerance", .unit = Unit::share, .about = "Differences below this are the same"});
  common.machine = Machine::none;
  common.of_kept_runs = true;
  app.footer(
      "Examples:\n  headroom compare 3 7\n  headroom compare before.json after.json --tolerance 5%\n\n"
      "Each time gets a verdict: same, faster, slower, or unclear. It is unclear when the spread reaches across "
      "the tolerance, or when there were fewer than two steps. The spread is that between runs where the store "
      "has several of the same settings, else that of steps within a run. Two forecasts are compared by their expected times, and "
      "shown with their intervals. Other changes are listed: missing rows, lost values, "
      "another status, more bytes, errors more than four times as large. For two trainings one chart shows both "
      "losses, and their distance at the steps that both kept. A file of forecast -- CMD and one of profile -- CMD, both with "
      "--format json, are compared kernel by kernel, the largest difference first; one of memory model and one of profile step, op "
      "by op.\n"
      "Exit codes: 0 nothing is slower and no change is listed; 3 otherwise.");
  return [asked, &common] {
    const auto off = [&](const auto& joined) {
      return joined.ms > 0 && std::abs(joined.forecast_ms / joined.ms - 1) <= asked->tolerance ? yes : no;
    };
    const ForecastBesideProfile beside = forecast_beside_profile(asked->a, asked->b);
    if (beside.ops) return deliver(studies::ops_record(*beside.ops), common, off(*beside.ops));
    auto a = read_run(asked->a, common), b = read_run(asked->b, common);
    if (!is_regular_file(asked->a) && !is_regular_file(asked->b)) {
      const Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::read);
      const std::int64_t id_a = run_number(asked->a), id_b = run_number(asked->b);
      add_again(a, results, id_a, [&](std::int64_t id) { return id_a < id_b ? id < id_b : id > id_b; });
      add_again(b, results, id_b, [&](std::int64_t id) { return id_a < id_b ? id > id_a : id < id_a; });
    }
    check(studies::of_one_kind(a.command, b.command), Code::bad_argument,
          "{} is of headroom {} and {} of headroom {}, which have nothing to compare; headroom results lists the runs", a.name,
          studies::kind_of(a.command), b.name, studies::kind_of(b.command));
    const auto result = studies::compare_runs(a, b, asked->tolerance);
    if (const auto& kernels = beside.kernels) {
      Record record = studies::kernels_record(*kernels);
      if (result.pairs > 0) record.add(Part{studies::comparison_record(result, a.name, b.name, asked->tolerance)});
      return deliver(record, common, off(*kernels));
    }
    check(result.pairs > 0, Code::bad_argument, "'{}' and '{}' have no problem in common; compare runs of the same settings", asked->a,
          asked->b);
    Record record = studies::comparison_record(result, a.name, b.name, asked->tolerance);
    studies::add_loss_curves(a, b, record);
    return deliver(record, common, result.differs() ? no : yes);
  };
}

}  // namespace headroom::cli
