// Values of a store, from and to the outside: initial weights, and what files hold. Ranks gather what each has a part of.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/store/runs.h"
#include "engine/store/store.h"
#include "engine/store/transfer.h"
#include "ops/copy/copy.h"
#include "ops/copy/split.h"
#include "ops/fill/fill.h"
#include "ops/quantise/quantise.h"

namespace headroom::engine {

// Calls fill(FP32 scratch, number of its first element among those of the parameter that are held, …) for every piece of a weight in halves.
template <class Fill>
void ParamStore::in_pieces(const Param& p, Fill&& fill) {
  const Tensor upper = p.copy.count() == p.rest.count() ? flat(p.copy) : owned(p, p.copy), rest = flat(p.rest);
  constexpr std::int64_t least = 64;  // FP32 numbers that any step has room for
  const auto room = std::int64_t((ctx_.arena.capacity() - ctx_.arena.used()) / sizeof(float));
  const std::int64_t most = std::clamp<std::int64_t>(room / 2 / least * least, least, 1 << 22);  // half: the step has the peak
  for (std::int64_t at = 0; at < rest.count(); at += most) {
    auto scope = ctx_.arena.scope();
    const std::int64_t n = std::min(most, rest.count() - at);
    const Tensor piece = ctx_.arena.make({p.spec.name, p.spec.layer}, DType::f32, {n});
    fill(piece, at);
    copy::split(piece, run_of(upper, at, n), run_of(rest, at, n), ctx_);
  }
}

void ParamStore::initialise(std::uint64_t seed) {
  if (ctx_.dry()) return;
  for (std::size_t index = 0; index < params_.size(); ++index) {
    stop_if_interrupted(" while the weights were filled");  // billions take minutes on a CPU
    const Param& p = params_[index];
    const std::int64_t first = first_of(p, p.rest ? p.rest : p.master);
    const auto fill = [&](const Tensor& t, std::int64_t at) {
      p.spec.std == 0 ? fill::constant(t, p.spec.mean, ctx_)
                      : fill::normal(t, Random{seed}.stream(index), p.spec.mean, p.spec.std, ctx_, first + at);
    };
    p.rest ? in_pieces(p, fill) : fill(flat(p.master), 0);
    for (const Tensor& t : p.state)  // zeros, whose bits are the same in every type; up to 3 bytes more belong to nothing else
      fill::constant(Tensor(t.data, DType::f32, {ceil_div(std::int64_t(t.bytes()), 4)}), 0, ctx_);
  }
  refresh_copies();
}

void ParamStore::refresh_copies() {
  for (const Param& p : params_)
    if (p.copy && p.master && p.master.count() > 0)
      copy::copy(flat(p.master), p.copy.count() == p.master.count() ? flat(p.copy) : owned(p, p.copy), ctx_);
  for (const Param& p : params_)
    if (p.as_is) quantise::quantise({.x = p.copy, .as_is = p.as_is, .transposed = p.transposed}, ctx_);
  if (!sharded(Sharding::optimizer) || sharded(Sharding::everything)) return;
  for (const SegmentPart& r : runs_) share_weights(r);
  settle();
}

// All of a tensor that has a number for every `per` elements of a parameter: `mine` is what this rank has of it, `held` of its run.
std::vector<char> ParamStore::whole_values(const Param& p, const Tensor& mine, const Tensor& held, std::int64_t per) {
  const auto size = std::int64_t(size_of(mine.dtype)), count = ceil_div(p.spec.shape.count(), per);
  std::vector<char> all(std::size_t(count * size));
  const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
  const std::int64_t part = r.part / per, place = p.spec.at / per;
  if (alone() || held.count() != part) {
    read(mine, all.data(), ctx_);
    return all;
  }
  const std::int64_t ranks = settings_.ranks.count, step = grain / per;
  auto scope = ctx_.arena.scope();
  const auto room = std::int64_t((ctx_.arena.capacity() - ctx_.arena.used()) / std::size_t(ranks * size));
  const std::int64_t most = std::clamp(room / step * step, step, std::min<std::int64_t>(part, 1 << 18));
  for (std::int64_t at = 0; at < part; at += most) {
    const std::int64_t n = std::min(most, part - at);
    auto inner = ctx_.arena.scope();
    const Tensor whole = ctx_.arena.make({"values of all ranks", r.layer}, mine.dtype, {ranks * n});
    comm_->carries({"values", r.layer});
    comm_->gather(run_of(held, at, n), whole, ctx_.stream);
    const auto values = [&] {
      std::vector<char> host(whole.bytes());
      read(whole, host.data(), ctx_);
      return host;
    }();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = rank * part + at - place, from = std::max<std::int64_t>(begin, 0), to = std::min(begin + n, count);
      if (from < to)
        std::memcpy(all.data() + from * size, values.data() + (rank * n + from - begin) * size, std::size_t((to - from) * size));
    }
  }
  return all;
}

std::vector<float> ParamStore::values(const Param& p) {
  std::vector<float> all(std::size_t(p.spec.shape.count()));
  const Param& held = runs_[std::size_t(p.spec.segment)].held;
  if (p.rest) {
    const auto upper = whole_values(p, p.copy, held.copy), rest = whole_values(p, p.rest, held.rest);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = copy::join({reinterpret_cast<const bf16*>(upper.data())[i], reinterpret_cast<const std::uint16_t*>(rest.data())[i]});
    return all;
  }
  const auto bytes = whole_values(p, p.master, held.master);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

void ParamStore::set_values(const Param& p, const float* whole) {
  if (!p.rest) return write(whole + first_of(p, p.master), flat(p.master), ctx_);
  std::vector<bf16> upper(std::size_t(p.rest.count()));
  std::vector<std::uint16_t> rest(upper.size());
  for (std::size_t i = 0; i < upper.size(); ++i) {
    const copy::Halves h = copy::split(whole[std::size_t(first_of(p, p.rest)) + i]);
    upper[i] = h.upper;
    rest[i] = h.rest;
  }
  write(upper.data(), p.copy.count() == p.rest.count() ? flat(p.copy) : owned(p, p.copy), ctx_);
  write(rest.data(), flat(p.rest), ctx_);
}

std::vector<char> ParamStore::state(const Param& p, std::size_t n) {
  const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
  return whole_values(p, p.state[n], alone() ? Tensor() : r.held.state[n], optimizer_.states(p.spec)[n].per);
}

void ParamStore::set_state(const Param& p, std::size_t n, const char* whole) {
  const std::int64_t per = optimizer_.states(p.spec)[n].per;
  const Tensor& t = p.state[n];
  const bool part = !alone() && runs_[std::size_t(p.spec.segment)].held.state[n].count() == runs_[std::size_t(p.spec.segment)].part / per;
  write(whole + (part ? p.first / per * std::int64_t(size_of(t.dtype)) : 0), flat(t), ctx_);
}

}  // namespace headroom::engine
