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

// Processes whose environment names the folder.
inline int processes_of(const fs::path& folder) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    count += text.str().find("HEADROOM_DRY_FOLDER=" + folder.string()) != std::string::npos;
  }
  return count;
}

}  // namespace headroom
#endif
