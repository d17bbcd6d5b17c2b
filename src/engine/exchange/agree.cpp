#include "engine/exchange/agree.h"

#include <algorithm>
#include <vector>

#include "dist/dry.h"
#include "engine/model/models.h"
#include "engine/store/transfer.h"
#include "store/described_json.h"

namespace headroom::engine {

namespace {

// Every rank's `mine`, one after the other; as many numbers on each.
std::vector<std::int64_t> all_of(const std::vector<std::int64_t>& mine, Context& ctx, dist::Comm& comm) {
  auto scope = ctx.arena.scope();
  const auto n = std::int64_t(mine.size());
  const Tensor part = ctx.arena.make("layout", DType::i64, {n}), whole = ctx.arena.make("layouts", DType::i64, {comm.ranks() * n});
  write(mine.data(), part, ctx);
  comm.carries("layout");
  comm.gather(part, whole, ctx.stream);
  return values_of<std::int64_t>(whole, ctx);
}

std::int64_t hash_of(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull;
  return std::int64_t(h);
}

// The first of the numbers that rank's and rank 0's differ in; as many as there are: none.
std::size_t first_difference(const std::vector<std::int64_t>& all, int rank, std::size_t n) {
  std::size_t i = 0;
  while (i < n && all[std::size_t(rank) * n + i] == all[i]) ++i;
  return i;
}

std::string in_words(const Recipe& r) {
  std::string words = to_json(r.model);
  describe(r, [&](const auto& member, const Description& d) {
    const RowObject value = json_of_member(member);
    if (!value.is_null()) words += fmt::format(" {} {}", d.name, value.is_string() ? value.get<std::string>() : value.dump());
  });
  return fmt::format("{} documents {}", words, r.documents.most);
}

}  // namespace

void agree_on(const std::string& text, const char* what, Context& ctx, dist::Comm& comm) {
  const auto all = all_of({hash_of(text)}, ctx, comm);
  for (int rank = 1; rank < comm.ranks(); ++rank)
    check(all[std::size_t(rank)] == all[0], Code::bad_argument, "rank {} was given {} that is not rank 0's; here, on rank {}: {}", rank,
          what, comm.rank(), text);
}

void agree(const Recipe& recipe, Context& ctx, dist::Comm& comm) {
  Arena arena;
  Context dry{arena, ctx.device};
  dry.dry_workers = 1;                 // ranks may have other threads; what they send does not depend on them
  dist::DryComm log(0, comm.ranks());  // parts lie elsewhere on each rank; all show what the first one does
  {
    Training t(recipe, dry, &log);
    if (recipe.purpose == Purpose::forward) {
      t.forward();
    } else if (recipe.purpose == Purpose::gradients) {
      t.backward();
    } else {
      t.passes(recipe.hyper());
    }
  }
  const auto hashes = dist::hashes(log.log());
  const auto n = std::int64_t(hashes.size());
  const auto all = all_of({n, n > 0 ? std::int64_t(hashes.back()) : 0}, ctx, comm);
  std::int64_t least = n;
  bool same = true;
  for (int rank = 0; rank < comm.ranks(); ++rank) {
    least = std::min(least, all[std::size_t(2 * rank)]);
    same = same && first_difference(all, rank, 2) == 2;
  }
  if (same) return agree_on(in_words(recipe), "a step", ctx, comm);
  // Which call, to the piece: ranks that agree up to the shorter list differ by what comes after it.
  constexpr std::int64_t piece = 64;
  for (std::int64_t begin = 0; begin < least; begin += piece) {
    const auto end = std::min(least, begin + piece);
    const std::vector<std::int64_t> some(hashes.begin() + begin, hashes.begin() + end);
    const auto theirs = all_of(some, ctx, comm);
    for (int rank = 1; rank < comm.ranks(); ++rank)
      if (const auto at = first_difference(theirs, rank, some.size()); at < some.size())
        throw Error(Code::bad_argument,
                    fmt::format("ranks 0 and {} were given different steps: call {} between ranks differs; here, on rank {}, it is the {}",
                                rank, begin + std::int64_t(at), comm.rank(), in_words(log.log()[std::size_t(begin) + at])));
  }
  throw Error(Code::bad_argument, fmt::format("ranks were given different steps: of {} to {} calls between ranks, {} on rank {}", least,
                                              *std::max_element(all.begin(), all.end()), n, comm.rank()));
}

}  // namespace headroom::engine
