// What tests of the command line need to be quick: a store with a run of one row, a text, and the line of a tiny training of it.
#pragma once
#include "tests/cli/program.h"

namespace headroom {

class SmallRun : public Program {
 protected:
  void keep_a_run(const std::string& row = R"({"variant": "flash", "fwd_ms": 1.5, "status": "ok"})",
                  const std::string& machine = "m") const {
    Results r(db_, Results::Access::write);
    const auto run = r.start_run("attention", R"({"len": [16]})", machine);
    r.add_row(run, {"k1", row, "{}"});
    r.finish_run(run);
  }
  void put_text(std::size_t bytes = 4000) const { put("text.txt", std::string(bytes / 2, 'a') + std::string(bytes / 2, 'b')); }
  static constexpr const char* train = "$H train --device cpu --text text.txt --layers 1 --width 32 --heads 2 --len 32 --batch 2 ";
};

}  // namespace headroom
