// cuBLASLt algorithms that were measured on a card, kept between runs. A file that is missing, damaged or of another version counts as
// empty. Writing goes to a new file that is then renamed, so that a reader sees the whole old or the whole new one.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace headroom {

using Algorithm = std::array<std::uint64_t, 8>;       // opaque: cuBLASLt's description of an algorithm
using Algorithms = std::map<std::string, Algorithm>;  // key: the product, written as one word
constexpr const char* plan_file_head = "headroom plans 1";

Algorithms read_plans(const std::filesystem::path&);
bool write_plans(const std::filesystem::path&, const Algorithms&);  // false: the folder cannot be written to
std::filesystem::path plan_file_of(const std::string& card);        // in the user's cache folder; empty if there is none

}  // namespace headroom
