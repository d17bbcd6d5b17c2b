// What several processes of one dry run know of each other's cards: each publishes what it uses, in one small file of the record's folder
// ("cards"), and a process that has ended counts no more. Without a folder every process is alone.
#pragma once
#include <cstdint>
#include <vector>

namespace headroom::dry {

void publish_use(int card, std::uint64_t bytes);  // `card`: its index on the host
std::uint64_t others_use(int card);

struct Use {
  std::int32_t pid;
  std::uint64_t bytes;
};
std::vector<Use> uses_of(int card);  // one for every process that has something there, this one too

}  // namespace headroom::dry
