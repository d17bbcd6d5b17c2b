#include "studies/memory/pytorch/language_model.h"

#include <algorithm>

#include "studies/memory/pytorch/watch.h"

namespace headroom::studies::pytorch {

namespace {

struct BlockWeights {
  Parameter norm1, norm2, q, k, v, o, up, gate, down;
};

struct Model {
  Eager& torch;
  const LanguageModel& m;
  std::int64_t kv_heads, dim;
  Parameter embed, norm_weight, head;
  std::vector<BlockWeights> blocks;
  Value cos, sin;

  Model(Eager& t, const LanguageModel& asked) : torch(t), m(asked) {
    kv_heads = m.kv_heads ? m.kv_heads : m.heads;
    dim = m.head_dim ? m.head_dim : m.width / m.heads;
    const auto weight = [&](const char* name, Shape s) {
      const Value drawn = s.rank == 2 ? torch.make("initial values, not yet scaled", DType::f32, s) : Value{};
      return torch.parameter(name, DType::f32, s);
    };
    const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
    embed = torch.parameter("embedding", DType::f32, {m.vocab, w});
    for (std::int64_t i = 0; i < m.layers; ++i)
      blocks.push_back({weight("norm1", {w}), weight("norm2", {w}), weight("q weight", {qw, w}), weight("k weight", {kw, w}),
                        weight("v weight", {kw, w}), weight("o weight", {w, qw}), weight("up weight", {m.ffn, w}),
                        weight("gate weight", {m.ffn, w}), weight("down weight", {w, m.ffn})});
    norm_weight = weight("final norm", {w});
    head = m.tied ? embed : weight("head", {m.vocab, w});
    cos = torch.make("cos", DType::f32, {m.len, dim / 2});
    sin = torch.make("sin", DType::f32, {m.len, dim / 2});
  }

  template <class Do>
  void each_parameter(Do act) {
    act(embed);
    for (auto& b : blocks)
      for (Parameter* p : {&b.norm1, &b.norm2, &b.q, &b.k, &b.v, &b.o, &b.up, &b.gate, &b.down}) act(*p);
    act(norm_weight);
    if (!m.tied) act(head);
  }

  Value norm(const std::string& name, const Value& x, const Parameter& weight) {
    const Value root = torch.reciprocal_root(name + " 1/rms",
                                             torch.shifted(name + " + eps", torch.row_mean(name + " mean", torch.square(name + " x²", x))));
    const Value normed = torch.multiply(name + " x/rms", x, root);
    return torch.multiply(name, normed, weight.value);
  }

  Value rope(const std::string& name, const Value& x) {
    const Value a = torch.every_second(x), b = torch.every_second(x);
    const Value even = torch.subtract(name + " even", torch.constant_times(name + " a·cos", a, DType::f32),
                                      torch.constant_times(name + " b·sin", b, DType::f32));
    const Value odd = torch.add(name + " odd", torch.constant_times(name + " a·sin", a, DType::f32),
                                torch.constant_times(name + " b·cos", b, DType::f32));
    return torch.stacked(name + " rotated", even, odd);
  }

  Value attend(const BlockWeights& w, const Value& x) {
    const auto apart = [&](const char* name, const Parameter& weight, std::int64_t heads) {
      return torch.heads_apart(torch.linear(name, x, weight), {m.batch, heads, m.len, dim});
    };
    Value q = apart("q", w.q, m.heads), k = apart("k", w.k, kv_heads);
    const Value v = apart("v", w.v, kv_heads);
    {
      Value q_rotated = rope("q", q), k_rotated = rope("k", k);
      q = std::move(q_rotated);
      k = std::move(k_rotated);
    }
    Value o;
    if (m.fused_attention) {
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
    const bool in_place = m.fused_attention && m.precision.dtype == DType::f32;  // as the memory-efficient kernel writes its output
    return torch.linear("o", in_place ? torch.heads_in_place(o, joined) : torch.heads_joined("heads joined", o, joined), w.o);
  }

  Value feed_forward(const BlockWeights& w, const Value& h) {
    const Value active = torch.silu("silu(gate)", torch.linear("gate", h, w.gate));
    return torch.linear("down", torch.multiply("silu(gate)·up", active, torch.linear("up", h, w.up)), w.down);
  }

  Value loss() {
    if (m.precision.dtype != DType::f32) torch.autocast(m.precision.dtype);
    Value x = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      torch.in_block(int(i));
      x = torch.add("attention residual", x, attend(blocks[i], norm("norm1", x, blocks[i].norm1)));
      x = torch.add("feed-forward residual", x, feed_forward(blocks[i], norm("norm2", x, blocks[i].norm2)));
    }
    torch.in_block(-1);
    const Value logits = torch.linear("logits", norm("final norm", x, norm_weight), head);
    x = {};
    Value result = torch.cross_entropy("loss", logits);
    torch.autocast({});
    return result;
  }
};

// Two steps; what is read is the second's, when Adam's moments are there.
LanguageModelAccount run(Process& process, const LanguageModel& m, Watch& watch) {
  Eager& torch = process.torch();
  Allocator& memory = process.memory();
  memory.enter(Phase::parameter);
  Model model(torch, m);
  LanguageModelAccount out;
  model.each_parameter([&](const Parameter& p) { out.params += std::uint64_t(p.value.shape.count()); });
  memory.enter(Phase::input);
  const Value tokens = torch.make("tokens", DType::i64, {m.batch, m.len + 1}),
              inputs = torch.make("input tokens", DType::i64, {m.batch, m.len}),
              targets = torch.make("target tokens", DType::i64, {m.batch, m.len});
  std::vector<Value> moments;
  for (int step = 0; step < (m.until == Until::update ? 2 : 1); ++step) {
    watch.start();
    memory.enter(Phase::forward);
    Value loss = model.loss();
    out.forward_peak_bytes = memory.peak();
    out.before_backward_bytes = memory.live();
    out.train_peak_bytes = memory.peak(), out.held_bytes = memory.live();
    watch.mark_saved();
    if (m.until == Until::forward) break;
    memory.enter(Phase::backward);
    torch.backward(loss, torch.make("dloss", DType::f32, {1}));
    out.forward_backward_peak_bytes = memory.peak();
    out.after_backward_bytes = memory.live();
    out.train_peak_bytes = memory.peak(), out.held_bytes = memory.live();
    if (m.until == Until::backward) break;
    memory.enter(Phase::optimizer);
    if (moments.empty())
      model.each_parameter([&](const Parameter& p) {
        if (m.adam == Adam::fused) moments.push_back(torch.make("Adam's step count", DType::f32, {1}));
        for (auto name : {"Adam's first moment", "Adam's second moment"}) moments.push_back(torch.make(name, DType::f32, p.value.shape));
      });
    std::vector<Value> roots;
    if (m.adam == Adam::foreach)
      model.each_parameter(
          [&](const Parameter& p) { roots.push_back(torch.make("root of the second moment", DType::f32, p.value.shape)); });
    roots.clear();
    out.train_peak_bytes = memory.peak();
    model.each_parameter([](const Parameter& p) { *p.grad = {}; });
    loss = {};
    out.held_bytes = memory.live();
  }
  out.account.before_backward_bytes = out.before_backward_bytes;
  out.account.forward_peak_bytes = out.forward_peak_bytes;
  out.account.backward_peak_bytes = out.forward_backward_peak_bytes;
  out.account.peak_bytes = out.train_peak_bytes;
  return out;
}

struct ModelProbe {
  LanguageModel model;
  std::vector<Symbol> symbols;
};

ModelProbe probe_of(const LanguageModel& m) {  // every size different, and every product of two that is a dimension
  constexpr std::int64_t batch = 19, len = 1021, vocab = 1013, ffn = 1019, width = 557, kv_heads = 7, dim = 26;
  const std::int64_t asked_kv = m.kv_heads ? m.kv_heads : m.heads, asked_dim = m.head_dim ? m.head_dim : m.width / m.heads;
  const std::int64_t heads = asked_kv == m.heads ? kv_heads : 3 * kv_heads;
  ModelProbe out{m,
                 {{"B", batch, m.batch},
                  {"N", len, m.len},
                  {"(N+1)", len + 1, m.len + 1},
                  {"V", vocab, m.vocab},
                  {"F", ffn, m.ffn},
                  {"W", width, m.width},
                  {"H", heads, m.heads},
                  {"D", dim, asked_dim},
                  {"(D/2)", dim / 2, asked_dim / 2}}};
  out.symbols.push_back({m.heads * asked_dim == m.width ? "W" : "H·D", heads * dim, m.heads * asked_dim});
  if (heads != kv_heads) {
    out.symbols.push_back({"Hkv", kv_heads, asked_kv});
    out.symbols.push_back({"Hkv·D", kv_heads * dim, asked_kv * asked_dim});
  }
  LanguageModel& p = out.model;
  p.batch = batch;
  p.len = len;
  p.vocab = vocab;
  p.ffn = ffn;
  p.width = width;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.head_dim = dim;
  return out;
}

}  // namespace

LanguageModelAccount account(const LanguageModel& m, std::uint64_t workspace, Detail detail) {
  check(m.width > 0 && m.ffn > 0 && m.layers > 0 && m.heads > 0 && m.vocab > 0 && m.batch > 0 && m.len > 0, Code::bad_argument,
        "memory model --as pytorch: vocab, width, ffn, layers, heads, batch and len must be at least 1");
  check(m.kv_heads == 0 || (m.kv_heads > 0 && m.heads % m.kv_heads == 0), Code::bad_argument,
        "memory model --as pytorch: kv_heads {} must divide heads {}", m.kv_heads, m.heads);
  check(size_of(m.precision.dtype) >= 2, Code::unsupported,
        "memory model --as pytorch: torch.autocast has no fp8; ask for fp32, tf32, bf16 or fp16");
  Process process(workspace, Count::blocks);
  Watch watch(process.memory());
  LanguageModelAccount out = run(process, m, watch);
  if (detail == Detail::totals) return out;
  Process elsewhere(0);
  Watch probe(elsewhere.memory());
  const auto [sizes, symbols] = probe_of(m);
  run(elsewhere, sizes, probe);
  watch.describe(out.account, false, probe.shapes(), symbols);
  out.account.components = blocks_together(out.account.components);
  return out;
}

}  // namespace headroom::studies::pytorch
