// Pages of help: their width, their titles, and the words that they list.
#include <regex>
#include <sstream>

#include "base/described_words.h"
#include "base/text.h"
#include "engine/recipe/levers.h"
#include "tests/cli/small_run.h"

namespace headroom {
namespace {

class HelpPages : public SmallRun {};

TEST_F(HelpPages, HelpOfACommandIsItsHelp) {
  EXPECT_EQ(run("help plan").out, run("plan --help").out);
  EXPECT_EQ(run("help memory model").out, run("memory model --help").out);
  EXPECT_EQ(run("help").out, run("--help").out);
  refused("help plann", 2, "did you mean 'plan'");
  refused("help memory modle", 2, "there is no 'modle'; choose from attention, model; did you mean 'model'?");
}

TEST_F(HelpPages, HelpIsGivenBesideWrongValuesToo) {
  const std::string plan = run("plan --help").out, model = run("memory model --help").out;
  for (const char* line : {"plan --batch x --help", "plan --help --batch x", "plan --batch --help", "plan --nosuch -h", "plan '' --help"})
    EXPECT_EQ(run(line).out, plan) << line;
  EXPECT_EQ(run("memory model --batch x --help").out, model);
  EXPECT_EQ(run("memory --device h100 --help model").out, model);
  EXPECT_NE(run("forecast -- sh -c 'exit 0' --help").code, 0) << "behind -- it is another program's";
}

std::vector<std::string> every_command(const std::string& overview) {
  std::vector<std::string> all{""};
  std::istringstream commands(overview.substr(overview.find("Commands:"), overview.find("'headroom help") - overview.find("Commands:")));
  for (std::string line; std::getline(commands, line);)
    if (line.starts_with("  ") && line[2] != ' ') all.push_back(line.substr(2, line.find(' ', 2) - 2));
  for (const char* topic : {"memory model", "memory attention", "profile step", "profile attention", "precision fp8"})
    all.emplace_back(topic);
  EXPECT_GT(all.size(), 18u);
  return all;
}

TEST_F(HelpPages, HelpIsAsNarrowAsTheTerminal) {
  setenv("COLUMNS", "80", 1);
  for (const std::string& command : every_command(run("--help").out)) {
    std::istringstream lines(run(command + " --help").out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80) << command << ": " << line;
  }
  unsetenv("COLUMNS");
}

TEST_F(HelpPages, HelpIsNoWiderThanAHundredColumns) {
  for (const std::string& command : every_command(run("--help").out)) {
    std::istringstream lines(run(command + " --help").out);
    std::string before;
    for (std::string line; std::getline(lines, line); before = line) {
      EXPECT_LE(columns_of(line), 100) << command << ": " << line;
      EXPECT_FALSE(line.empty() && before.empty()) << command << ": two empty lines";
      const bool goes_on =
          !before.empty() && !line.empty() && before[0] != ' ' && line[0] != ' ' && before.find_last_of(".:") + 1 != before.size();
      const auto with_next_word = columns_of(before) + 1 + columns_of(line.substr(0, line.find(' ')));
      EXPECT_TRUE(!goes_on || line.starts_with("Usage:") || with_next_word > 100) << command << ": folded twice: " << before;
    }
  }
  const std::string train = run("train --help").out;
  EXPECT_NE(train.find("A flat file of token numbers; not with --text"), std::string::npos) << train;
  for (const char* title : {"\nData:", "\nModel:", "\nPrecision and memory:", "\nGPUs and processes:", "\nSaving and going on:"})
    EXPECT_NE(train.find(title), std::string::npos) << title;
  const std::string memory =
      train.substr(train.find("\nPrecision and memory:"), train.find("\nGPUs and processes:") - train.find("\nPrecision"));
  engine::Levers levers;
  describe(levers, [&](auto&, const Description& d) { EXPECT_NE(memory.find("  " + first_option_of(d)), std::string::npos) << d.name; });
}

// What is not the command's is behind #: with "(no GPU is needed)" behind it, a shell took the line for a mistake.
TEST_F(HelpPages, AnExampleIsWhatAShellTakes) {
  int examples = 0, remarks = 0;
  for (const char* command :
       {"forecast", "bench", "attention", "memory model", "memory attention", "plan", "step", "profile", "profile step",
        "profile attention", "train", "comm", "precision autocast", "device", "kernels", "results", "compare", "report"}) {
    std::istringstream lines(run(std::string(command) + " --help").out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_FALSE(std::regex_search(line, std::regex(" --[a-z-]+ \\\\$"))) << command << ": an option without its value: " << line;
      remarks += line.starts_with("  ") && line.find("# ") != std::string::npos;
      if (!line.starts_with("  headroom ")) continue;
      ++examples;
      const std::string words = line.substr(2, line.find("  # ") - 2);
      EXPECT_EQ(words.find("  "), std::string::npos) << command << ": " << line;
      EXPECT_EQ(words.find('('), std::string::npos) << command << ": " << line;
    }
  }
  EXPECT_GT(examples, 60);
  EXPECT_GT(remarks, 10);
}

TEST_F(HelpPages, HelpSaysTheWordsThatAreTaken) {
  for (const char* command : {"train", "step", "memory model", "plan"}) {
    const std::string help = run(std::string(command) + " --help").out;
    EXPECT_NE(help.find("--gradients"), std::string::npos) << command;
    EXPECT_EQ(help.find("full is FP32"), std::string::npos) << "the word is whole: " << command;
  }
  EXPECT_NE(run("train --help").out.find("whole: FP32"), std::string::npos);
}

}  // namespace
}  // namespace headroom
