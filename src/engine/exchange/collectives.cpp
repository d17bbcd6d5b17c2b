#include "engine/exchange/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ops/rank_sum/rank_sum.h"

namespace headroom {

namespace {

constexpr std::int64_t piece = 1 << 17;  // elements of a rank's part that are under way at once

Tensor flat_view(const void* data, DType type, std::int64_t count) { return {const_cast<void*>(data), type, {count}}; }

std::string in_words(Collective call, std::int64_t count, DType type, std::int64_t how, bool on_gpu, const char* what) {
  const auto name = names_of<Collective>.of(call);
  if (call == Collective::barrier || call == Collective::leave) return std::string(name);
  if (call == Collective::join_gpus) return "joining the GPUs";
  std::string more;
  if (call == Collective::broadcast) more = fmt::format(" from rank {}", how);
  if (call == Collective::all_reduce || call == Collective::reduce_scatter)
    more = fmt::format(", {}", names_of<Reduction>.of(Reduction(how)));
  if (on_gpu) more += ", on a GPU";
  if (*what) more += fmt::format(" ({})", what);
  return fmt::format("{} of {} {}{}", name, count, name_of(type), more);
}

}  // namespace

char* Collectives::room(std::vector<char>& v, std::size_t bytes) const {
  if (v.size() < bytes) v.resize(bytes);
  return v.data();
}

void Collectives::carries(std::string_view what) {
  what_ = {};
  const std::size_t most = what_.size() - 1;
  if (what.size() > most) what.remove_prefix(what.size() - most);
  std::copy(what.begin(), what.end(), what_.begin());
}

void Collectives::check_joined() const {
  check(cards_ != nullptr, Code::bad_argument, "the ranks' GPUs are not joined: headroom_comm_join_gpu comes first, on every rank");
}

void Collectives::next_on(CardCollectives::Queue queue) {
  check_joined();
  queue_ = queue;
}

void Collectives::join_gpus(const std::function<std::unique_ptr<CardCollectives>()>& join) {
  agree(Collective::join_gpus, 0, DType::u8, 0);
  if (!cards_) cards_ = join();
}

std::optional<CardCollectives::Queue> Collectives::agree(Collective call, std::int64_t count, DType type, int how) {
  const auto queue = std::exchange(queue_, {});
  const Asked mine{.call = std::int64_t(call),
                   .count = count,
                   .dtype = std::int64_t(type),
                   .how = how,
                   .on_gpu = queue.has_value(),
                   .what = std::exchange(what_, {})};
  asked_.resize(std::size_t(comm_.ranks()));
  const auto words = std::int64_t(sizeof(Asked) / 8);
  comm_.carries(names_of<Collective>.of(call).data());
  comm_.gather(flat_view(&mine, DType::i64, words), flat_view(asked_.data(), DType::i64, words * comm_.ranks()), nullptr);
  const auto said = [&](int r) {
    const Asked& a = asked_[std::size_t(r)];
    return in_words(Collective(a.call), a.count, DType(a.dtype), a.how, a.on_gpu != 0, a.what.data());
  };
  for (int r = 1; r < comm_.ranks(); ++r) {
    if (asked_[std::size_t(r)] != asked_[0])
      throw Differs(Code::bad_argument, fmt::format("ranks ask for different calls: rank 0 for {}, rank {} for {}", said(0), r, said(r)));
  }
  return queue;
}

void Collectives::barrier() { agree(Collective::barrier, 0, DType::u8, 0); }

void Collectives::leave() { agree(Collective::leave, 0, DType::u8, 0); }

void Collectives::broadcast(void* data, std::int64_t count, DType type, int root) {
  check(root >= 0 && root < comm_.ranks(), Code::bad_argument, "broadcast: there is no rank {} among {}", root, comm_.ranks());
  if (const auto queue = agree(Collective::broadcast, count, type, root)) return cards_->broadcast(data, count, type, root, *queue);
  comm_.broadcast(flat_view(data, type, count), root, nullptr);
}

void Collectives::all_gather(const void* part, void* whole, std::int64_t count, DType type) {
  if (const auto queue = agree(Collective::all_gather, count, type, 0)) return cards_->all_gather(part, whole, count, type, *queue);
  comm_.gather(flat_view(part, type, count), flat_view(whole, type, count * comm_.ranks()), nullptr);
}

void Collectives::exchange(const void* mine, void* theirs, std::int64_t count, DType type) {
  if (const auto queue = agree(Collective::exchange, count, type, 0)) return cards_->exchange(mine, theirs, count, type, *queue);
  comm_.exchange(flat_view(mine, type, count * comm_.ranks()), flat_view(theirs, type, count * comm_.ranks()), nullptr);
}

void Collectives::add(const char* parts, std::int64_t count, DType type, Reduction reduction, char* sum) const {
  const int ranks = comm_.ranks();
  rank_sum::add_on_cpu({.own = parts, .rank = 0, .ranks = ranks, .others = parts, .apart = count, .count = count, .type = type},
                       {.to = sum, .divisor = reduction == Reduction::mean ? ranks : 1});
}

void Collectives::all_reduce(void* data, std::int64_t count, DType type, Reduction reduction) {
  check(type != DType::i32, Code::unsupported, "all_reduce: sums are of fp32, bf16 and fp16, not of int32");
  const std::int64_t ranks = comm_.ranks();
  if (const auto queue = agree(Collective::all_reduce, count, type, int(reduction)))
    return cards_->all_reduce(data, count, type, reduction == Reduction::mean ? int(ranks) : 1, *queue);
  const std::size_t size = size_of(type);
  for (std::int64_t at = 0; at < count; at += ranks * piece) {
    const std::int64_t now = std::min(ranks * piece, count - at), part = (now + ranks - 1) / ranks;
    char* from = static_cast<char*>(data) + std::size_t(at) * size;
    const std::size_t bytes = std::size_t(now) * size, whole = std::size_t(part * ranks) * size;
    char *mine = room(mine_, whole), *theirs = room(theirs_, whole), *sums = room(sums_, whole / std::size_t(ranks));
    std::memcpy(mine, from, bytes);
    std::memset(mine + bytes, 0, whole - bytes);
    comm_.exchange(flat_view(mine, type, part * ranks), flat_view(theirs, type, part * ranks), nullptr);
    add(theirs, part, type, reduction, sums);
    comm_.gather(flat_view(sums, type, part), flat_view(mine, type, part * ranks), nullptr);
    std::memcpy(from, mine, bytes);
  }
}

void Collectives::reduce_scatter(const void* whole, void* part, std::int64_t count, DType type, Reduction reduction) {
  check(type != DType::i32, Code::unsupported, "reduce_scatter: sums are of fp32, bf16 and fp16, not of int32");
  const std::int64_t ranks = comm_.ranks();
  if (const auto queue = agree(Collective::reduce_scatter, count, type, int(reduction)))
    return cards_->reduce_scatter(whole, part, count, type, reduction == Reduction::mean ? int(ranks) : 1, *queue);
  const std::size_t size = size_of(type);
  for (std::int64_t at = 0; at < count; at += piece) {
    const std::int64_t now = std::min(piece, count - at);
    const std::size_t bytes = std::size_t(now) * size;
    char *mine = room(mine_, bytes * std::size_t(ranks)), *theirs = room(theirs_, bytes * std::size_t(ranks));
    for (std::int64_t r = 0; r < ranks; ++r)
      std::memcpy(mine + std::size_t(r) * bytes, static_cast<const char*>(whole) + std::size_t(r * count + at) * size, bytes);
    comm_.exchange(flat_view(mine, type, now * ranks), flat_view(theirs, type, now * ranks), nullptr);
    add(theirs, now, type, reduction, static_cast<char*>(part) + std::size_t(at) * size);
  }
}

}  // namespace headroom
