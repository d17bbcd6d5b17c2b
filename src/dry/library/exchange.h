// Small values between the ranks of one dry run. Each rank appends what it gives to a file of its own in the record's folder, one file for each
// group of ranks (or pair), and reads the others' on demand. Giving never waits; reading waits for late ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom::dry {

// From one rank. Plans of a checkpoint take hundreds of KB; of more, only Python objects are moved.
constexpr std::size_t most_exchanged_bytes = 1 << 20, most_object_bytes = std::size_t(1) << 31;

// `channel` names the group; a giver's n-th contribution has number n.
void give_values(const std::string& channel, int rank, const void* bytes, std::size_t count, bool known);

struct Given {
  bool known = false;
  std::vector<char> bytes;
};
std::optional<Given> take_values(const std::string& channel, int rank, std::uint64_t number);   // none: that rank was too late
std::optional<Given> given_so_far(const std::string& channel, int rank, std::uint64_t number);  // without waiting

// A barrier is a sum of one number and a wait for it: what a rank does before it, the others find done after it (a folder that one has written).
void meet_later(const std::string& channel, int ranks, std::uint64_t number);  // the n-th contribution of each rank
void meet();                                                                   // the host waits for the card: until all have come

}  // namespace headroom::dry
