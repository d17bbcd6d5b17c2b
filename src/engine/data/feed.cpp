#include "engine/data/feed.h"

#include <algorithm>
#include <vector>

#include "base/element.h"

namespace headroom::engine {

namespace {

// A rank's tokens of whole sequences.
void copy_own(std::span<const std::int32_t> from, const Recipe& r, const TokenSplit* split, std::int32_t* to) {
  if (!split) return void(std::copy(from.begin(), from.end(), to));
  for (std::int64_t b = 0; b < r.batch; ++b)
    for (const int which : {0, 1}) to = std::copy_n(from.begin() + b * r.len + split->first_token(which), split->stripes().rows, to);
}

Tensor part(const Tensor& all, int micro) {  // one micro-batch of [micro-batch, …]
  Shape shape{1};
  shape.rank = std::max(all.shape.rank - 1, 1);
  for (int i = 1; i < all.shape.rank; ++i) shape.dim[std::size_t(i - 1)] = all.shape[i];
  return {element_of(all, micro * all.stride[0]), all.dtype, shape};
}

// Each token's position in its document; 0 behind the last one.
std::vector<std::int32_t> positions_in(const FedDocuments& d, const Recipe& r) {
  std::vector<std::int32_t> positions(std::size_t(r.batch * r.len), 0);
  const auto each = std::size_t(r.documents.most + 1);
  for (std::size_t i = 0; i < d.borders.size(); ++i)
    if (i % each > 0)
      for (auto at = d.borders[i - 1]; at < d.borders[i]; ++at)
        positions[i / each * std::size_t(r.len) + std::size_t(at)] = at - d.borders[i - 1];
  return positions;
}

}  // namespace

Feed::Feed(const Recipe& recipe, std::int64_t rows, Context& ctx) : recipe_(recipe), ctx_(ctx) {
  auto phase = ctx.arena.in_phase(Phase::input);
  const std::int64_t micros = recipe.micro_batches;
  tokens_ = ctx.arena.make("tokens", DType::i32, {micros, rows});
  targets_ = ctx.arena.make("targets", DType::i32, {micros, rows});
  if (recipe.documents) {
    positions_ = ctx.arena.make("positions", DType::i32, {micros, recipe.batch, recipe.len});
    borders_ = ctx.arena.make("documents", DType::i32, {micros, recipe.batch, recipe.documents.most + 1});
    predicted_ = ctx.arena.make("predicted", DType::f64, {micros});
  }
  if (!ctx.on_gpu() || ctx.dry()) return;
  std::size_t bytes = 0;
  for (const Tensor& all : {tokens_, targets_, positions_, borders_, predicted_}) bytes += all ? part(all, 0).bytes() : 0;
  staging_ = std::make_unique<Staging>(bytes, 2 * recipe.micro_batches);
}

Tensor Feed::tokens(int micro) const { return part(tokens_, micro); }
Tensor Feed::targets(int micro) const { return part(targets_, micro); }
Tensor Feed::positions(int micro) const { return positions_ ? part(positions_, micro) : Tensor(); }

attention::Extras Feed::documents(int micro) const {
  attention::Extras with;
  if (borders_) with.cu_q = with.cu_k = part(borders_, micro);
  return with;
}

const double* Feed::predicted(int micro) const { return predicted_ && !ctx_.dry() ? predicted_.as<double>() + micro : nullptr; }

void Feed::take(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const TokenSplit* split) {
  std::vector<std::int32_t> borders;
  for (std::int64_t b = 0; recipe_.documents && b < recipe_.batch; ++b) {
    borders.push_back(0);
    borders.resize(borders.size() + std::size_t(recipe_.documents.most), std::int32_t(recipe_.len));
  }
  send(micro, tokens, targets, {borders, double(recipe_.batch * recipe_.len * recipe_.micro_batches_of_all())}, split);
}

void Feed::take(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments& d,
                const TokenSplit* split) {
  const std::int64_t each = recipe_.documents.most + 1;
  check(bool(recipe_.documents) && std::int64_t(d.borders.size()) == recipe_.batch * each, Code::bad_argument,
        "step: {} borders of documents are fed, it takes {}", d.borders.size(), recipe_.documents ? recipe_.batch * each : 0);
  for (std::int64_t b = 0; b < recipe_.batch; ++b) {
    const auto row = d.borders.subspan(std::size_t(b * each), std::size_t(each));
    check(row.front() == 0 && row.back() <= recipe_.len && std::is_sorted(row.begin(), row.end()), Code::bad_argument,
          "step: documents of row {} must lie one behind another from 0 to at most {}", b, recipe_.len);
  }
  send(micro, tokens, targets, d, split);
}

void Feed::send(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments& d,
                const TokenSplit* split) {
  const auto all = std::size_t(recipe_.batch * recipe_.len);
  check(tokens.size() == all && targets.size() == all && micro >= 0 && micro < recipe_.micro_batches, Code::bad_argument,
        "step: micro-batch {} of {} is fed {} tokens and {} targets, it takes {}", micro, recipe_.micro_batches, tokens.size(),
        targets.size(), all);
  char* slot = staging_ ? static_cast<char*>(staging_->next()) : nullptr;
  std::size_t at = 0;
  const auto bring = [&](const Tensor& all, const auto& write) {
    if (!all) return;
    const Tensor to = part(all, micro);
    if (!staging_) return write(to.data);
    write(slot + at);
    staging_->send(to.data, at, to.bytes(), ctx_.stream);
    at += to.bytes();
  };
  bring(tokens_, [&](void* to) { copy_own(tokens, recipe_, split, static_cast<std::int32_t*>(to)); });
  bring(targets_, [&](void* to) { copy_own(targets, recipe_, split, static_cast<std::int32_t*>(to)); });
  bring(predicted_, [&](void* to) { *static_cast<double*>(to) = std::max(d.predicted, 1.0); });  // a micro-batch of nothing has no loss
  bring(positions_, [&](void* to) { std::ranges::copy(positions_in(d, recipe_), static_cast<std::int32_t*>(to)); });
  bring(borders_, [&](void* to) { std::ranges::copy(d.borders, static_cast<std::int32_t*>(to)); });
  if (staging_) staging_->sent(ctx_.stream);
}

}  // namespace headroom::engine
