// What README prints of the program is what the program prints: a block that begins with "$ headroom plan …" is run again, in 100 columns, and each
// of its lines has to come, in their order; "…" stands for lines that are left out. A forecast of a PyTorch program needs PyTorch:
// tests/python/forecast_program_test.py runs that block again, and here only its values' and tables' names are held against a forecast.
// What its table of speeds says of a card is what the card's file holds.
#include <map>
#include <regex>

#include "studies/bench/rows.h"
#include "studies/report/run.h"
#include "tests/cli/blocks.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Readme : public Program {};

TEST_F(Readme, ShowsWhatTheProgramPrints) {
  setenv("COLUMNS", "100", 1);
  const auto blocks = blocks_of(text_of(fs::path(HEADROOM_SOURCE_DIR) / "README.md"), false);
  EXPECT_GE(blocks.size(), 1u);
  for (const ShownBlock& block : blocks) holds(block, run(block.arguments).out);
  unsetenv("COLUMNS");
}

#ifdef HEADROOM_LIKE_TORCH
// A name of a value stands before two spaces; a line of a table's names has no digit and no bar.
TEST_F(Readme, AForecastHasTheNamesThatItShows) {
  const auto blocks = blocks_of(text_of(fs::path(HEADROOM_SOURCE_DIR) / "README.md"), true);
  ASSERT_EQ(blocks.size(), 1u);
  const std::string printed = run("forecast --db " + db_ + " --device rtx4090 -- " HEADROOM_LIKE_TORCH " batch=100 steps=3").out;
  const auto words_of = [](const std::string& line) { return std::regex_replace(line, std::regex(" +"), " "); };
  const std::string all = words_of(printed);
  std::size_t names = 0;
  for (const std::string& line : blocks[0].lines) {
    std::smatch m;
    const bool value = std::regex_search(line, m, std::regex("^  ([a-z_]+)  +"));
    const bool title = !line.empty() && !std::regex_search(line, std::regex("[0-9█▏▎▍▌▋▊▉…]")) && line.find("line ") == std::string::npos;
    if ((!value && !title) || m.str(1) == "line" || m.str(1) == "ms") continue;  // this program has no lines and launches nothing
    const std::string name = title ? words_of(line) : "\n " + m.str(1) + " ";
    EXPECT_NE(all.find(name), std::string::npos) << "README is stale: " << line << "\n" << printed;
    ++names;
  }
  EXPECT_GT(names, 8u);
}
#endif

TEST_F(Readme, SpeedsAreThoseOfTheCardsFile) {
  const fs::path source = HEADROOM_SOURCE_DIR;
  const std::string page = text_of(source / "README.md");
  const auto row = [&](const std::string& begins) {
    const auto at = page.find("| " + begins);
    return at == std::string::npos ? std::string() : page.substr(at, page.find('\n', at) - at);
  };
  for (const char* file : {"nvidia_h200_2026-11-29.json", "nvidia_h100_2026-11-24.json"}) {
    EXPECT_NE(page.find(file), std::string::npos);
    const auto run = studies::runs_from_file((source / "bench/cards" / file).string()).at(0);
    for (const std::string pass : {"forward", "backward"}) {
      std::map<std::string, std::string> words;
      for (const auto& b : studies::beside_of("", studies::cells_of(run.rows("attention-" + pass))))
        words[b.peer] = fmt::format("{:.2f} ({:.2f})", b.mean.value(), b.lowest.value());
      const std::string said = words["FlashAttention-3"] + " · " + words["PyTorch's cudnn"];
      const std::string line = row(pass == "forward" ? "[attention]" : "attention backward");
      EXPECT_NE(line.find(said), std::string::npos) << "README is stale: " << said << " in " << line;
    }
    std::map<std::string, double> others;
    for (const auto& b : studies::beside_of("", studies::cells_of(run.rows("attention-others"))))
      if (b.mean) others[b.peer] = *b.mean;  // some are not installed everywhere
    const std::string said = fmt::format("{:.2f} · {:.2f}", others["PyTorch's flex_attention (Triton)"], others["PyTorch's efficient"]);
    EXPECT_NE(row("attention, causal").find(said), std::string::npos) << "README is stale: " << said;
    std::string steps;
    for (const std::string model : {"small", "large", "2.7B"}) {
      std::map<std::string, double> beside_the_fastest;  // of a cell's peers
      for (const auto& c : studies::cells_of(run.rows("step-peers")))
        if (const auto ratio = c.ratio(); ratio && c.cell.find(" " + model + " ") != std::string::npos) {
          double& lowest = beside_the_fastest.emplace(c.cell, *ratio).first->second;
          lowest = std::min(lowest, *ratio);
        }
      double best = 0;
      for (const auto& [cell, ratio] : beside_the_fastest) best = std::max(best, ratio);
      steps += (steps.empty() ? "" : " · ") + (best > 0 ? fmt::format("{:.2f}", best) : "not measured");
    }
    EXPECT_NE(row("[training step]").find(steps), std::string::npos) << "README is stale: " << steps;
  }
}

// A record of bench/peers/llm_c.py: each shape's ms of llm.c over ours, with the engine's usual levers.
TEST_F(Readme, SpeedBesideLlmCIsThatOfItsRecord) {
  const fs::path source = HEADROOM_SOURCE_DIR;
  const std::string page = text_of(source / "README.md"), file = "bench/results/h200_llm_c_2026-11-26.json";
  const auto at = page.find("[llm.c](" + file + ")");
  ASSERT_NE(at, std::string::npos);
  std::map<std::string, double> theirs;
  std::string said;
  for (const Json& row : Json::parse(text_of(source / file))) {
    const std::string shape = row["layers"].dump() + " × " + row["batch"].dump();
    if (row["who"] == "llm.c") theirs[shape] = row["ms"];
    if (row["who"] == "headroom") said += (said.empty() ? "" : " · ") + fmt::format("{:.2f}", theirs.at(shape) / row["ms"].get<double>());
  }
  const std::string line = page.substr(at, page.find('\n', at) - at);
  EXPECT_NE(line.find("| " + said + " |"), std::string::npos) << "README is stale: " << said << " in " << line;
}

}  // namespace
}  // namespace headroom
