// Mixtral and Qwen3-MoE as transformers writes them: MixtralForCausalLM and Qwen3MoeForCausalLM (5.24). Their experts are three-dimensional parameters and
// run as grouped products (experts_implementation "grouped_mm", the default), so every size is known before a token is routed.
#include <utility>

#include "pytorch/model.h"

namespace headroom::pytorch {

void Model::make_parameters_of_experts() {
  const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
  embed = stored("embedding", {m.vocab, w});
  blocks.reserve(std::size_t(m.layers));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    BlockWeights b;
    b.q = matrix("q weight", qw, w), b.k = matrix("k weight", kw, w), b.v = matrix("v weight", kw, w), b.o = matrix("o weight", w, qw);
    if (m.qk_norm) b.q_norm = stored("q norm", {dim}), b.k_norm = stored("k norm", {dim});
    b.experts_up = stored("experts' up and gate weights", {m.experts, 2 * m.ffn, w});
    b.experts_down = stored("experts' down weights", {m.experts, w, m.ffn});
    b.router = Matrix{stored("router weight", {m.experts, w})};
    b.norm1 = stored("norm1", {w}), b.norm2 = stored("norm2", {w});
    blocks.push_back(std::move(b));
  }
  norm_weight = stored("final norm", {w});
  make_head();
}

Value Model::embedded_of_experts() {
  const Value x = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
  turn_of_all = turn_of_positions("");
  standing_in_forward = {x.saved(), turn_of_all.cos, turn_of_all.sin};
  if (!m.fused_attention) standing_in_forward.push_back(mask = mask_of("mask", x.dtype));
  return x;
}

Value Model::norm_of_transformers(const std::string& name, const Value& x, const Parameter& weight, Eager::Visit pass) {
  const Value wide = torch.cast(name + " input as fp32", x, DType::f32);
  const Value mean = torch.row_mean(name + " mean", torch.square(name + " x²", wide));
  const Value normed = torch.multiply(name + " x/rms", wide, torch.reciprocal_root(name + " 1/rms", torch.shifted(name + " + eps", mean)));
  return torch.multiply(name, torch.cast(name + " x/rms as its input", normed, x.dtype), weight.value, pass);
}

Value Model::experts_of(const BlockWeights& w, const Value& h, Eager::Visit pass) {
  const std::int64_t pairs = m.batch * m.len * m.experts_of_token;  // pairs of a token and one of its experts
  const Value logits = product("router", h, w.router);
  Value weights;
  {
    const Value shares = torch.softmax("routing", torch.cast("router as fp32", logits, DType::f32));
    weights = torch.shares_of_best("weights of experts", torch.best("routing's best", shares, m.experts_of_token));
    if (!m.routing_in_fp32) weights = torch.cast("weights of experts as the router", weights, logits.dtype);
  }
  Value sorted, selected, of_pairs;
  {
    sorted = torch.make("experts of pairs, sorted", DType::i64, {pairs});
    const Value order = torch.make("order of pairs", DType::i64, {pairs});
    { const Value scratch = torch.make("order of pairs, being made", DType::i64, {pairs}); }
    selected = torch.gathered("tokens of pairs", h, {pairs, m.width});
    of_pairs = torch.gathered("weights of pairs", weights, {pairs, 1}, order);
  }
  const Value narrow = torch.make("experts of pairs, 32 bits", DType::i32, {pairs}),
              ends = torch.make("ends of groups", DType::i32, {m.experts});
  Value made = torch.grouped_product("up and gate of experts", selected, w.experts_up, ends);
  {
    const auto parts = torch.split("up and gate of experts", made, 2);
    made = torch.multiply("silu(gate)·up of experts", torch.silu("silu(gate) of experts", parts[0]), parts[1]);
  }
  made = torch.grouped_product("down of experts", made, w.experts_down, ends);
  return added_up(made, of_pairs, h, pass);
}

Value Model::added_up(const Value& made, const Value& of_pairs, const Value& h, Eager::Visit pass) {
  Value weighted = torch.multiply("weighted outputs of pairs", made, of_pairs);
  weighted = torch.gathered("weighted outputs in order", weighted, made.shape);
  const Value sum =
      torch.summed_experts("outputs of experts, added up", weighted, h.shape, weighted.dtype == h.dtype ? pass : Eager::Visit::first);
  return torch.cast("outputs of experts", sum, h.dtype, pass);
}

Value Model::block_of_experts(std::size_t i, const Value& x, Eager::Visit pass) {
  const BlockWeights& w = blocks[i];
  const bool gpt_oss = m.family == Family::gpt_oss;
  const auto norm = [&](const char* name, const Value& v, const Parameter& weight) {
    return gpt_oss ? norm_of_gpt_oss(name, v, weight) : norm_of_transformers(name, v, weight);
  };
  Value h = norm("norm1", x, w.norm1);
  h = gpt_oss ? attend_of_gpt_oss(w, h) : attend_of_transformers(i, h);
  const Value middle = torch.add("attention residual", x, h);
  h = {};
  h = norm("norm2", middle, w.norm2);
  h = gpt_oss ? experts_of_gpt_oss(w, h, pass) : experts_of(w, h, pass);
  return torch.add("feed-forward residual", middle, h, pass);
}

}  // namespace headroom::pytorch
