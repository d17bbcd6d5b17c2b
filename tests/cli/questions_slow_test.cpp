// docs/questions.md shows what the program prints. Where a command measures, its numbers are this machine's, and so is which variant is the faster one: there
// the other words are held alone.
#include <regex>

#include "tests/cli/blocks.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Questions : public Program {};

// One line of words: a number is "#", so is who won, bars are "|", and it does not matter where lines end.
std::string without_numbers(const std::string& text) {
  const std::string unranked = std::regex_replace(text, std::regex("[a-z_0-9]+( is fastest at)"), "#$1"),
                    unpaired = std::regex_replace(unranked, std::regex("( as fast as )[a-z_0-9]+"), "$1#");
  const std::string plain = std::regex_replace(unpaired, std::regex("[-0-9][-0-9.e+]*"), "#");
  return std::regex_replace(std::regex_replace(plain, std::regex("(▁|▂|▃|▄|▅|▆|▇|█)+"), "|"), std::regex("[ \n]+"), " ");
}

bool measures(const ShownBlock& block) {
  const std::string command = block.arguments.substr(0, block.arguments.find(' '));
  return command == "attention" || command == "train" || command == "compare";
}

TEST_F(Questions, AreAnsweredAsThePageShows) {
  setenv("COLUMNS", "100", 1);
  const fs::path source = HEADROOM_SOURCE_DIR;
  fs::create_directory_symlink(source / "examples", folder_ / "examples");
  const auto blocks = blocks_of(text_of(source / "docs/questions.md"), false);
  EXPECT_GE(blocks.size(), 12u) << "ten questions, two of them with two commands";
  std::size_t numbers_held = 0;
  for (const ShownBlock& block : blocks) {
    SCOPED_TRACE(block.arguments);
    const Ended e = shell("$H " + block.arguments);
    ASSERT_TRUE(e.code == 0 || e.code == 3) << e.err;
    if (!measures(block)) {
      holds(block, e.out);
      numbers_held += block.lines.size() > 2;
      continue;
    }
    const std::string printed = without_numbers(e.out);
    std::string piece;
    for (const std::string& line : block.lines) {
      if (line != "…" && !line.empty()) {
        piece += line + "\n";
        continue;
      }
      EXPECT_NE(printed.find(without_numbers(piece)), std::string::npos) << "the page is stale: " << piece << "\n" << e.out;
      piece.clear();
    }
    EXPECT_TRUE(piece.empty()) << "a block of measured numbers ends with …";
  }
  EXPECT_GE(numbers_held, 7u);
  EXPECT_EQ(text_of(folder_ / "losses.html").substr(0, 15), "<!doctype html>");
  unsetenv("COLUMNS");
}

// Each published peak in docs/memory-as-pytorch-checks.md has a whole command, and what the table says is what the command says.
TEST_F(Questions, PublishedPeaksHaveTheirCommands) {
  const std::string page = text_of(fs::path(HEADROOM_SOURCE_DIR) / "docs/memory-as-pytorch-checks.md");
  const std::regex row(
      R"(\| [^|\n]+ \| ([0-9.]+) \| ([0-9.]+) \| ([-+][0-9.]+) % \| [0-9.]+ \| `headroom (memory model --as pytorch [^`]+)`(.*) \|)");
  std::size_t rows = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at, ++rows) {
    const std::string command = (*at)[4];
    const bool reserved = at->str(5).find("reserved bytes") != std::string::npos;
    const Ended e = run(command + " --format json");
    ASSERT_TRUE(e.code == 0 || e.code == 3) << e.err;
    const double gib = Json::parse(e.out)["rows"][0][reserved ? "reserved_bytes" : "train_peak_bytes"].get<double>() / double(1 << 30);
    EXPECT_NEAR(gib, std::stod((*at)[2]), 0.051) << command;
    EXPECT_NEAR(100 * (gib / std::stod((*at)[1]) - 1), std::stod((*at)[3]), 0.06) << command;
  }
  EXPECT_EQ(rows, 12u);
}

}  // namespace
}  // namespace headroom
