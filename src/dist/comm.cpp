#include "dist/comm.h"

#include <fmt/format.h>

#include "base/error.h"
#include "memory/block.h"

namespace headroom::dist {

double sent_bytes(Call call, double bytes, int ranks) {
  switch (call) {
    case Call::exchange:
    case Call::gather: return bytes / ranks * (ranks - 1);
    case Call::broadcast: return ranks > 1 ? bytes : 0;
    case Call::barrier: return 0;
  }
  return 0;
}

namespace {
std::size_t begin_of(const Tensor& t) { return reinterpret_cast<std::size_t>(t.data); }
bool overlap(const Tensor& a, const Tensor& b) { return begin_of(a) < begin_of(b) + b.bytes() && begin_of(b) < begin_of(a) + a.bytes(); }
struct Said {  // in words only where a check fails: a dry run makes thousands of calls
  Call call;
  Name what;
};
Said said(Call call, Name what) { return {call, what}; }
}  // namespace

}  // namespace headroom::dist

template <>
struct fmt::formatter<headroom::dist::Said> : fmt::formatter<std::string> {
  template <class Into>
  auto format(const headroom::dist::Said& s, Into& into) const {
    const std::string call(headroom::names_of<headroom::dist::Call>.of(s.call));
    return fmt::formatter<std::string>::format(s.what.text[0] ? fmt::format("{} of {}", call, s.what.full()) : call, into);
  }
};

namespace headroom::dist {

Comm::Comm(int rank, int ranks) : rank_(rank), ranks_(ranks) {
  check(ranks >= 1 && rank >= 0 && rank < ranks, Code::bad_argument, "rank {} of {}: ranks are counted from 0", rank, ranks);
}

void Comm::exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own own) {
  check(mine.contiguous() && theirs.contiguous(), Code::bad_argument, "{}: tensors must be contiguous", said(Call::exchange, what_));
  check(mine.dtype == theirs.dtype && mine.count() == theirs.count(), Code::bad_argument, "{}: sends {} of {} and receives {} of {}",
        said(Call::exchange, what_), mine.count(), name_of(mine.dtype), theirs.count(), name_of(theirs.dtype));
  check(mine.count() % ranks_ == 0, Code::bad_argument, "{}: {} values do not divide into {} parts", said(Call::exchange, what_),
        mine.count(), ranks_);
  check(!overlap(mine, theirs), Code::bad_argument, "{}: what is sent and what is received overlap", said(Call::exchange, what_));
  do_exchange(mine, theirs, stream, own);
}

void Comm::gather(const Tensor& part, const Tensor& whole, void* stream) {
  check(part.contiguous() && whole.contiguous(), Code::bad_argument, "{}: tensors must be contiguous", said(Call::gather, what_));
  check(part.dtype == whole.dtype && part.count() * ranks_ == whole.count(), Code::bad_argument,
        "{}: {} parts of {} of {} do not make {} of {}", said(Call::gather, what_), ranks_, part.count(), name_of(part.dtype),
        whole.count(), name_of(whole.dtype));
  check(!overlap(part, whole) || begin_of(part) == begin_of(whole) + std::size_t(rank_) * part.bytes(), Code::bad_argument,
        "{}: rank {}'s part overlaps the whole, and is not at its place in it", said(Call::gather, what_), rank_);
  do_gather(part, whole, stream);
}

void Comm::broadcast(const Tensor& whole, int root, void* stream) {
  check(whole.contiguous(), Code::bad_argument, "{}: the tensor must be contiguous", said(Call::broadcast, what_));
  check(root >= 0 && root < ranks_, Code::bad_argument, "{}: there is no rank {} among {}", said(Call::broadcast, what_), root, ranks_);
  do_broadcast(whole, root, stream);
}

std::unique_ptr<Lane> Comm::make_lane(int) { return std::make_unique<Lane>(); }

std::shared_ptr<void> Comm::take(std::size_t bytes) {
  const auto block = std::make_shared<Block>(bytes);
  return {block, block->data()};
}

void Comm::barrier(void* stream) { do_barrier(stream); }

}  // namespace headroom::dist
