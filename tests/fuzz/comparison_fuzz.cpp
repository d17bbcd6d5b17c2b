// A file of rows to compare: held against itself every row finds a partner and nothing is slower, or one line says what is wrong.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "report/render.h"
#include "studies/report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  try {
    const auto run = studies::compared(studies::run_from_text({reinterpret_cast<const char*>(data), size}, "fuzzed"));
    const auto c = studies::compare_runs(run, run, 0.02);
    if (c.pairs != run.rows.size() || c.differs()) std::abort();
    for (const Format f : {Format::text, Format::json, Format::csv}) render(studies::comparison_record(c, "a", "b", 0.02), f);
  } catch (const Error& e) {
    if (e.at.code != Code::bad_argument || !*e.what()) std::abort();
  }
  return 0;
}
