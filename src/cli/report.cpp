// headroom report [RUN …] — the charts and tables of what was measured, on one page.
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/options.h"
#include "studies/report/report.h"

namespace headroom::cli {

namespace {

std::vector<studies::ReportRun> runs_named(const std::string& word, const Results* store) {
  if (is_regular_file(word)) return studies::runs_from_file(word);
  const StoredRun run = run_kept(store, run_number(word));
  return {studies::run_from_store(*store, run)};
}

}  // namespace

RunCommand report(CLI::App& app, Common& common) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("RUN", *words, "Numbers of runs, or files that --format json or csv wrote [the newest run of every command]");
  common.machine = Machine::none;
  common.of_kept_runs = true;
  app.footer(
      "Examples:\n  headroom report --out page.html\n  headroom report 3 7 --out page.html\n"
      "  headroom report sweep.json --format md\n\n"
      "With two runs of one command, the page begins with their comparison. --out page.html is one file that needs no network.");
  return [words, &common] {
    const std::string file = common.db.empty() ? default_results_file() : common.db;
    std::optional<Results> store;
    std::error_code ignored;
    if (!common.db.empty() || std::filesystem::exists(file, ignored)) store.emplace(file, Results::Access::read);
    std::vector<studies::ReportRun> runs;
    for (const std::string& word : *words)
      for (studies::ReportRun& run : runs_named(word, store ? &*store : nullptr)) runs.push_back(std::move(run));
    if (words->empty() && store) runs = studies::newest_runs(*store);
    return deliver(studies::report_of(runs, store ? &*store : nullptr), common);
  };
}

}  // namespace headroom::cli
