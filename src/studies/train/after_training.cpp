#include "studies/train/after_training.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "engine/store/transfer.h"

namespace headroom::studies {

using engine::Training;

namespace {

std::int32_t drawn(const float* x, std::int64_t choices, double temperature, double uniform) {
  const float top = *std::max_element(x, x + choices);
  const auto weight = [&](std::int64_t v) { return std::exp(double(x[v] - top) / temperature); };
  double sum = 0;
  for (std::int64_t v = 0; v < choices; ++v) sum += weight(v);
  double left = uniform * sum;
  std::int64_t v = 0;
  while (v + 1 < choices && (left -= weight(v)) >= 0) ++v;
  return std::int32_t(v);
}

}  // namespace

Value validation_loss(Training& t, const engine::Data& data, std::int64_t most, const std::function<bool()>& stop) {
  const auto all = data.validation_batches(t.recipe()), taken = most > 0 ? std::min(all, most) : all;
  const int ranks = t.recipe().ranks.batches();
  const auto batch = [&](std::int64_t b) { return std::min(b, taken - 1) * all / taken; };
  double sum = 0, weights = 0;
  for (std::int64_t b = 0; b < taken; b += ranks) {  // ranks share the batches out; their losses are added in the order of the batches
    if (stop()) return {};
    data.validation(t, batch(b + t.recipe().batch_of(t.rank())));
    t.forward();
    const auto each = t.losses();
    for (int rank = 0; rank < ranks && b + rank < taken; ++rank) {
      const double weight = data.validated(t.recipe(), batch(b + rank)) / double(t.recipe().batch * t.recipe().len);  // 1 of full rows
      sum += weight * each[std::size_t(rank)];
      weights += weight;
    }
  }
  return taken > 0 ? Value(sum / weights) : Value();
}

std::string sampled(Training& t, const TrainRun& r, const Tensor& logits, const std::function<bool()>& stop) {
  const bool text = r.format == engine::TokenFormat::text;
  const std::string prompt = r.documents ? r.prompt : !text ? std::string(1, '\0') : r.prompt.empty() ? "\n" : r.prompt;
  std::vector<std::int32_t> all;
  if (r.documents) all.push_back(std::int32_t(r.documents->token));
  for (unsigned char c : prompt) all.push_back(c);
  const auto len = t.recipe().len, vocab = t.recipe().model.vocab;
  for (auto token : all) check(token < vocab, Code::bad_argument, "--prompt: byte {} is beyond the vocabulary of {}", token, vocab);
  const Random random = Random{r.seed}.stream(0x5a);
  std::string out;
  for (std::int64_t n = 0; n < r.sample && !stop(); ++n) {
    const auto have = std::min<std::int64_t>(len, std::int64_t(all.size()));
    std::vector<std::int32_t> tokens(std::size_t(t.recipe().batch * len), 0);
    std::copy_n(all.end() - have, have, tokens.begin());
    t.feed(0, tokens, tokens);
    t.logits_at(have - 1, logits);
    const auto x = engine::values_of<float>(logits, t.context());
    all.push_back(drawn(x.data(), text ? std::min<std::int64_t>(vocab, 256) : vocab, r.temperature, random.uniform(std::uint64_t(n))));
    if (r.documents && all.back() == r.documents->token) break;
    out += text ? std::string(1, char(all.back())) : fmt::format("{}{}", n ? " " : "", all.back());
  }
  return out;
}

}  // namespace headroom::studies
