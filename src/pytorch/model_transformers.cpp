// GPT-2 and Gemma as transformers writes them: GPT2LMHeadModel, GemmaForCausalLM, Gemma2ForCausalLM and Gemma3ForCausalLM (5.17). A variable of Python that
// holds a tensor longer than it is read holds it here, too.
#include <algorithm>
#include <utility>

#include "pytorch/model.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

void Model::make_parameters_of_gpt2() {
  const std::int64_t w = m.width;
  const auto conv1d = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    Matrix x{stored(name + " weight", {in, out})};
    x.bias = stored(name + " bias", {out});
    return x;
  };
  embed = stored("embedding", {m.vocab, w});
  positions = stored("learned positions", {m.positions, w});
  blocks.reserve(std::size_t(m.layers));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    BlockWeights b;
    b.norm1 = stored("norm1", {w}), b.norm1_bias = stored("norm1 bias", {w});
    b.qkv = conv1d("qkv", 3 * w, w), b.o = conv1d("o", w, w);
    b.norm2 = stored("norm2", {w}), b.norm2_bias = stored("norm2 bias", {w});
    b.up = conv1d("up", m.ffn, w), b.down = conv1d("down", w, m.ffn);
    blocks.push_back(std::move(b));
  }
  norm_weight = stored("final norm", {w}), norm_bias = stored("final norm bias", {w});
  make_head();
}

void Model::make_parameters_of_gemma() {
  const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
  embed = stored("embedding", {m.vocab, w});
  blocks.reserve(std::size_t(m.layers));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    BlockWeights b;
    b.q = matrix("q weight", qw, w), b.k = matrix("k weight", kw, w), b.v = matrix("v weight", kw, w), b.o = matrix("o weight", w, qw);
    if (m.qk_norm) b.q_norm = stored("q norm", {dim}), b.k_norm = stored("k norm", {dim});
    b.gate = matrix("gate weight", m.ffn, w), b.up = matrix("up weight", m.ffn, w), b.down = matrix("down weight", w, m.ffn);
    b.norm1 = stored("norm1", {w});
    if (m.norms_after) b.attention_norm = stored("norm behind attention", {w});
    b.norm2 = stored("norm2", {w});
    if (m.norms_after) b.feed_forward_norm = stored("norm behind feed-forward", {w});
    blocks.push_back(std::move(b));
  }
  norm_weight = stored("final norm", {w});
  make_head();
}

void Model::make_head() {  // before the embedding takes its place
  const Value own = torch.make("the head's own weight", held, {m.vocab, m.width});
  head = Matrix{m.tied ? embed : stored("head", {m.vocab, m.width})};
}

Value Model::embedded_of_gpt2() {
  Value sum;
  {
    const Value rows = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width),
                places = torch.embedding("embedded positions", positions, {1, m.len}, m.width);
    standing_in_forward = {rows.saved(), places.saved()};
    if (!m.fused_attention) standing_in_forward.push_back(mask = mask_of("mask", rows.dtype));
    sum = torch.add_to_each("tokens and positions", rows, places);
  }
  return m.dropout ? torch.dropout("embedding dropout", sum) : sum;
}

Value Model::block_of_gpt2(const BlockWeights& w, Value x, Eager::Visit pass) {
  const auto dropped = [&](const std::string& name, const Value& v) { return m.dropout ? torch.dropout(name + " dropout", v) : v; };
  Value h = torch.layer_norm("norm1", x, w.norm1, w.norm1_bias), attended;
  {
    const auto parts = torch.split("q, k and v", torch.conv1d("qkv", h, w.qkv.weight, w.qkv.bias), 3);
    const Shape apart{m.batch, m.heads, m.len, dim}, joined{m.batch, m.len, m.width};
    const auto heads = [&](std::size_t i) { return torch.heads_in_place(parts[i], apart); };
    const Value o = m.fused_attention ? torch.heads_in_place(torch.fused_attention("attention", heads(0), heads(1), heads(2)), joined)
                                      : plain_attention(heads(0), heads(1), heads(2));
    attended = dropped("o", torch.conv1d("o", o, w.o.weight, w.o.bias));
  }
  x = torch.add("attention residual", attended, x);
  h = {};
  h = torch.layer_norm("norm2", x, w.norm2, w.norm2_bias);
  Value active;
  {
    const Value up = torch.conv1d("up", h, w.up.weight, w.up.bias);
    active = m.written_out_gelu ? torch.written_out_gelu("gelu", up) : torch.gelu("gelu", up);
  }
  Value down = torch.conv1d("down", active, w.down.weight, w.down.bias, m.dropout ? Eager::Visit::first : pass);
  active = {};
  down = dropped("down", down);
  return torch.add("feed-forward residual", x, down, pass);
}

Value Model::mask_of(const std::string& name, DType type) { return torch.make(name, type, {m.batch, 1, m.len, m.len}); }

// eager_attention_forward of each: whole matrices of scores, to which a mask is added. GPT-2 drops weights, Gemma 2 caps scores.
Value Model::plain_attention(const Value& q, const Value& k, const Value& v) {
  const std::int64_t times = m.heads / k.shape[1];
  const Value keys = torch.repeated("keys, repeated", k, times), values = torch.repeated("values, repeated", v, times);
  Value scores = torch.matmul("q @ k^T", q, torch.transposed(keys));
  scores = torch.scaled("scores, scaled", scores);
  if (m.capped_scores) {
    scores = torch.scaled("scores / cap", scores);
    scores = torch.sigmoid("tanh(scores / cap)", scores);
    scores = torch.scaled("scores, capped", scores);
  }
  scores = torch.masked("scores, masked", scores, mask);
  const bool in_fp32 = m.family != Family::gpt2;
  scores = torch.softmax("weights", in_fp32 ? torch.cast("scores as fp32", scores, DType::f32) : scores);
  scores = torch.cast("weights as they are used", scores, in_fp32 ? q.dtype : v.dtype);
  if (m.family == Family::gpt2 && m.dropout) scores = torch.dropout("weights dropout", scores);
  return torch.heads_joined("heads joined", torch.matmul("output", scores, values), {m.batch, m.len, m.heads * dim});
}

Model::Turn Model::turn_of_positions(const std::string& of) {
  const DType type = m.autocasts() && held == DType::f32 ? DType::f32 : low;
  const auto one = [&](const std::string& what) { return torch.make(what + of, type, {1, m.len, dim}); };
  torch.touch_workspace();
  return {one("cos"), one("sin")};
}

Value Model::embedded_of_gemma() {
  Value x;
  {
    const Value rows = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
    x = torch.scaled("scaled tokens", rows);
  }
  standing_in_forward = {x.saved()};
  if (!m.fused_attention) {
    standing_in_forward.push_back(mask = mask_of("mask", x.dtype));
    const bool windows = std::ranges::any_of(m.windows, [](std::int64_t w) { return w > 0; });
    if (windows) standing_in_forward.push_back(mask_of("mask of windows", x.dtype));
  }
  const bool sliding =
      m.fused_attention && !m.capped_scores && std::ranges::any_of(m.windows, [this](std::int64_t w) { return w > 0 && m.len >= w; });
  if (sliding) standing_in_forward.push_back(mask = torch.make("mask of windows", DType::u8, {1, 1, m.len, m.len}));
  turn_of_all = turn_of_positions("");
  turn_of_windows = m.qk_norm ? turn_of_positions(" of windows") : turn_of_all;
  for (const Turn& t : {turn_of_all, turn_of_windows}) standing_in_forward.push_back(t.cos), standing_in_forward.push_back(t.sin);
  return x;
}

Value Model::norm_of_gemma(const std::string& name, const Value& x, const Parameter& weight, Eager::Visit pass) {
  Value out;
  {
    const Value wide = torch.cast(name + " input as fp32", x, DType::f32);
    Value root = torch.square(name + " x²", wide);
    root = torch.row_mean(name + " mean", root);
    root = torch.shifted(name + " + eps", root);
    root = torch.reciprocal_root(name + " 1/rms", root);
    const Value normed = torch.multiply(name + " x/rms", wide, root);
    root = {};
    const Value factor = torch.shifted(name + " 1 + weight", torch.cast(name + " weight as fp32", weight.value, DType::f32));
    out = torch.multiply(name, normed, factor, pass);
  }
  return torch.cast(name + " output", out, x.dtype, pass);
}

Value Model::turned_halves(const std::string& name, const Value& x, const Turn& t) {
  const DType type = size_of(t.cos.dtype) > size_of(x.dtype) ? t.cos.dtype : x.dtype;
  const Value cosines = torch.constant_times(name + " · cos", x, t.cos, type);
  Value turned;
  {
    const Value first = torch.every_second(x);
    Value negated = torch.scaled(name + " negated half", torch.every_second(x));
    turned = torch.stacked(name + " half turned", negated, first);
  }
  turned = torch.constant_times(name + " · sin", turned, t.sin, type);
  return torch.add(name + " turned", cosines, turned);
}

Value Model::attend_of_transformers(std::size_t i, const Value& x) {
  const BlockWeights& w = blocks[i];
  const std::int64_t window = m.windows.empty() ? 0 : m.windows[i];
  const Turn& t = window > 0 ? turn_of_windows : turn_of_all;
  const auto apart = [&](const char* name, const Matrix& weight, std::int64_t heads) {
    return torch.heads_in_place(product(name, x, weight), {m.batch, heads, m.len, dim});
  };
  Value q = apart("q", w.q, m.heads), k = apart("k", w.k, kv_heads);
  const Value v = apart("v", w.v, kv_heads);
  if (m.qk_norm) {
    const auto norm_of_heads = [&](const char* name, const Value& v, const Parameter& weight) {
      return m.family == Family::gemma ? norm_of_gemma(name, v, weight, Eager::Visit::first) : norm_of_transformers(name, v, weight);
    };
    q = norm_of_heads("q norm", q, w.q_norm);
    k = norm_of_heads("k norm", k, w.k_norm);
  }
  {
    Value q_turned = turned_halves("q", q, t), k_turned = turned_halves("k", k, t);
    q = std::move(q_turned);
    k = std::move(k_turned);
  }
  const bool masked = window > 0 && m.len >= window && !m.capped_scores;  // scores are capped by flash-attn, which has windows of its own
  Value o;
  if (!m.fused_attention) return product("o", plain_attention(q, k, v), w.o);
  if (masked) {
    const std::int64_t times = m.heads / kv_heads;
    // Not as arguments, which compilers make in either order. Keys before values would put a peak of Gemma 3's 0.3 % below the measured one, not 0.1 %.
    Value values = torch.for_each_head("values", v, times), keys = torch.for_each_head("keys", k, times);
    o = torch.fused_attention("attention", q, std::move(keys), std::move(values), mask);
  } else {
    o = torch.fused_attention("attention", q, k, v);
  }
  return product("o", torch.heads_in_place(o, {m.batch, m.len, m.heads * dim}), w.o);
}

Value Model::block_of_gemma(std::size_t i, Value x, Eager::Visit pass) {
  const BlockWeights& w = blocks[i];
  const auto first = Eager::Visit::first;
  Value h = norm_of_gemma("norm1", x, w.norm1, first);
  h = attend_of_transformers(i, h);
  if (m.norms_after) h = norm_of_gemma("norm behind attention", h, w.attention_norm, first);
  x = torch.add("attention residual", x, h);
  h = {};
  h = norm_of_gemma("norm2", x, w.norm2, first);
  {
    const Value gate = torch.gelu("gelu(gate)", product("gate", h, w.gate)), up = product("up", h, w.up);
    Value active = torch.multiply("gelu(gate)·up", gate, up);
    h = product("down", active, w.down, m.norms_after ? first : pass);
  }
  if (m.norms_after) h = norm_of_gemma("norm behind feed-forward", h, w.feed_forward_norm, pass);
  return torch.add("feed-forward residual", x, h, pass);
}

}  // namespace headroom::pytorch
