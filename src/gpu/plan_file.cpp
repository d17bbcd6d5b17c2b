#include "gpu/plan_file.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace headroom {

namespace fs = std::filesystem;

namespace {

std::uint64_t checksum(const std::string& text) {  // FNV-1a: detects damage, not manipulation
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (unsigned char c : text) sum = (sum ^ c) * 0x100000001b3ull;
  return sum;
}

}  // namespace

Algorithms read_plans(const fs::path& path) {
  std::ifstream in(path);
  std::string head, sum, line;
  if (!std::getline(in, head) || head != plan_file_head || !std::getline(in, sum)) return {};
  std::stringstream rest;
  rest << in.rdbuf();
  if (sum != fmt::format("{:016x}", checksum(rest.str()))) return {};
  Algorithms plans;
  while (std::getline(rest, line)) {
    std::istringstream words(line);
    std::string key;
    Algorithm plan;
    words >> key >> std::hex;
    for (auto& word : plan) words >> word;
    if (!words) return {};
    plans[key] = plan;
  }
  return plans;
}

bool write_plans(const fs::path& path, const Algorithms& plans) {
  std::string text;
  for (const auto& [key, plan] : plans) {
    text += key;
    for (auto word : plan) text += fmt::format(" {:x}", word);
    text += '\n';
  }
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  try {
    write_atomically(path.string(), fmt::format("{}\n{:016x}\n{}", plan_file_head, checksum(text), text));
    return true;
  } catch (const Error&) { return false; }
}

fs::path plan_file_of(const std::string& card) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if ((!cache || !*cache) && (!home || !*home)) return {};
  std::string name = card;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  return (cache && *cache ? fs::path(cache) : fs::path(home) / ".cache") / "headroom" / ("plans-" + name);
}

}  // namespace headroom
