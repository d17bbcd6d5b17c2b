// The floors of the house: a room includes only rooms below it, and a library stays in the room that wraps it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Names = std::set<std::string>;

const Names floor_0 = {"base"};
const Names floor_1 = {"base", "memory", "report", "store"};
const Names floor_2 = {"base", "memory", "report", "store", "gpu"};
const Names floor_3 = {"base", "memory", "report", "store", "gpu", "ops", "dist", "instruments"};
const Names floor_5 = {"base", "memory", "report", "store", "gpu", "ops", "dist", "instruments", "dry", "engine", "pytorch"};
const Names floor_6 = {"base", "memory", "report", "store", "gpu", "ops", "dist", "instruments", "dry", "engine", "pytorch", "studies"};

// What a room may include beside itself: the table of docs/tour.md.
const std::map<std::string, Names> may_include = {
    {"base", {}},
    {"memory", floor_0},
    {"report", floor_0},
    {"store", floor_0},
    {"gpu", {"base", "memory"}},
    {"ops", floor_2},
    {"dist", floor_2},
    {"instruments", floor_2},
    {"dry", {"base", "memory"}},                                              // it is loaded into other people's processes
    {"engine", {"base", "memory", "report", "store", "gpu", "ops", "dist"}},  // measures nothing
    {"pytorch", {"base", "memory", "gpu", "ops", "dry", "engine"}},           // measures and keeps nothing
    {"studies", floor_5},
    {"cli", floor_6},
    {"capi", floor_6},
};

const std::map<std::string, Names> library_stays_in = {
    {"sqlite3.h", {"store"}}, {"CLI/", {"cli"}},       {"hwy/", {"ops"}},
    {"cblas.h", {"ops"}},     {"headroom/", {"capi"}}, {"zlib.h", {"instruments"}},
};

std::vector<std::string> violations(const std::string& room, const std::string& source) {
  std::vector<std::string> out;
  const auto rules = may_include.find(room);
  if (rules == may_include.end()) return {"room '" + room + "' is on no floor"};
  static const std::regex include(R"(^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"])", std::regex::multiline);
  for (std::sregex_iterator it(source.begin(), source.end(), include), end; it != end; ++it) {
    const std::string what = (*it)[1], first = what.substr(0, what.find('/'));
    const bool names_a_room = what.find('/') != std::string::npos;  // <memory> is the standard's
    if (names_a_room && may_include.contains(first) && first != room && !rules->second.contains(first)) out.push_back(what);
    for (const auto& [library, rooms] : library_stays_in)
      if (what.starts_with(library) && !rooms.contains(room)) out.push_back(what);
  }
  return out;
}

std::string source_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// What a source includes of ours, itself among them.
void read_with_includes(const std::filesystem::path& src, const std::string& name, Names& read) {
  if (!std::filesystem::exists(src / name) || !read.insert(name).second) return;
  const std::string source = source_of(src / name), include = "#include \"";
  for (auto at = source.find(include); at != std::string::npos; at = source.find(include, at)) {
    at += include.size();
    read_with_includes(src, source.substr(at, source.find('"', at) - at), read);
  }
}

// cmake/cuda.cmake makes one PTX for all cards of these.
TEST(Layers, ASourceForAnyCardReadsNoArchitecture) {
  const std::filesystem::path top = HEADROOM_SOURCE_DIR;
  const std::string build = source_of(top / "cmake/cuda.cmake");
  std::smatch listed;
  ASSERT_TRUE(std::regex_search(build, listed, std::regex("foreach\\(source ([a-z_/ \n]+)\\)\n +list\\(APPEND of_any_card")));
  const auto asks = [&](const std::string& name) {
    Names read, asking;
    read_with_includes(top / "src", name, read);
    EXPECT_FALSE(read.empty()) << name;
    for (const std::string& one : read)
      if (source_of(top / "src" / one).find("__CUDA_ARCH__ >") != std::string::npos) asking.insert(one);
    return asking;
  };
  std::stringstream names(listed[1].str());
  int sources = 0;
  for (std::string source; names >> source; ++sources) EXPECT_EQ(asks(source + ".cu"), Names{}) << source;
  EXPECT_GT(sources, 15);
  // Of the instances that are compiled for any card (src/ops/attention/sm80/instances.cmake), add_four alone asks, and HEADROOM_ANY_CARD takes it away.
  EXPECT_EQ(asks("ops/attention/sm80/simt.cuh"), Names{});
  EXPECT_EQ(asks("ops/attention/sm80/sm80.cuh"), Names{"ops/attention/sm80/sm80_products.cuh"});
  EXPECT_TRUE(asks("ops/attention/decode/decode.cu").contains("gpu/dependent_launch.cuh"));
}

TEST(Layers, EveryIncludeGoesDown) {
  const std::filesystem::path src = std::filesystem::path(HEADROOM_SOURCE_DIR) / "src";
  const Names sources = {".h", ".cpp", ".cu", ".cuh"};
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(src)) {
    if (!sources.contains(entry.path().extension().string())) continue;
    ++files;
    const auto inside = entry.path().lexically_relative(src);
    for (const auto& what : violations(inside.begin()->string(), source_of(entry.path())))
      ADD_FAILURE() << inside.string() << " includes " << what << ", which is not below it";
  }
  EXPECT_GT(files, 20);
}

TEST(Layers, AnIncludeThatGoesUpOrSidewaysIsSeen) {
  EXPECT_TRUE(violations("memory", "#include \"base/error.h\"\n#include <vector>\n#include \"memory/block.h\"\n").empty());
  EXPECT_EQ(violations("memory", "#include \"ops/op.h\"\n").size(), 1u);
  EXPECT_EQ(violations("memory", "  # include \"report/record.h\"\n").size(), 1u);
  EXPECT_EQ(violations("instruments", "#include \"ops/op.h\"\n#include \"engine/model.h\"\n").size(), 2u);
  EXPECT_EQ(violations("engine", "#include \"instruments/bench/timer.h\"\n").size(), 1u);
  EXPECT_EQ(violations("base", "#include <sqlite3.h>\n").size(), 1u);
  EXPECT_EQ(violations("cli", "#include \"capi/edge.h\"\n").size(), 1u);
  EXPECT_EQ(violations("attic", "").size(), 1u);
}

// Files are written and JSON is read through base/file.h and base/json.h alone: what is checked there is checked everywhere.
std::vector<std::string> back_doors(const std::string& source) {
  std::vector<std::string> out;
  static const std::regex door(
      R"(\b(std::ofstream|std::fstream|fopen\s*\(|json::parse\s*\(|Json::parse\s*\(|RowObject::parse\s*\(|json::accept\s*\())");
  for (std::sregex_iterator it(source.begin(), source.end(), door), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

TEST(Doors, FilesAndJsonHaveOneEach) {
  const std::filesystem::path src = std::filesystem::path(HEADROOM_SOURCE_DIR) / "src";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(src)) {
    const auto inside = entry.path().lexically_relative(src).string();
    if (!entry.is_regular_file() || inside.ends_with(".js")) continue;
    for (const auto& what : back_doors(source_of(entry.path())))
      ADD_FAILURE() << inside << " has " << what << "; use base/file.h or base/json.h";
  }
}

TEST(Doors, ABackDoorIsSeen) {
  EXPECT_TRUE(back_doors("parse_json(text, who); std::ifstream in(path); write_atomically(path, text);").empty());
  EXPECT_EQ(back_doors("std::ofstream out(path); auto j = nlohmann::json::parse(text); Json::parse(in, nullptr, false);").size(), 3u);
}

}  // namespace
