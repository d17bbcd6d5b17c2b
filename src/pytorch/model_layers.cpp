// The layers of a Llama, and the forward pass of any model.
#include <algorithm>
#include <cmath>
#include <utility>

#include "pytorch/model.h"

namespace headroom::pytorch {

namespace {

BlockParameters parameters_of(const BlockWeights& b) {
  return {&b.norm1, &b.norm2, &b.q.weight, &b.k.weight, &b.v.weight, &b.o.weight, &b.up.weight, &b.gate.weight, &b.down.weight};
}

std::vector<const Parameter*> adapters_of(const BlockWeights& b) {
  std::vector<const Parameter*> all;
  for (const Matrix* x : {&b.q, &b.k, &b.v, &b.o, &b.up, &b.gate, &b.down})
    for (const Parameter* p : {&x->a, &x->b})
      if (p->value) all.push_back(p);
  return all;
}
}  // namespace

Value Model::product(const std::string& name, const Value& x, const Matrix& w, Eager::Visit pass) {
  const auto whole = [&](Eager::Visit when) {
    const Value y =
        w.of_4bit.rank > 0 ? torch.linear_4bit(name, x, w.weight.value, w.of_4bit, low, when) : torch.linear(name, x, w.weight, when);
    return w.bias.value ? torch.biased(name, y, w.bias) : y;
  };
  if (!w.a.value) return whole(pass);
  const Value y = whole(Eager::Visit::first);
  Value more;
  {
    const Value raised = torch.linear(name + " adapter b", torch.linear(name + " adapter a", x, w.a), w.b, pass);
    more = pass == Eager::Visit::again ? raised : torch.scaled(name + " adapter", raised);
  }
  return torch.add(name + " adapted", y, more, pass);
}

Value Model::norm(const std::string& name, const Value& x, const Parameter& weight) {
  if (m.fused_norms) return torch.rms_norm(name, x, weight);
  const DType type = x.dtype;
  const Value wide = torch.cast(name + " input as fp32", x, DType::f32);
  const Value root = torch.reciprocal_root(
      name + " 1/rms", torch.shifted(name + " + eps", torch.row_mean(name + " mean", torch.square(name + " x²", wide))));
  const Value normed = torch.multiply(name + " x/rms", wide, root);
  return torch.cast(name + " output", torch.multiply(name, normed, weight.value), type);
}

Value Model::rope(const std::string& name, const Value& x, const Turn& t) {
  const DType type = size_of(t.cos.dtype) > size_of(x.dtype) ? t.cos.dtype : x.dtype;
  const Value a = torch.every_second(x), b = torch.every_second(x);
  const Value even = torch.subtract(name + " even", torch.constant_times(name + " a·cos", a, t.cos, type),
                                    torch.constant_times(name + " b·sin", b, t.sin, type));
  const Value odd = torch.add(name + " odd", torch.constant_times(name + " a·sin", a, t.sin, type),
                              torch.constant_times(name + " b·cos", b, t.cos, type));
  return torch.stacked(name + " rotated", even, odd);
}

Value Model::attend(const BlockWeights& w, const Value& x, const Turn& t) {
  const auto apart = [&](const char* name, const Matrix& weight, std::int64_t heads) {
    return torch.heads_apart(product(name, x, weight), {m.batch, heads, m.len, dim});
  };
  Value q = apart("q", w.q, m.heads), k = apart("k", w.k, kv_heads);
  if (m.qk_norm) {
    q = norm("q norm", q, w.q_norm);
    k = norm("k norm", k, w.k_norm);
  }
  const Value v = apart("v", w.v, kv_heads);
  {
    Value q_rotated = rope("q", q, t), k_rotated = rope("k", k, t);
    q = std::move(q_rotated);
    k = std::move(k_rotated);
  }
  Value o;
  if (m.math_attention) {
    const Value keys = torch.repeated("keys, repeated", k, m.heads / kv_heads);
    const Value values = torch.repeated("values, repeated", v, m.heads / kv_heads);
    const Value scores = torch.matmul("q @ k^T", torch.scaled("q, scaled", q), torch.transposed(torch.scaled("keys, scaled", keys)));
    o = torch.matmul("output", torch.softmax("weights", scores), values);
  } else if (m.fused_attention) {
    o = torch.fused_attention("attention", q, torch.repeated("keys, repeated", k, m.heads / kv_heads),
                              torch.repeated("values, repeated", v, m.heads / kv_heads));
  } else {
    Value mask;
    {
      const Value ones = torch.make("ones", DType::u8, {m.len, m.len});
      mask = torch.make("mask", DType::u8, {m.len, m.len});
    }
    o = naive_attention(torch, m.softmax, m.heads / kv_heads, q, k, v, mask);
  }
  const Shape joined{m.batch, m.len, m.heads * dim};
  const bool in_place =
      m.fused_attention && !m.math_attention && m.precision.dtype == DType::f32;  // as the memory-efficient kernel writes its output
  return product("o", in_place ? torch.heads_in_place(o, joined) : torch.heads_joined("heads joined", o, joined), w.o);
}

Value Model::feed_forward(const BlockWeights& w, const Value& h, Eager::Visit pass) {
  const auto silu = [&](const Value& gate) {
    return m.silu == Silu::builtin ? torch.silu("silu(gate)", gate)
                                   : torch.multiply("silu(gate)", gate, torch.sigmoid("sigmoid(gate)", gate));
  };
  const Value active = silu(product("gate", h, w.gate));
  return product("down", torch.multiply("silu(gate)·up", active, product("up", h, w.up)), w.down, pass);
}

Value Model::whole_block(std::size_t i, Value x, const Turn& t, Eager::Visit pass) {
  torch.in_block(int(i));
  const BlockWeights& w = blocks[i];
  if (m.family == Family::gpt2) return block_of_gpt2(w, std::move(x), pass);
  if (m.family == Family::gemma) return block_of_gemma(i, std::move(x), pass);
  if (m.family == Family::experts || m.family == Family::gpt_oss) return block_of_experts(i, x, pass);
  x = torch.add("attention residual", x, attend(w, norm("norm1", x, w.norm1), t));
  return torch.add("feed-forward residual", x, feed_forward(w, norm("norm2", x, w.norm2), pass), pass);
}

// What a compiled block keeps beside its own: the rotations as FSDP2 casts them, and what the adapters' first halves make.
std::vector<Value> Model::lasting(const Turn& t) {
  std::vector<Value> all;
  if (m.sharded()) all = {t.cos, t.sin};
  if (m.lora > 0 && m.keep.first() == engine::Keep::everything)
    all.push_back(torch.make("adapters' products", low, {m.batch * m.len, 7 * m.lora}));
  return all;
}

Value Model::block(std::size_t i, Value x, Eager::Visit pass) {
  Turn t{cos, sin};
  if (m.sharded()) {
    torch.in_block(int(i));
    t = {torch.cast("cos as it is used", cos, low), torch.cast("sin as it is used", sin, low)};
    gather(groups[i], When::forward);
    x = torch.when_backward(x, [this, i] { scatter(groups[i]); });
  }
  Value out = m.compile == Compile::blocks ? compiled.block(int(i), x, parameters_of(blocks[i]), lasting(t),
                                                            m.keep.first() != engine::Keep::input ? Compiled::Keeps::all
                                                            : m.offload_inputs                    ? Compiled::Keeps::input_on_host
                                                                                                  : Compiled::Keeps::input,
                                                            adapters_of(blocks[i]))
              : m.keep.first() == engine::Keep::input || m.selective == Selective::ops || (m.selective == Selective::blocks && i % 2 == 1)
                  ? torch.checkpointed(
                        "block", x, [this, i, t](const Value& in, Eager::Visit p) { return whole_block(i, in, t, p); }, pass,
                        m.selective == Selective::ops ? Eager::Keeps::selected
                        : m.offload_inputs            ? Eager::Keeps::input_on_host
                                                      : Eager::Keeps::input)
                  : whole_block(i, std::move(x), t, pass);
  x = {};
  if (!m.sharded()) return out;
  if (m.shard == engine::Sharding::everything) release(groups[i]);
  return torch.when_backward(out, [this, i] {
    gather(groups[i], When::backward);
    if (i > 0) begin_gather(groups[i - 1]);
  });
}

Value Model::several(std::size_t begin, std::size_t end, Value x, Eager::Visit pass) {
  for (std::size_t i = begin; i < end; ++i) x = block(i, std::move(x), i + 1 == end ? pass : Eager::Visit::first);
  return x;
}

Value Model::embedded() {
  switch (m.family) {
    case Family::gpt2: return embedded_of_gpt2();
    case Family::gemma: return embedded_of_gemma();
    case Family::experts: return embedded_of_experts();
    case Family::gpt_oss: return embedded_of_gpt_oss();
    case Family::llama: break;
  }
  return torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
}

Value Model::last_norm(const Value& x) {
  switch (m.family) {
    case Family::gpt2: return torch.layer_norm("final norm", x, norm_weight, norm_bias);
    case Family::gemma: return norm_of_gemma("final norm", x, norm_weight, Eager::Visit::first);
    case Family::experts: return norm_of_transformers("final norm", x, norm_weight);
    case Family::gpt_oss: return norm_of_gpt_oss("final norm", x, norm_weight);
    case Family::llama: break;
  }
  return norm("final norm", x, norm_weight);
}

Value Model::loss() {
  if (m.compile == Compile::model) {
    std::vector<BlockParameters> all;
    for (const BlockWeights& b : blocks) all.push_back(parameters_of(b));
    return compiled.model({&embed, &norm_weight, &head.weight, m.tied}, all);
  }
  if (low != DType::f32 && m.autocasts()) torch.autocast(low);
  if (m.sharded()) gather(groups.back(), When::forward);
  Value x = embedded();
  const std::size_t group = m.keep.group == 0 ? std::size_t(std::ceil(std::sqrt(double(m.layers)))) : std::size_t(m.keep.group);
  for (std::size_t begin = 0; begin < blocks.size(); begin += group) {
    const std::size_t end = std::min(blocks.size(), begin + group);
    x = group == 1 ? block(begin, std::move(x), Eager::Visit::first)
                   : torch.checkpointed("group of blocks", x,
                                        [this, begin, end](const Value& in, Eager::Visit p) { return several(begin, end, in, p); });
  }
  torch.in_block(-1);
  const auto gathers = [this](Value out) {  // in backward, before what comes before it
    if (!m.sharded()) return out;
    return torch.when_backward(out, [this] {
      gather(groups.back(), When::backward);
      begin_gather(groups[blocks.size() - 1]);
    });
  };
  const auto final_norm = [&] {
    Value h = last_norm(x);
    x = {};
    standing_in_forward.clear();
    mask = {}, turn_of_all = {}, turn_of_windows = {};
    if (m.family == Family::llama) left_over = {};  // the root's forward pass is over; transformers' has the loss within
    return h;
  };
  Value result;
  if (m.loss == Loss::whole || m.loss == Loss::in_fp32) {
    const Value h = final_norm();
    Value logits = product("logits", h, head);
    if (m.capped_logits) {
      logits = torch.scaled("logits / cap", logits);
      logits = torch.sigmoid("tanh(logits / cap)", logits);
      logits = torch.scaled("capped logits", logits);
    }
    if (m.family == Family::llama) logits = gathers(std::move(logits));
    const Value held_on = m.family == Family::llama ? Value{} : logits;  // by a variable
    if (m.loss == Loss::in_fp32) logits = torch.cast("logits as fp32", logits, DType::f32);
    result = torch.cross_entropy("loss", logits);
    if (m.family != Family::llama) result = gathers(std::move(result));  // the loss is made within the root's forward pass
  } else {
    const Value h = final_norm();
    result = gathers(torch.chunked_loss("loss", h, head.weight,
                                        m.loss == Loss::fused     ? Eager::Chunks::fused
                                        : m.loss == Loss::chunked ? Eager::Chunks::eager
                                                                  : Eager::Chunks::compiled));
  }
  left_over = {};
  torch.autocast({});
  return result;
}

void Model::backward(Value loss) {
  const DType type = loss.dtype;
  torch.backward(std::move(loss), torch.make("dloss", type, {1}));
  if (!m.sharded()) return;
  for (std::size_t i = blocks.size(); i-- > 0;)  // where no gradient reached a block's input
    if (groups[i].whole) scatter(groups[i]);
  scatter(groups.back());
  scattered = {}, left_over = {};
}
void Model::zero_grad() {
  for (Group& g : groups) g.reduced = {};
  if (m.gpus > 1 && !m.sharded()) return;  // only the bucket's view goes
  for (const Parameter& p : trained) *p.grad = {};
}
}  // namespace headroom::pytorch
