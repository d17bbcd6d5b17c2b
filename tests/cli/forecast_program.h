// headroom forecast of tests/cli/programs/like_torch.cpp, which calls what PyTorch's allocator calls.
#pragma once
#include "tests/cli/program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {

inline constexpr std::int64_t mib = 1 << 20, gib = 1 << 30;

class Forecast : public Program {
 protected:
  std::string line(const std::string& options, const std::string& program) const {
    return "forecast --db " + db_ + " " + options + " -- " HEADROOM_LIKE_TORCH " " + program;
  }
  Json json(const std::string& options, const std::string& program, int code) const {
    const Ended e = run(line("--format json " + options, program));
    EXPECT_EQ(e.code, code) << e.err;
    return e.out.empty() ? Json() : Json::parse(e.out);
  }
};

}  // namespace headroom
#endif
