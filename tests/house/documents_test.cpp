// What the documents say of the tree is so: README's commands are the program's, and links lead somewhere.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const fs::path root = HEADROOM_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const auto from = text.find(begin);
  return from == std::string::npos ? "" : text.substr(from, text.find(end, from) - from);
}

Words first_groups(const std::string& text, const std::regex& what) {
  Words out;
  for (std::sregex_iterator it(text.begin(), text.end(), what), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

Words commands_of_program(const std::string& source) {
  static const std::regex row(R"re(\n *\{"([a-z]+)", ")re");
  return first_groups(between(source, "constexpr Command commands[]", "\n};"), row);
}

Words commands_of_readme(const std::string& text) {
  static const std::regex row(R"(\n\| `([a-z]+)` \|)");
  return first_groups(between(text, "\n| command |", "\n\n"), row);
}

// Targets inside the tree; code is not prose, and a part of a page is not looked for.
Words links_of(const std::string& text) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  Words out;
  std::stringstream lines(text);
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) code = !code;
    if (code) continue;
    for (const auto& target : first_groups(line, link))
      if (target.find("://") == std::string::npos && !target.starts_with("#")) out.push_back(target.substr(0, target.find('#')));
  }
  return out;
}

std::vector<fs::path> documents() {
  std::vector<fs::path> found;
  const auto take = [&](const fs::directory_entry& e) {
    if (e.is_regular_file() && e.path().extension() == ".md") found.push_back(e.path());
  };
  for (const auto& e : fs::directory_iterator(root)) take(e);
  for (const char* room : {"bench", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools"})
    if (fs::is_directory(root / room))
      for (const auto& e : fs::recursive_directory_iterator(root / room)) take(e);
  return found;
}

TEST(Documents, ReadmeListsTheProgramsCommandsInTheirOrder) {
  const Words program = commands_of_program(text_of(root / "src/cli/main.cpp"));
  EXPECT_GE(program.size(), 5u);
  EXPECT_EQ(commands_of_readme(text_of(root / "README.md")), program);
}

TEST(Documents, EveryLinkLeadsSomewhere) {
  std::size_t links = 0;
  for (const auto& document : documents())
    for (const auto& target : links_of(text_of(document))) {
      ++links;
      const bool there = fs::exists(target.starts_with("/") ? root / target.substr(1) : document.parent_path() / target);
      EXPECT_TRUE(there) << document.lexically_relative(root) << " links to " << target;
    }
  EXPECT_GT(links, 5u);
}

TEST(Documents, EveryRecordIsInTheIndexAndCitedByAPage) {
  const std::string index = text_of(root / "bench/results/README.md");
  std::string pages;
  for (const auto& document : documents())
    if (document.parent_path() != root / "bench/results") pages += text_of(document);
  std::size_t records = 0;
  for (const auto& e : fs::directory_iterator(root / "bench/results")) {
    const std::string name = e.path().filename().string();
    if (name == "README.md") continue;
    ++records;
    EXPECT_NE(index.find("`" + name + "`"), std::string::npos) << name << " is not in bench/results/README.md";
    EXPECT_NE(pages.find(name), std::string::npos) << "no page cites " << name;
    EXPECT_LT(fs::file_size(e.path()), 64u << 10) << name << " is large for a record; keep it outside the repository";
  }
  EXPECT_GT(records, 5u);
}

TEST(Documents, ARowOrALinkIsSeen) {
  EXPECT_EQ(commands_of_program("constexpr Command commands[] = {\n    {\"a\", \"does\", a},\n  {\"b\", \"\", b},\n};\n {\"c\", \"\"}"),
            (Words{"a", "b"}));
  EXPECT_EQ(commands_of_readme("\n| command | line |\n|---|---|\n| `a` | does |\n| `b` | |\n\n| `c` | |"), (Words{"a", "b"}));
  EXPECT_EQ(links_of("[a](b.md) [c](https://d) [e](#f), [g](h/i.md#j)\n```cpp\n[](k)\n```\n[l](m)"), (Words{"b.md", "h/i.md", "m"}));
}

}  // namespace
