#include "ops/attention/documents/documents.h"

#include <algorithm>
#include <climits>

#include "base/divide.h"
#include "base/error.h"

namespace headroom::attention {

Lists make_lists(const Problem& p, Context& ctx) {
  if (p.documents == 0) return {};
  return {.keys_of = ctx.arena.make("attention.keys_of_rows", DType::i32, {p.batch, p.len_q, 2}),
          .rows_of = ctx.arena.make("attention.rows_of_keys", DType::i32, {p.batch, p.len_k, 2}),
          .not_numbers = ctx.device.kind == DeviceKind::cuda ? ctx.arena.make("attention.not_numbers", DType::i32, {1}) : Tensor()};
}

DocumentTiles make_tiles(const Problem& p, Context& ctx, std::int64_t size, std::int64_t step, int tail, bool of_keys) {
  const std::int64_t most = ceil_div(of_keys ? p.len_k : p.len_q, size) + p.documents + 2;
  check(most * p.batch * p.heads < INT_MAX - 1024, Code::unsupported, "attention: {} documents are too many for one launch", p.documents);
  return {.tiles = static_cast<DocumentTile*>(ctx.arena.make("attention.tiles", DType::i32, {p.batch, 2, most, 4}).data),
          .count = ctx.arena.make("attention.tile_counts", DType::i32, {p.batch}).as<std::int32_t>(),
          .most = std::int32_t(most),
          .size = std::int32_t(size),
          .step = std::int32_t(step),
          .tail = tail,
          .of_keys = of_keys};
}

bool cuts_rows(const Problem& p) { return p.documents <= p.len_q / 128 + 8; }

DocumentTiles make_tiles_and_rows(const Problem& p, Context& ctx, std::int64_t size, std::int64_t step, int tail) {
  DocumentTiles t = make_tiles(p, ctx, size, step, tail, true);
  t.cut = cuts_rows(p);
  const std::int64_t most = ceil_div(p.len_q, step) + (t.cut ? p.documents + 2 : 0);
  t.row_tiles = static_cast<RowTile*>(ctx.arena.make("attention.row_tiles", DType::i32, {p.batch, most, 2}).data);
  t.rows = static_cast<RowsOfTile*>(ctx.arena.make("attention.rows_of_tiles", DType::i32, {p.batch, 2, t.most, 4}).data);
  t.most_row_tiles = std::int32_t(most);
  return t;
}

DocumentsArgs documents_args(const Problem& p, const Extras& with, const Lists& lists) {
  constexpr std::int64_t far = 1 << 30;
  const Offsets sees = offsets_of(p.mask);
  return {.cu_q = with.cu_q.as<std::int32_t>(),
          .cu_k = with.cu_k.as<std::int32_t>(),
          .count = std::int32_t(p.documents),
          .len_q = std::int32_t(p.len_q),
          .len_k = std::int32_t(p.len_k),
          .batch = std::int32_t(p.batch),
          .low = std::int32_t(std::max(sees.low, -far)),
          .high = std::int32_t(std::min(sees.high, far)),
          .from_the_end = sees.from_the_end,
          .keys_of = lists.keys_of.as<Run>(),
          .rows_of = lists.rows_of.as<Run>()};
}

void list_documents(const Problem& p, const Extras& with, const Lists& lists, Context& ctx) {
  if (p.documents == 0) return;
  const DocumentsArgs a = documents_args(p, with, lists);
  constexpr std::int64_t piece = 1024;
  const auto each = [&](std::int64_t len, auto&& fill) {
    const std::int64_t pieces = ceil_div(len, piece);
    ctx.share(pieces * p.batch, [&](std::int64_t n, int) {
      const std::int64_t row = n / pieces, end = std::min((n % pieces + 1) * piece, len);
      for (auto i = n % pieces * piece; i < end; ++i) fill(row, i);
    });
  };
  each(p.len_q, [&](auto row, auto i) { a.keys_of[row * p.len_q + i] = a.keys_of_row(std::int32_t(row), std::int32_t(i)); });
  each(p.len_k, [&](auto row, auto j) { a.rows_of[row * p.len_k + j] = a.rows_of_key(std::int32_t(row), std::int32_t(j)); });
}

Band band_of(const Problem& p, const Lists& lists, std::int64_t batch) {
  if (p.documents == 0) return p.band();
  return {.len_q = p.len_q,
          .len_k = p.len_k,
          .low = 0,
          .high = 0,
          .reach = Reach::listed,
          .keys_of = lists.keys_of.as<Run>() + batch * p.len_q,
          .rows_of = lists.rows_of.as<Run>() + batch * p.len_k};
}

HostLists::HostLists(const Problem& p, const Extras& with) : problem_(p) {
  if (p.documents == 0) return;
  runs_.resize(std::size_t(p.batch * (p.len_q + p.len_k)));
  lists_ = {.keys_of = Tensor(runs_.data(), DType::i32, {p.batch, p.len_q, 2}),
            .rows_of = Tensor(runs_.data() + p.batch * p.len_q, DType::i32, {p.batch, p.len_k, 2})};
  Arena none;
  const Device here;
  Context alone{none, here};
  list_documents(p, with, lists_, alone);
}

double HostLists::visible() const {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem_.batch; ++b) {
    const Band band = this->band(b);
    if (problem_.documents == 0)
      pairs += band.visible();
    else
      for (std::int64_t i = 0; i < problem_.len_q; ++i) pairs += double(band.last(i) - band.first(i));
  }
  return pairs;
}

}  // namespace headroom::attention
