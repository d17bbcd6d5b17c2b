// headroom compare A B — two runs, by number or as JSON files, held against each other. Exit 3 when something in B is slower.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "store/row_objects.h"
#include "studies/comparison.h"

namespace headroom::cli {

namespace {

studies::ComparedRun read_run(const std::string& word, const Common& common) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(word, ignored)) {
    std::ifstream in(word);
    std::stringstream text;
    text << in.rdbuf();
    return {word, studies::rows_of_json(text.str(), word)};
  }
  check(!word.empty() && word.find_first_not_of("0123456789") == std::string::npos, Code::bad_argument,
        "'{}' is neither a file nor a run's number; headroom results lists the runs", word);
  const auto id = parse_integer(word, "run");
  const Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::read);
  check(results.run(id).has_value(), Code::bad_argument, "there is no run {} in {}; headroom results lists the runs", id, results.file());
  const auto rows = row_objects(results, id);
  return {"run " + word, {rows.begin(), rows.end()}};
}

}  // namespace

Run compare(CLI::App& app, Common& common) {
  struct Asked {
    std::string a, b;
    double tolerance = 0.02;
  };
  auto asked = std::make_shared<Asked>();
  app.add_option("A", asked->a, "A run's number or a JSON file: what was")->required();
  app.add_option("B", asked->b, "A run's number or a JSON file: what is")->required();
  add_fraction(app, "--tolerance", asked->tolerance, "Differences below this are the same")->default_str("2%");
  app.footer(
      "Verdicts: same, faster, slower, or unclear where the spread reaches across the\n"
      "tolerance or, with fewer than two steps, is not known. Exit 3 when a row is slower.\n"
      "Examples:\n  headroom compare 3 7\n  headroom compare before.json after.json --tolerance 5%");
  return [asked, &common] {
    const auto a = read_run(asked->a, common), b = read_run(asked->b, common);
    const auto result = studies::compare_runs(a, b, asked->tolerance);
    check(result.pairs > 0, Code::bad_argument, "'{}' and '{}' have no problem in common; compare runs of the same settings", asked->a,
          asked->b);
    return deliver(result.record, common, result.slower ? no : yes);
  };
}

}  // namespace headroom::cli
