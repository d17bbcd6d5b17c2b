// What the documents say of the tree is so: the page of commands lists the program's, links lead to pages and sections that
// are there and from README to every page, records are cited, and the tour names every folder. Prose keeps its columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
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

Words commands_of_page(const std::string& text) {
  static const std::regex row(R"(\n\| `([a-z]+)` \|)");
  return first_groups(between(text, "\n| command |", "\n\n"), row);
}

// Code is not prose.
Words lines_of_prose(const std::string& text) {
  Words out;
  std::stringstream lines(text);
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) code = !code;
    if (!code) out.push_back(line);
  }
  return out;
}

struct Link {
  std::string file, section;  // either may be empty
  bool operator==(const Link&) const = default;
};

std::vector<Link> links_of(const std::string& text) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::vector<Link> out;
  for (const std::string& line : lines_of_prose(text))
    for (const auto& target : first_groups(line, link))
      if (target.find("://") == std::string::npos) {
        const auto at = std::min(target.find('#'), target.size());
        out.push_back({target.substr(0, at), target.substr(std::min(at + 1, target.size()))});
      }
  return out;
}

// The names by which a link reaches the sections of a page: lower case, blanks as hyphens, letters, digits, '_' and '-' alone.
Words sections_of(const std::string& text) {
  static const std::regex head("#+ (.*)"), link(R"(\[([^\]]*)\]\([^)]*\))");
  Words out;
  for (const std::string& line : lines_of_prose(text)) {
    std::smatch found;
    if (!std::regex_match(line, found, head)) continue;
    std::string name;
    for (const char c : std::regex_replace(found[1].str(), link, "$1")) {
      if (c == ' ') name += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') name += char(std::tolower(static_cast<unsigned char>(c)));
    }
    out.push_back(name);
  }
  return out;
}

constexpr std::size_t columns = 160;

// Numbers of the lines that are wider. Code and tables have their own width.
std::vector<std::size_t> wide_lines(const std::string& text) {
  std::vector<std::size_t> wide;
  std::stringstream lines(text);
  bool code = false;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) code = !code;
    const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    if (!code && !line.starts_with("|") && std::size_t(width) > columns) wide.push_back(number);
  }
  return wide;
}

// Folders below the rooms, but for each op's own: "src/ops/<op>" stands for those.
Words folders_of_rooms() {
  Words folders;
  for (const auto& e : fs::recursive_directory_iterator(root / "src")) {
    const fs::path folder = e.path().lexically_relative(root);
    const auto depth = std::distance(folder.begin(), folder.end());
    const bool python_made_it = folder.filename() == "__pycache__";
    if (e.is_directory() && !python_made_it && depth > 2 && (depth > 3 || folder.parent_path() != "src/ops"))
      folders.push_back(folder.generic_string());
  }
  return folders;
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

TEST(Documents, ThePageOfCommandsListsTheProgramsInTheirOrder) {
  const Words program = commands_of_program(text_of(root / "src/cli/main.cpp"));
  EXPECT_GE(program.size(), 5u);
  EXPECT_EQ(commands_of_page(text_of(root / "docs/commands.md")), program);
}

fs::path target_of(const fs::path& document, const Link& link) {
  if (link.file.empty()) return document;
  const fs::path target = (link.file.starts_with("/") ? root / link.file.substr(1) : document.parent_path() / link.file).lexically_normal();
  return fs::exists(target / "README.md") ? (target / "README.md").lexically_normal() : target;  // a folder shows its own page
}

TEST(Documents, EveryLinkLeadsSomewhere) {
  std::size_t links = 0;
  std::map<fs::path, Words> sections;
  for (const auto& document : documents())
    for (const Link& link : links_of(text_of(document))) {
      ++links;
      const fs::path target = target_of(document, link);
      ASSERT_TRUE(fs::exists(target)) << document.lexically_relative(root) << " links to " << link.file;
      if (link.section.empty() || target.extension() != ".md") continue;
      if (!sections.count(target)) sections[target] = sections_of(text_of(target));
      const Words& there = sections[target];
      EXPECT_NE(std::find(there.begin(), there.end(), link.section), there.end())
          << document.lexically_relative(root) << " links to a section that is not there: " << link.file << "#" << link.section;
    }
  EXPECT_GT(links, 100u);
}

TEST(Documents, LinksLeadFromTheReadmeToEveryPage) {
  std::set<fs::path> reached{root / "README.md"};
  std::vector<fs::path> next(reached.begin(), reached.end());
  while (!next.empty()) {
    const fs::path page = next.back();
    next.pop_back();
    for (const Link& link : links_of(text_of(page)))
      if (const fs::path target = target_of(page, link); target.extension() == ".md" && reached.insert(target).second)
        next.push_back(target);
  }
  for (const auto& document : documents())
    if (document.lexically_relative(root).begin()->string() == "docs" || document.lexically_relative(root).begin()->string() == "bench") {
      EXPECT_TRUE(reached.count(document)) << "no page that README leads to links to " << document.lexically_relative(root);
    }
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

TEST(Documents, ProseKeepsItsColumns) {
  for (const auto& document : documents())
    if (document.parent_path() != root / "bench/results")  // a record is kept as it was written
      for (const std::size_t line : wide_lines(text_of(document)))
        ADD_FAILURE() << document.lexically_relative(root) << ":" << line << " is wider than " << columns << " columns";
  const std::string wide(columns + 1, 'x'), just(columns - 1, 'x');
  EXPECT_EQ(wide_lines("a\n" + wide + "\n|" + wide + "\n```\n" + wide + "\n```\n" + just + "\u00e9\n" + wide),
            (std::vector<std::size_t>{2, 8}));
}

// A change of links must not take a lambda's brackets for one.
TEST(Documents, CodeHasNoLinks) {
  for (const fs::path& page : documents()) {
    std::stringstream lines(text_of(page));
    bool code = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("```")) code = !code;
      EXPECT_FALSE(code && line.find("](../") != std::string::npos) << page.lexically_relative(root) << ": " << line;
    }
  }
}

TEST(Documents, TheTourNamesEveryFolderThatThereIs) {
  const std::string tour = text_of(root / "docs/tour.md");
  const Words folders = folders_of_rooms();
  EXPECT_GT(folders.size(), 15u);
  for (const std::string& folder : folders) EXPECT_NE(tour.find("`" + folder + "`"), std::string::npos) << "docs/tour.md omits " << folder;
  static const std::regex named(R"(`((?:src|tests|include|python|docs|tools|cmake)/[A-Za-z0-9_./-]*)`)");
  for (const std::string& path : first_groups(tour, named)) EXPECT_TRUE(fs::exists(root / path)) << "docs/tour.md names " << path;
}

// Files of src/ that a text names: "src/gpu/place.h", also behind "../", but not "csrc/…" or "their/src/…".
Words sources_named(const std::string& text) {
  const auto in_path = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '/' || c == '.'; };
  Words out;
  for (auto at = text.find("src/"); at != std::string::npos; at = text.find("src/", at + 1)) {
    if (at > 0 && in_path(text[at - 1]) && !(at >= 3 && text.compare(at - 3, 3, "../") == 0)) continue;
    std::string path(text.begin() + std::ptrdiff_t(at), std::find_if_not(text.begin() + std::ptrdiff_t(at), text.end(), in_path));
    if (path.ends_with('.')) path.pop_back();  // a sentence's
    const std::string ending = fs::path(path).extension().string();
    for (const char* source : {".h", ".cpp", ".cu", ".cuh", ".py", ".js", ".json", ".css"})
      if (ending == source) out.push_back(path);
  }
  return out;
}

TEST(Documents, EverySourceThatATextNamesIsThere) {
  std::size_t named = 0;
  for (const char* room : {"bench", "docs", "examples", "include", "python", "src", "tools", "README.md", "CONTRIBUTING.md"}) {
    std::vector<fs::path> texts;
    if (fs::is_regular_file(root / room)) texts.push_back(root / room);
    if (fs::is_directory(root / room))
      for (const auto& e : fs::recursive_directory_iterator(root / room))
        for (const char* ending : {".md", ".py", ".h", ".hpp", ".cpp", ".cu", ".cuh", ".sh"})
          if (e.is_regular_file() && e.path().extension() == ending) texts.push_back(e.path());
    for (const fs::path& text : texts)
      for (const std::string& source : sources_named(text_of(text))) {
        ++named;
        EXPECT_TRUE(fs::exists(root / source)) << text.lexically_relative(root) << " names " << source;
      }
  }
  EXPECT_GT(named, 50u);
  EXPECT_EQ(sources_named("(src/a/b.h), `../src/c.cpp`. csrc/d.h their/src/e.h src/f src/g.py."),
            (Words{"src/a/b.h", "src/c.cpp", "src/g.py"}));
}

TEST(Documents, TheWheelHasTheLicenceOfEveryLibraryInIt) {
  const std::string licences = text_of(root / "python/LICENSES.txt");
  const std::map<std::string, std::string> title{{"fmt", "fmt"},           {"nlohmann_json", "JSON for Modern C++"},
                                                 {"SQLite3", "SQLite"},    {"ZLIB", "zlib"},
                                                 {"CLI11", "CLI11"},       {"HWY", "Highway"},
                                                 {"OPENBLAS", "OpenBLAS"}, {"PkgConfig", "not linked"},
                                                 {"Threads", "not linked"}};
  static const std::regex required(R"((?:find_package|pkg_check_modules)\((\w+) REQUIRED)");
  const Words names = first_groups(text_of(root / "CMakeLists.txt"), required);
  EXPECT_GE(names.size(), 7u);
  for (const std::string& name : names) {
    ASSERT_TRUE(title.count(name)) << name << " is linked: add it to python/LICENSES.txt, and here";
    if (title.at(name) != "not linked") {
      EXPECT_NE(licences.find(title.at(name) + " (http"), std::string::npos) << "python/LICENSES.txt omits " << name;
    }
  }
}

TEST(Documents, ARowOrALinkIsSeen) {
  EXPECT_EQ(commands_of_program("constexpr Command commands[] = {\n    {\"a\", \"does\", a},\n  {\"b\", \"\", b},\n};\n {\"c\", \"\"}"),
            (Words{"a", "b"}));
  EXPECT_EQ(commands_of_page("\n| command | line |\n|---|---|\n| `a` | does |\n| `b` | |\n\n| `c` | |"), (Words{"a", "b"}));
  EXPECT_EQ(links_of("[a](b.md) [c](https://d) [e](#f), [g](h/i.md#j)\n```cpp\n[](k)\n```\n[l](m)"),
            (std::vector<Link>{{"b.md", ""}, {"", "f"}, {"h/i.md", "j"}, {"m", ""}}));
  EXPECT_EQ(sections_of("# The Page\n## `a_b`, c-d [E](f.md)\ng\n```\n# h\n```"), (Words{"the-page", "a_b-c-d-e"}));
}

}  // namespace
