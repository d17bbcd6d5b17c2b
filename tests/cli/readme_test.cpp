// What README prints of the program is what the program prints: a block that begins with "$ headroom plan …" is run again, in 100 columns, and each
// of its lines has to come, in their order; "…" stands for lines that are left out. A forecast needs PyTorch: its block is not run here.
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Readme : public Program {};

struct Block {
  std::string arguments;
  std::vector<std::string> lines;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  std::istringstream in(page);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::string_view prompt = "$ headroom ";
    if (line.starts_with("```")) {
      inside = false;
    } else if (line.starts_with(prompt) && !line.starts_with("$ headroom forecast")) {
      inside = true;
      blocks.push_back({line.substr(prompt.size()), {}});
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  return blocks;
}

TEST_F(Readme, ShowsWhatTheProgramPrints) {
  setenv("COLUMNS", "100", 1);
  const auto blocks = blocks_of(text_of(fs::path(HEADROOM_SOURCE_DIR) / "README.md"));
  EXPECT_GE(blocks.size(), 1u);
  for (const Block& block : blocks) {
    SCOPED_TRACE(block.arguments);
    std::istringstream out(run(block.arguments).out);
    std::vector<std::string> printed;
    for (std::string line; std::getline(out, line);) printed.push_back(line);
    auto from = printed.begin();
    for (const std::string& line : block.lines) {
      if (line.empty() || line == "…") continue;
      const auto at = std::find(from, printed.end(), line);
      ASSERT_NE(at, printed.end()) << "README is stale, or says what is not printed: " << line;
      from = at + 1;
    }
  }
  unsetenv("COLUMNS");
}

}  // namespace
}  // namespace headroom
