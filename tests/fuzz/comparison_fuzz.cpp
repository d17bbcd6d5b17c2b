// A file of rows: held against itself every row finds a partner and nothing is slower, and its report can be printed; or one line says what is wrong.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "report/render.h"
#include "studies/report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  try {
    const studies::ReportRun file = studies::run_from_text({reinterpret_cast<const char*>(data), size}, "fuzzed");
    const auto run = studies::compared(file);
    const auto c = studies::compare_runs(run, run, 0.02);
    if (c.pairs != run.rows.size() || c.differs()) std::abort();
    for (const Format f : {Format::text, Format::json, Format::csv}) render(studies::comparison_record(c, "a", "b", 0.02), f);
    for (const Format f : {Format::text, Format::markdown, Format::csv, Format::html}) render(studies::report_of({file}, nullptr), f);
  } catch (const Error& e) {
    if (e.at.code != Code::bad_argument || !*e.what()) std::abort();
  }
  return 0;
}
