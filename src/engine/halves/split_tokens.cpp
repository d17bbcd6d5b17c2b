#include "engine/halves/split_tokens.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/element.h"
#include "ops/matmul/matmul.h"

namespace headroom::engine {

using attention::Problem;
using matmul::part;

namespace {

Tensor as_matrix(const Tensor& heads) {  // [batch, rows, heads, dim] of one matrix, as that matrix's rows
  Tensor t(heads.data, heads.dtype, {heads.shape[0] * heads.shape[1], heads.shape[2] * heads.shape[3]});
  t.stride[0] = heads.stride[1];
  return t;
}

// What scratch depends on. A search makes the same split for thousands of steps, and asks for the scratch of every rank each time.
struct Asked {
  const attention::Variant* variant = nullptr;
  Problem whole;
  int ranks = 0, rank = 0, workers = 0;
  DeviceKind kind{};
  int sm = 0, units = 0;
  std::string device;
  friend bool operator==(const Asked&, const Asked&) = default;
};

template <class Scratch, class Make>
Scratch remembered(Asked asked, Make&& make) {
  struct Known {
    Asked of;
    Scratch scratch;
  };
  constexpr std::size_t most = 16;
  thread_local std::array<Known, most> all;
  thread_local std::size_t next = 0;
  for (const Known& k : all)
    if (k.of == asked) return k.scratch;
  Known& known = all[next++ % most];
  known = {std::move(asked), make()};
  return known.scratch;
}

}  // namespace

TokenSplit::TokenSplit(const attention::Variant& variant, const Problem& whole, dist::Comm& comm, const Context& ctx)
    : variant_(variant),
      whole_(whole),
      comm_(comm),
      stripes_{whole.batch, comm.ranks(), whole.len_q / (2 * comm.ranks())},
      kv_width_(whole.kv_heads * whole.head_dim) {
  const Asked asked{&variant,        whole,         comm.ranks(),     comm.rank(),    ctx.workers(),
                    ctx.device.kind, ctx.device.sm, ctx.device.units, ctx.device.name};
  others_ = remembered<Others>(asked, [&] { return scratch_of_others(ctx); });
}

TokenSplit::Others TokenSplit::scratch_of_others(const Context& ctx) const {
  Others others{};
  for (const attention::Pass pass : {attention::Pass::forward, attention::Pass::backward})
    for (const int which : {0, 1}) {
      const auto scratch = [&](int rank) {
        return attention::workspace_bytes(variant_, stripe_of(rank, which), ctx.device, pass, ctx.workers());
      };
      std::size_t most = 0;
      for (int rank = 0; rank < comm_.ranks(); ++rank) most = std::max(most, scratch(rank));
      others[std::size_t(pass)][std::size_t(which)] = most - scratch(comm_.rank());
    }
  return others;
}

Problem TokenSplit::stripe_of(int rank, int which) const {
  Problem p = whole_;
  p.len_q = stripes_.rows;
  p.len_k = (stripes_.number(rank, which) + 1) * stripes_.rows;
  return p;
}

// What plain attention keeps of both stripes has the same size on every rank: together they see 2·N + 1 stripes of keys.
attention::Saved TokenSplit::make_saved(Context& ctx) const {
  Problem both = stripe(0);
  both.len_k += stripe(1).len_k;
  return attention::make_saved(variant_, both, ctx);
}

attention::Saved TokenSplit::saved_of(const attention::Saved& both, int which) const {
  if (!both.p) return {};
  const Problem p = stripe(which);
  const Shape shape{p.batch, p.heads, p.len_q, p.len_k};
  const std::int64_t first = which == 0 ? 0 : both.p.count() - shape.count();
  return {Tensor(element_of(both.p, first), both.p.dtype, shape)};
}

Tensor TokenSplit::rows_of(const Tensor& mine, int which) const {
  return part(mine, 1, which * stripes_.rows, (which + 1) * stripes_.rows);
}

Tensor TokenSplit::lse_of(const Tensor& mine, int which) const {
  const Shape shape = stripe(which).lse_shape();
  return {element_of(mine, which * shape.count()), DType::f32, shape};
}

// Keys (column 0) or values (column 1) of the first `seen` tokens of sequences that are `from` tokens apart.
Tensor TokenSplit::keys_of(const Tensor& kv, std::int64_t from, std::int64_t seen, int column) const {
  Tensor t = part(kv, 1, column * kv_width_, (column + 1) * kv_width_);
  const auto row = kv.stride[0];
  t.shape = {whole_.batch, seen, whole_.kv_heads, whole_.head_dim};
  t.stride = {from * row, row, whole_.head_dim, 1};
  return t;
}

Tensor TokenSplit::gather_keys(const Tensor& k, const Tensor& v, int layer, Context& ctx) const {
  const std::int64_t rows = stripes_.batch * stripes_.len(), mine = stripes_.rows_of_rank();
  const Tensor kv = ctx.arena.make({"attention.kv", layer}, k.dtype, {rows, 2 * kv_width_});
  auto scope = ctx.arena.scope();
  const Tensor all = ctx.arena.make({"attention.kv.ranks", layer}, k.dtype, {rows, 2 * kv_width_});
  const Tensor own = part(all, 0, comm_.rank() * mine, (comm_.rank() + 1) * mine);
  stripes::pack(as_matrix(k), part(own, 1, 0, kv_width_), ctx);
  stripes::pack(as_matrix(v), part(own, 1, kv_width_, 2 * kv_width_), ctx);
  {
    const double bytes = double(all.bytes());
    const auto op = ctx.note({"keys and values", layer}, {k.dtype}, {0, 2 * bytes, sent_bytes(dist::Call::gather, bytes, comm_.ranks())});
    comm_.carries({"keys and values", layer});
    comm_.gather(own, all, ctx.stream);
  }
  stripes::in_order(stripes_, all, kv, ctx);
  return kv;
}

void TokenSplit::take_as_others(attention::Pass pass, int which, Context& ctx) const {
  if (const std::size_t bytes = others_[std::size_t(pass)][std::size_t(which)]; bytes > 0)
    ctx.arena.make("attention.scratch of other ranks", DType::u8, {std::int64_t(bytes)});
}

void TokenSplit::forward(const attention::Forward& t, int layer, Context& ctx) const {
  auto scope = ctx.arena.scope();
  const Tensor kv = gather_keys(t.k, t.v, layer, ctx);
  for (const int which : {0, 1}) {
    auto inner = ctx.arena.scope();
    const Problem p = stripe(which);
    take_as_others(attention::Pass::forward, which, ctx);
    attention::forward(variant_, p,
                       {.q = rows_of(t.q, which),
                        .k = keys_of(kv, stripes_.len(), p.len_k, 0),
                        .v = keys_of(kv, stripes_.len(), p.len_k, 1),
                        .o = rows_of(t.o, which),
                        .lse = lse_of(t.lse, which),
                        .saved = saved_of(t.saved, which)},
                       ctx);
  }
}

void TokenSplit::backward(const attention::Backward& t, int layer, Context& ctx) const {
  auto scope = ctx.arena.scope();
  const Tensor kv = gather_keys(t.k, t.v, layer, ctx);
  const std::int64_t rows = stripes_.batch * stripes_.len();
  const Tensor sums = ctx.arena.make({"attention.dkv", layer}, DType::f32, {rows, 2 * kv_width_});
  for (const int which : {1, 0}) {
    auto inner = ctx.arena.scope();
    const Problem p = stripe(which);
    const Tensor room = ctx.arena.make({"attention.dkv of a stripe", layer}, kv.dtype, {p.batch * longest(which), 2 * kv_width_});
    const Tensor dkv = part(room, 0, 0, p.batch * p.len_k);
    take_as_others(attention::Pass::backward, which, ctx);
    attention::backward(variant_, p,
                        {.q = rows_of(t.q, which),
                         .k = keys_of(kv, stripes_.len(), p.len_k, 0),
                         .v = keys_of(kv, stripes_.len(), p.len_k, 1),
                         .o = rows_of(t.o, which),
                         .lse = lse_of(t.lse, which),
                         .d_o = rows_of(t.d_o, which),
                         .dlse = {},
                         .dq = rows_of(t.dq, which),
                         .dk = keys_of(dkv, p.len_k, p.len_k, 0),
                         .dv = keys_of(dkv, p.len_k, p.len_k, 1),
                         .saved = saved_of(t.saved, which)},
                        ctx);
    stripes::add_by_rank(stripes_, dkv, sums, which == 1 ? Gradient::overwrite : Gradient::accumulate, ctx);
  }
  const Tensor theirs = ctx.arena.make({"attention.dkv of all ranks", layer}, DType::f32, {rows, 2 * kv_width_});
  {
    const double bytes = double(sums.bytes());
    const auto op = ctx.note({"gradients of keys and values", layer}, {DType::f32},
                             {0, 2 * bytes, sent_bytes(dist::Call::exchange, bytes, comm_.ranks())});
    comm_.carries({"gradients of keys and values", layer});
    comm_.exchange(sums, theirs, ctx.stream);
  }
  Tensor mine = as_matrix(t.dk);
  check(t.dv.data == element_of(t.dk, kv_width_), Code::bad_argument, "attention: the gradients of keys and values must lie side by side");
  mine.shape = {mine.shape[0], 2 * kv_width_};
  stripes::add_up(theirs, comm_.ranks(), mine, ctx);
}

void TokenSplit::gather_losses(const Tensor& mine, const Tensor& in_order, Context& ctx) const {
  auto scope = ctx.arena.scope();
  const Tensor all = ctx.arena.make("losses of all ranks", DType::f32, in_order.shape);
  {
    const double bytes = double(all.bytes());
    const auto op = ctx.note("losses", {DType::f32}, {0, 2 * bytes, sent_bytes(dist::Call::gather, bytes, comm_.ranks())});
    comm_.carries("losses");
    comm_.gather(mine, all, ctx.stream);
  }
  const auto as_rows = [](const Tensor& t) { return Tensor(t.data, t.dtype, {t.count(), 1}); };
  stripes::in_order(stripes_, as_rows(all), as_rows(in_order), ctx);
}

}  // namespace headroom::engine
