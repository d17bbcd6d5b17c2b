// Blocks of a page that begin with "$ headroom …" and show what the program prints: each line has to be printed, in this order; "…" stands
// for lines that are left out.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct ShownBlock {
  std::string arguments;
  std::vector<std::string> lines;
};

inline std::vector<ShownBlock> blocks_of(const std::string& page, bool forecasts) {
  std::vector<ShownBlock> blocks;
  std::istringstream in(page);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::string_view prompt = "$ headroom ";
    if (line.starts_with("```")) {
      inside = false;
    } else if (line.starts_with(prompt) && line.starts_with("$ headroom forecast") == forecasts) {
      inside = true;
      blocks.push_back({line.substr(prompt.size()), {}});
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  return blocks;
}

inline void holds(const ShownBlock& block, const std::string& out) {
  SCOPED_TRACE(block.arguments);
  std::istringstream in(out);
  std::vector<std::string> printed;
  for (std::string line; std::getline(in, line);) printed.push_back(line);
  auto from = printed.begin();
  for (const std::string& line : block.lines) {
    if (line.empty() || line == "…") continue;
    const auto at = std::find(from, printed.end(), line);
    ASSERT_NE(at, printed.end()) << "the page is stale, or says what is not printed: " << line;
    from = at + 1;
  }
}

}  // namespace headroom
