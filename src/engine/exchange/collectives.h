// Collectives on the caller's memory: a Comm moves bytes, this adds them, FP32 and in the order of ranks, rounded once. On memory of a GPU
// the ranks' hosts meet the same way, and CardCollectives do the rest in the order of a stream.
//
// Order of calls: every rank makes the same calls in the same order. Each call first compares what the ranks ask for, so a difference is an
// Error on every rank, with the same words, and nothing has moved. After another Error the ranks have ended.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/described.h"
#include "dist/comm.h"
#include "engine/exchange/card_collectives.h"

namespace headroom {

enum class Reduction : std::uint8_t { sum, mean };
enum class Collective : std::uint8_t { barrier, broadcast, all_reduce, all_gather, reduce_scatter, exchange, leave, join_gpus };

struct Differs : Error {  // ranks ask for different things; every rank knows
  using Error::Error;
};

class Collectives {
 public:
  explicit Collectives(dist::Comm& comm) : comm_(comm) {}

  void carries(std::string_view what);   // the next call: compared, and named where it differs
  void check_joined() const;             // an Error where the ranks' GPUs are not
  void next_on(CardCollectives::Queue);  // the next call is on memory of the joined GPU

  void barrier();
  void broadcast(void* data, std::int64_t count, DType, int root);
  void all_reduce(void* data, std::int64_t count, DType, Reduction);  // in place
  void all_gather(const void* part, void* whole, std::int64_t count, DType);
  void reduce_scatter(const void* whole, void* part, std::int64_t count, DType, Reduction);
  void exchange(const void* mine, void* theirs, std::int64_t count, DType);
  void leave();                                                                   // an Error where others go on
  void join_gpus(const std::function<std::unique_ptr<CardCollectives>()>& join);  // once, on every rank
  const CardCollectives* cards() const { return cards_.get(); }

 private:
  struct Asked {
    std::int64_t call = 0, count = 0, dtype = 0, how = 0, on_gpu = 0;
    std::array<char, 48> what{};  // with a zero behind it
    bool operator==(const Asked&) const = default;
  };
  std::optional<CardCollectives::Queue> agree(Collective, std::int64_t count, DType, int how);  // where the call is on the GPU
  void add(const char* parts, std::int64_t count, DType, Reduction, char* sum) const;
  char* room(std::vector<char>&, std::size_t bytes) const;

  dist::Comm& comm_;
  std::array<char, 48> what_{};
  std::vector<Asked> asked_;
  std::optional<CardCollectives::Queue> queue_;
  std::unique_ptr<CardCollectives> cards_;
  std::vector<char> mine_, theirs_, sums_;
};

}  // namespace headroom

namespace headroom {
template <>
inline constexpr auto names_of<Reduction> = names<Reduction>("sum", "mean");
template <>
inline constexpr auto names_of<Collective> = names<Collective>("barrier", "broadcast", "all_reduce", "all_gather", "reduce_scatter",
                                                               "exchange", "leave", "join_gpus");
}  // namespace headroom
