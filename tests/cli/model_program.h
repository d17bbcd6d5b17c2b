// The program with a small language model.
#pragma once
#include "tests/cli/program.h"

namespace headroom {

inline const std::string small_model = " --layers 2 --width 64 --heads 2 --vocab 100 --batch 2 ";

class ModelProgram : public Program {
 protected:
  Json answer(const std::string& arguments, int code = 0) const {
    const Ended e = run(arguments + " --format json --db " + db_);
    EXPECT_EQ(e.code, code) << arguments << "\n" << e.err;
    return Json::parse(e.out, nullptr, false);
  }
};

}  // namespace headroom
