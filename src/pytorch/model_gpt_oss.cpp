// gpt-oss as transformers writes it: GptOssForCausalLM (5.24), its experts as grouped products, its attention plain: no fused kernel of PyTorch has sinks.
#include <utility>

#include "pytorch/model.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

void Model::make_parameters_of_gpt_oss() {
  const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
  embed = stored("embedding", {m.vocab, w});
  blocks.reserve(std::size_t(m.layers));
  const auto biased = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    Matrix x = matrix(name + " weight", out, in);
    x.bias = stored(name + " bias", {out});
    return x;
  };
  for (std::int64_t i = 0; i < m.layers; ++i) {
    BlockWeights b;
    b.sinks = stored("sinks", {m.heads});
    b.q = biased("q", qw, w), b.k = biased("k", kw, w), b.v = biased("v", kw, w), b.o = biased("o", w, qw);
    b.router = Matrix{stored("router weight", {m.experts, w})};
    b.router.bias = stored("router bias", {m.experts});
    b.experts_up = stored("experts' up and gate weights", {m.experts, w, 2 * m.ffn});
    b.experts_up_bias = stored("experts' up and gate biases", {m.experts, 2 * m.ffn});
    b.experts_down = stored("experts' down weights", {m.experts, m.ffn, w});
    b.experts_down_bias = stored("experts' down biases", {m.experts, w});
    b.norm1 = stored("norm1", {w}), b.norm2 = stored("norm2", {w});
    blocks.push_back(std::move(b));
  }
  norm_weight = stored("final norm", {w});
  make_head();
}

Value Model::embedded_of_gpt_oss() {
  const Value x = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
  const auto turns = [&](const char* name) { return torch.make(name, x.dtype, {1, m.len, dim / 2}); };
  turn_of_all = {turns("cos"), turns("sin")};
  mask = mask_of("mask", x.dtype);
  standing_in_forward = {x.saved(), turn_of_all.cos, turn_of_all.sin, mask, mask_of("mask of windows", x.dtype)};
  return x;
}

// The product with the weight is in FP32, and kept.
Value Model::norm_of_gpt_oss(const std::string& name, const Value& x, const Parameter& weight) {
  const Value wide = torch.cast(name + " input as fp32", x, DType::f32);
  const Value mean = torch.row_mean(name + " mean", torch.square(name + " x²", wide));
  const Value normed = torch.multiply(name + " x/rms", wide, torch.reciprocal_root(name + " 1/rms", torch.shifted(name + " + eps", mean)));
  return torch.cast(name + " output", torch.multiply(name, normed, weight.value), x.dtype);
}

Value Model::turned_parts(const std::string& name, const Value& x) {
  const Turn& t = turn_of_all;
  const auto parts = torch.split(name + " halves", x, 2);
  const auto times = [&](const char* what, std::size_t part, const Value& by) {
    const DType type = size_of(by.dtype) > size_of(x.dtype) ? by.dtype : x.dtype;
    return torch.constant_times(name + what, parts[part], by, type);
  };
  const Value first = torch.subtract(name + " first half", times(" a·cos", 0, t.cos), times(" b·sin", 1, t.sin));
  const Value second = torch.add(name + " second half", times(" b·cos", 1, t.cos), times(" a·sin", 0, t.sin));
  return torch.stacked(name + " turned", first, second);
}

Value Model::attend_of_gpt_oss(const BlockWeights& w, const Value& x) {
  const auto apart = [&](const char* name, const Matrix& weight, std::int64_t heads) {
    return torch.heads_in_place(product(name, x, weight), {m.batch, heads, m.len, dim});
  };
  Value q = apart("q", w.q, m.heads), k = apart("k", w.k, kv_heads);
  const Value v = apart("v", w.v, kv_heads);
  {
    Value q_turned = turned_parts("q", q), k_turned = turned_parts("k", k);
    q = std::move(q_turned);
    k = std::move(k_turned);
  }
  Value joined;
  {
    const Value keys = torch.repeated("keys, repeated", k, m.heads / kv_heads),
                values = torch.repeated("values, repeated", v, m.heads / kv_heads);
    Value scores = torch.matmul("q @ k^T", q, torch.transposed(keys));
    scores = torch.scaled("scores, scaled", scores);
    scores = torch.masked("scores, masked", scores, mask);
    Value with = torch.with_sinks("scores and sinks", scores, w.sinks);
    with = torch.subtract("scores less the largest", with, torch.row_maximum("largest score", with));
    const Value shares = torch.softmax("weights and those of sinks", with, Eager::Kept::in_its_type);
    scores = torch.cast("weights as values", torch.without_sinks(shares), values.dtype);
    joined = torch.heads_joined("heads joined", torch.matmul("output", scores, values), {m.batch, m.len, m.heads * dim});
  }
  return product("o", joined, w.o);
}

Value Model::experts_of_gpt_oss(const BlockWeights& w, const Value& h, Eager::Visit pass) {
  const std::int64_t pairs = m.batch * m.len * m.experts_of_token;  // pairs of a token and one of its experts
  const Value logits = product("router", h, w.router);
  const Value weights =
      torch.softmax("weights of experts", torch.best("routing's best", logits, m.experts_of_token), Eager::Kept::in_its_type);
  const Value sorted = torch.make("experts of pairs, sorted", DType::i64, {pairs}),
              order = torch.make("order of pairs", DType::i64, {pairs});
  const Value selected = torch.gathered("tokens of pairs", h, {pairs, m.width});
  const Value of_pairs = torch.gathered("weights of pairs", weights, {pairs, 1}, order);
  const Value narrow = torch.make("experts of pairs, 32 bits", DType::i32, {pairs}),
              ends = torch.make("ends of groups", DType::i32, {m.experts});
  Value biases = torch.gathered("up and gate biases of pairs", w.experts_up_bias.value, {pairs, 2 * m.ffn}, sorted);
  Value made = torch.grouped_product("up and gate of experts", selected, w.experts_up, ends);
  made = torch.added_in_place("up and gate of experts", made, biases);
  {
    const Value gate = torch.clamped("gate, clamped", torch.every_second(made), 1),
                up = torch.clamped("up, clamped", torch.every_second(made), 2);
    const Value turned_on = torch.multiply("gate · sigmoid", gate, torch.sigmoid("sigmoid(α·gate)", torch.scaled("α·gate", gate)));
    made = torch.multiply("(up + 1) · gate · sigmoid", torch.shifted("up + 1", up), turned_on);
  }
  biases = torch.gathered("down biases of pairs", w.experts_down_bias.value, {pairs, m.width}, sorted);
  made = torch.grouped_product("down of experts", made, w.experts_down, ends);
  made = torch.added_in_place("down of experts", made, biases);
  return added_up(made, of_pairs, h, pass);
}

}  // namespace headroom::pytorch
