// What shells complete and man shows is what --help says: every command, topic and option; and it runs.
#include <regex>
#include <set>

#include "tests/cli/program.h"

namespace headroom {
namespace {

class Completion : public Program {
 protected:
  std::string words_of(const std::string& shell) const {
    const Ended e = run("completion " + shell);
    EXPECT_EQ(e.code, 0) << e.err;
    return e.out;
  }
  // The names that begin a line of --help, in columns.
  static std::set<std::string> names_in(const std::string& help, const std::string& pattern) {
    std::set<std::string> names;
    std::stringstream lines(help);
    const std::regex name(pattern);
    for (std::string line; std::getline(lines, line);) {
      const std::string first = line.substr(0, line.find(' ', std::min(line.size(), line.find_first_not_of(' '))));
      for (std::sregex_iterator at(first.begin(), first.end(), name), end; at != end; ++at) names.insert(at->str(1));
    }
    return names;
  }
  bool has(const std::string& program) const { return std::system(("command -v " + program + " > /dev/null 2>&1").c_str()) == 0; }
  int shell(const std::string& line) const { return std::system((line + " > " + at("shell.out") + " 2>&1").c_str()); }
};

TEST_F(Completion, KnowsEveryCommandTopicAndOptionOfHelp) {
  const std::string overview = run("--help").out;
  const std::string commands =
      overview.substr(overview.find("Commands:"), overview.find("'headroom <command>") - overview.find("Commands:"));
  std::set<std::string> words = names_in(commands, "^ *([a-z]+)$"), options;
  ASSERT_GE(words.size(), 14u);
  for (const std::string& command : std::set(words)) {
    const std::string help = run(command + " --help").out;
    for (const std::string& option : names_in(help, "(--[a-z][a-z0-9-]*)")) options.insert(option);
    const auto topics_at = help.find("Subcommands:");
    if (topics_at == std::string::npos) continue;
    for (const std::string& topic : names_in(help.substr(topics_at), "^  ([a-z0-9]+)$")) {
      words.insert(topic);
      for (const std::string& option : names_in(run(command + " " + topic + " --help").out, "(--[a-z][a-z0-9-]*)")) options.insert(option);
    }
  }
  ASSERT_GE(options.size(), 70u);
  ASSERT_TRUE(words.contains("accumulate") && options.contains("--recompute"));
  for (const char* shell : {"bash", "zsh", "fish", "man"}) {
    const std::string all = std::regex_replace(words_of(shell), std::regex(R"(\\-)"), "-");  // troff's hyphens
    for (const std::string& word : words) EXPECT_NE(all.find(word), std::string::npos) << shell << " lacks " << word;
    for (const std::string& option : options) {
      const std::string written = shell == std::string("fish") ? " -l " + option.substr(2) + " " : option;
      EXPECT_NE(all.find(written), std::string::npos) << shell << " lacks " << option;
    }
  }
}

TEST_F(Completion, OfBashCompletesCommandsTopicsOptionsAndValues) {
  std::ofstream(at("bash")) << words_of("bash");
  ASSERT_EQ(shell("bash -n " + at("bash")), 0) << text_of(at("shell.out"));
  const auto offered = [&](const std::string& line) {  // the last word is being typed
    std::ofstream(at("ask")) << "source " << at("bash") << "\nCOMP_WORDS=(" << line << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                             << "_headroom\nprintf '%s ' \"${COMPREPLY[@]}\"\n";
    EXPECT_EQ(shell("bash " + at("ask")), 0);
    return text_of(at("shell.out"));
  };
  EXPECT_EQ(offered("headroom tr"), "train ");
  EXPECT_EQ(offered("headroom memory m"), "model ");
  EXPECT_EQ(offered("headroom memory model --mast"), "--masters ");
  EXPECT_EQ(offered("headroom memory model --db x --masters h"), "halves ");
  EXPECT_EQ(offered("headroom memory model --db x --precision fp32,bf"), "fp32,bf16 ");
  EXPECT_EQ(offered("headroom step --keep = inp"), "input ");
  EXPECT_EQ(offered("headroom step --keep gr"), "groups groups: ");
  EXPECT_EQ(offered("headroom plan --model 2"), "2.7B ");
  EXPECT_EQ(offered("headroom plan --device b2"), "b200 ");
  EXPECT_EQ(offered("headroom step --device cu"), "cuda cuda: ") << "measures here";
  EXPECT_EQ(offered("headroom plan --batch 1"), " ") << "any number";
  std::ofstream(at("book.txt")) << "text";
  EXPECT_EQ(offered("headroom train --out " + at("book")), at("book.txt") + " ");
  refused("completion bash --out " + at("x"), 2, "> FILE");
  refused("completion", 2, "say which: bash, zsh, fish, man");
}

TEST_F(Completion, OfOtherShellsAndManIsWellFormed) {
  for (const char* name : {"zsh", "fish", "man"}) std::ofstream(at(name)) << words_of(name);
  for (const char* name : {"zsh", "fish"})
    if (has(name)) { EXPECT_EQ(shell(std::string(name) + " -n " + at(name)), 0) << text_of(at("shell.out")); }
  const std::string man = text_of(at("man"));
  EXPECT_EQ(man.find("\n'"), std::string::npos);
  if (!has("groff")) GTEST_SKIP() << "there is no groff here";
  ASSERT_EQ(shell("groff -man -ww -Tutf8 " + at("man") + " -z"), 0);
  EXPECT_EQ(text_of(at("shell.out")), "") << "groff warns of nothing";
}

}  // namespace
}  // namespace headroom
