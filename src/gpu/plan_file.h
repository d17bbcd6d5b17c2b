// Plans of matrix products that were measured on a card, kept between runs. A file that is missing, damaged or of another version holds
// none; it is written beside itself and renamed, so that a reader sees the old one or the new one, whole.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace headroom {

using Plan = std::array<std::uint64_t, 8>;  // opaque: the library's own description of an algorithm
using Plans = std::map<std::string, Plan>;  // by what is multiplied, in one word
constexpr const char* plan_file_head = "headroom plans 1";

Plans read_plans(const std::filesystem::path&);
bool write_plans(const std::filesystem::path&, const Plans&);  // false: the folder cannot be written to
std::filesystem::path plan_file_of(const std::string& card);   // in the user's cache folder; empty where there is none

}  // namespace headroom
