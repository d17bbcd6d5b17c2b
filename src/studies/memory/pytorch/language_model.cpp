#include "studies/memory/pytorch/language_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "studies/memory/pytorch/compiled.h"
#include "studies/memory/pytorch/optimizer.h"
#include "studies/memory/pytorch/watch.h"

namespace headroom::studies::pytorch {

namespace {

struct Matrix {
  Parameter weight, a = {}, b = {};  // a, b: adapters where there are any
  Parameter bias = {};               // where there is one
  Shape of_4bit = {};                // [out, in] of a weight that is packed
};
struct BlockWeights {
  Parameter norm1, norm2;
  Matrix q, k, v, o, up, gate, down;
  Parameter q_norm, k_norm;  // where there are any
};

std::int64_t up_to(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// FSDP2's group of parameters: sharded in FP32, gathered in the compute type.
struct Group {
  std::vector<Parameter> params;  // gathered; without bytes in between
  std::int64_t shard = 0;         // numbers of one rank
  bool whole = false;
  Value arriving, reduced;  // what all ranks have sent; the gradient's shard
};

struct Model {
  Eager& torch;
  const LanguageModel& m;
  std::int64_t kv_heads, dim;
  DType low, held;  // the compute type; of parameters as they are stored
  std::uint64_t params = 0;
  Parameter embed, norm_weight;
  Matrix head;
  std::vector<BlockWeights> blocks;
  std::vector<Group> groups;    // of each block, and of what is left
  std::vector<Value> standing;  // shards, buckets of DDP, scales of packed weights
  std::vector<Parameter> trained;
  Optimizer optimizer;
  Value cos, sin;
  Compiled compiled;
  Value left_over, scattered;  // FSDP2 frees a gathered buffer after the next gather, a scattered one before the next scatter

  static Compiled::Sizes sizes_of(const LanguageModel& m) {
    return {.batch = m.batch,
            .len = m.len,
            .width = m.width,
            .heads = m.heads,
            .kv_heads = m.key_heads(),
            .dim = m.dim_of_head(),
            .ffn = m.ffn,
            .vocab = m.vocab,
            .low = m.precision.dtype,
            .casts = m.precision.dtype != DType::f32 && m.autocasts(),
            .written_out = m.base == Base::four_bit ? m.width * std::max(m.ffn, m.heads * m.dim_of_head()) : 0};
  }
  static BlockParameters parameters_of(const BlockWeights& b) {
    return {&b.norm1, &b.norm2, &b.q.weight, &b.k.weight, &b.v.weight, &b.o.weight, &b.up.weight, &b.gate.weight, &b.down.weight};
  }

  static DType held_in(const LanguageModel& m) { return m.lora > 0 || m.parameters == Parameters::half ? m.precision.dtype : DType::f32; }
  static DType updated_in(const LanguageModel& m) {  // adapters are FP32
    return m.lora > 0 && m.parameters == Parameters::whole ? DType::f32 : held_in(m);
  }

  Model(Eager& t, const LanguageModel& asked)
      : torch(t),
        m(asked),
        low(asked.precision.dtype),
        held(held_in(asked)),
        optimizer(t, asked, updated_in(asked)),
        compiled(t, sizes_of(asked)) {
    kv_heads = m.key_heads();
    dim = m.dim_of_head();
    const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
    const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in, bool adapt = true) {
      {
        const Value drawn = torch.make("initial values, not yet scaled", DType::f32, {out, in});
        if (held != DType::f32) const Value wide = torch.make("initial values", DType::f32, {out, in});
      }
      Matrix x = m.base == Base::four_bit && adapt ? packed(name, {out, in}) : Matrix{stored(name, {out, in})};
      if (m.lora == 0 || !adapt) return x;
      x.a = adapter(std::string(name) + " adapter a", {m.lora, in});
      x.b = adapter(std::string(name) + " adapter b", {out, m.lora});
      return x;
    };
    embed = stored("embedding", {m.vocab, w});
    blocks.reserve(std::size_t(m.layers));
    for (std::int64_t i = 0; i < m.layers; ++i) {
      BlockWeights b;
      b.norm1 = stored("norm1", {w}), b.norm2 = stored("norm2", {w});
      b.q = matrix("q weight", qw, w), b.k = matrix("k weight", kw, w), b.v = matrix("v weight", kw, w);
      if (m.qkv_bias) b.q.bias = stored("q bias", {qw}), b.k.bias = stored("k bias", {kw}), b.v.bias = stored("v bias", {kw});
      if (m.qk_norm) b.q_norm = stored("q norm", {dim}), b.k_norm = stored("k norm", {dim});
      b.o = matrix("o weight", w, qw);
      b.up = matrix("up weight", m.ffn, w), b.gate = matrix("gate weight", m.ffn, w), b.down = matrix("down weight", w, m.ffn);
      blocks.push_back(std::move(b));
    }
    norm_weight = stored("final norm", {w});
    head = m.tied ? Matrix{embed} : matrix("head", m.vocab, w, false);
    const DType turns = m.parameters == Parameters::half ? low : DType::f32;  // as the stream, or q and k would become FP32
    cos = torch.make("cos", turns, {m.len, dim / 2});
    sin = torch.make("sin", turns, {m.len, dim / 2});
    if (m.sharded()) shard_all();
    for (const Parameter& p : trained)
      if (!m.sharded()) optimizer.sees(p.value.shape);
    if (m.gpus > 1 && !m.sharded()) make_buckets();
  }

  Parameter stored(const std::string& name, Shape s) {
    params += std::uint64_t(s.count());
    if (m.lora > 0) return torch.frozen(name, held, s);
    return adapter_of(torch.parameter(name, held, s));
  }
  // NF4 with double quantisation: 4 bits a number, 8 for every 64 of them, and 32 for every 256 of those.
  Matrix packed(const std::string& name, Shape s) {
    params += std::uint64_t(s.count());
    const std::int64_t scales = (s.count() + 63) / 64;
    Matrix x;
    x.weight = torch.frozen(name + ", 4 bits", DType::u8, {(s.count() + 1) / 2});
    x.of_4bit = s;
    standing.push_back(torch.make(name + ", scales", DType::u8, {scales}));
    standing.push_back(torch.make(name + ", scales of scales", DType::f32, {(scales + 255) / 256}));
    return x;
  }
  Parameter adapter(const std::string& name, Shape s) {
    { const Value drawn = torch.make("initial values, not yet scaled", DType::f32, s); }
    params += std::uint64_t(s.count());
    return adapter_of(torch.parameter(name, optimizer.type(), s));
  }
  Parameter adapter_of(Parameter p) {
    trained.push_back(p);
    return p;
  }

  // ---- several GPUs

  void shard_all() {
    trained.clear();
    const auto shard_one = [&](Parameter& p, Group& g, const char* name) {
      Shape local = p.value.shape;
      local.dim[0] = up_to(local.dim[0], m.gpus) / m.gpus;
      standing.push_back(torch.make(std::string(name) + ", this rank's part", held, local));
      optimizer.sees(local);
      const Shape real = p.value.shape;
      Shape padded = real;
      padded.dim[0] = local.dim[0] * m.gpus;
      p = {};
      p = torch.parameter(name, {torch.memory().make_empty(name, low, padded), low, real, Layout::fresh, nullptr});
      g.shard += local.count();
      g.params.push_back(p);
      trained.push_back(p);
    };
    groups.resize(blocks.size() + 1);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      BlockWeights& b = blocks[i];
      shard_one(b.norm1, groups[i], "norm1"), shard_one(b.norm2, groups[i], "norm2");
      const auto matrix = [&](Matrix& x, const char* name) { shard_one(x.weight, groups[i], name); };
      matrix(b.q, "q weight"), matrix(b.k, "k weight"), matrix(b.v, "v weight"), matrix(b.o, "o weight");
      if (m.qkv_bias)
        shard_one(b.q.bias, groups[i], "q bias"), shard_one(b.k.bias, groups[i], "k bias"), shard_one(b.v.bias, groups[i], "v bias");
      if (m.qk_norm) shard_one(b.q_norm, groups[i], "q norm"), shard_one(b.k_norm, groups[i], "k norm");
      matrix(b.up, "up weight"), matrix(b.gate, "gate weight"), matrix(b.down, "down weight");
    }
    shard_one(embed, groups.back(), "embedding");
    shard_one(norm_weight, groups.back(), "final norm");
    if (m.tied)
      head.weight = embed;
    else
      shard_one(head.weight, groups.back(), "head");
  }

  enum class When : std::uint8_t { forward, backward };
  void begin_gather(Group& g) {
    if (g.whole || g.arriving) return;
    torch.memory().on_stream(1);
    {
      Value sent;
      if (low != held) sent = torch.make("this rank's part, to be gathered", low, {g.shard});
      g.arriving = torch.make("gathered weights", low, {m.gpus, g.shard});
    }
    torch.memory().on_stream(0);
  }
  void gather(Group& g, When when) {
    begin_gather(g);
    if (!g.arriving) return;
    for (Parameter& p : g.params) p.value.storage->refill();
    g.whole = true;
    if (when == When::forward) left_over = std::move(g.arriving);  // what was left before goes now, in PyTorch 2.11
    g.arriving = {};
  }
  void release(Group& g) {
    for (Parameter& p : g.params) p.value.storage->resize_to_nothing();
    g.whole = false;
  }
  void scatter(Group& g) {
    std::vector<Value> grads;
    for (Parameter& p : g.params) grads.push_back(std::exchange(*p.grad, {}));
    release(g);
    scattered = {};
    Value sent = torch.make("gradients to be scattered", held, {m.gpus, g.shard});
    grads.clear();
    torch.memory().on_stream(2);
    Value mine = torch.make("gradient, this rank's part", held, {g.shard});
    torch.memory().on_stream(0);
    if (!g.reduced) {
      torch.memory().becomes(*mine.storage, "gradient, this rank's part", Phase::gradient);
      g.reduced = std::move(mine);
    }
    scattered = std::move(sent);
  }

  // DDP's buckets: gradients are views of them, and they stay. They are filled from the last parameter on.
  void make_buckets() {
    constexpr std::int64_t first = 1 << 20, others = 25 << 20;
    std::vector<Parameter*> members;
    std::int64_t numbers = 0, most = first;
    const auto close = [&] {
      const Value bucket = torch.make("gradients' bucket", held, {numbers});
      torch.memory().becomes(*bucket.storage, "gradients' bucket", Phase::gradient);
      standing.push_back(bucket);
      for (Parameter* p : members) *p->grad = {bucket.storage, held, p->value.shape, Layout::view, nullptr};
      members.clear(), numbers = 0, most = others;
    };
    for (auto p = trained.rbegin(); p != trained.rend(); ++p) {
      members.push_back(&*p);
      numbers += p->value.shape.count();
      if (numbers * std::int64_t(size_of(held)) >= most) close();
    }
    if (!members.empty()) close();
  }

  // ---- layers

  Value product(const std::string& name, const Value& x, const Matrix& w, Eager::Pass pass = Eager::Pass::first) {
    const auto whole = [&](Eager::Pass when) {
      const Value y =
          w.of_4bit.rank > 0 ? torch.linear_4bit(name, x, w.weight.value, w.of_4bit, low, when) : torch.linear(name, x, w.weight, when);
      return w.bias.value ? torch.biased(name, y, w.bias) : y;
    };
    if (!w.a.value) return whole(pass);
    const Value y = whole(Eager::Pass::first);
    Value more;
    {
      const Value raised = torch.linear(name + " adapter b", torch.linear(name + " adapter a", x, w.a), w.b, pass);
      more = pass == Eager::Pass::again ? raised : torch.scaled(name + " adapter", raised);
    }
    return torch.add(name + " adapted", y, more, pass);
  }

  Value norm(const std::string& name, const Value& x, const Parameter& weight) {
    if (m.fused_norms) return torch.rms_norm(name, x, weight);
    const DType type = x.dtype;
    const Value wide = torch.cast(name + " input as fp32", x, DType::f32);
    const Value root = torch.reciprocal_root(
        name + " 1/rms", torch.shifted(name + " + eps", torch.row_mean(name + " mean", torch.square(name + " x²", wide))));
    const Value normed = torch.multiply(name + " x/rms", wide, root);
    return torch.cast(name + " output", torch.multiply(name, normed, weight.value), type);
  }

  struct Turn {
    Value cos, sin;
  };
  Value rope(const std::string& name, const Value& x, const Turn& t) {
    const DType type = size_of(t.cos.dtype) > size_of(x.dtype) ? t.cos.dtype : x.dtype;
    const Value a = torch.every_second(x), b = torch.every_second(x);
    const Value even = torch.subtract(name + " even", torch.constant_times(name + " a·cos", a, t.cos, type),
                                      torch.constant_times(name + " b·sin", b, t.sin, type));
    const Value odd = torch.add(name + " odd", torch.constant_times(name + " a·sin", a, t.sin, type),
                                torch.constant_times(name + " b·cos", b, t.cos, type));
    return torch.stacked(name + " rotated", even, odd);
  }

  Value attend(const BlockWeights& w, const Value& x, const Turn& t) {
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

  Value feed_forward(const BlockWeights& w, const Value& h, Eager::Pass pass) {
    const auto silu = [&](const Value& gate) {
      return m.silu == Silu::builtin ? torch.silu("silu(gate)", gate)
                                     : torch.multiply("silu(gate)", gate, torch.sigmoid("sigmoid(gate)", gate));
    };
    const Value active = silu(product("gate", h, w.gate));
    return product("down", torch.multiply("silu(gate)·up", active, product("up", h, w.up)), w.down, pass);
  }

  Value whole_block(std::size_t i, Value x, const Turn& t, Eager::Pass pass) {
    torch.in_block(int(i));
    const BlockWeights& w = blocks[i];
    x = torch.add("attention residual", x, attend(w, norm("norm1", x, w.norm1), t));
    return torch.add("feed-forward residual", x, feed_forward(w, norm("norm2", x, w.norm2), pass), pass);
  }

  static std::vector<const Parameter*> adapters_of(const BlockWeights& b) {
    std::vector<const Parameter*> all;
    for (const Matrix* x : {&b.q, &b.k, &b.v, &b.o, &b.up, &b.gate, &b.down})
      for (const Parameter* p : {&x->a, &x->b})
        if (p->value) all.push_back(p);
    return all;
  }
  // What a compiled block keeps beside its own: the rotations as FSDP2 casts them, and what the adapters' first halves make.
  std::vector<Value> lasting(const Turn& t) {
    std::vector<Value> all;
    if (m.sharded()) all = {t.cos, t.sin};
    if (m.lora > 0 && m.keep.first() == engine::Keep::everything)
      all.push_back(torch.make("adapters' products", low, {m.batch * m.len, 7 * m.lora}));
    return all;
  }

  // A block as it is called: its weights are gathered around it, and it may be checkpointed within.
  Value block(std::size_t i, Value x, Eager::Pass pass) {
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
                          "block", x, [this, i, t](const Value& in, Eager::Pass p) { return whole_block(i, in, t, p); }, pass,
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

  Value several(std::size_t begin, std::size_t end, Value x, Eager::Pass pass) {
    for (std::size_t i = begin; i < end; ++i) x = block(i, std::move(x), i + 1 == end ? pass : Eager::Pass::first);
    return x;
  }

  Value loss() {
    if (m.compile == Compile::model) {
      std::vector<BlockParameters> all;
      for (const BlockWeights& b : blocks) all.push_back(parameters_of(b));
      return compiled.model({&embed, &norm_weight, &head.weight, m.tied}, all);
    }
    if (low != DType::f32 && m.autocasts()) torch.autocast(low);
    if (m.sharded()) gather(groups.back(), When::forward);
    Value x = torch.embedding("embedded tokens", embed, {m.batch, m.len}, m.width);
    const std::size_t group = m.keep.group == 0 ? std::size_t(std::ceil(std::sqrt(double(m.layers)))) : std::size_t(m.keep.group);
    for (std::size_t begin = 0; begin < blocks.size(); begin += group) {
      const std::size_t end = std::min(blocks.size(), begin + group);
      x = group == 1 ? block(begin, std::move(x), Eager::Pass::first)
                     : torch.checkpointed("group of blocks", x,
                                          [this, begin, end](const Value& in, Eager::Pass p) { return several(begin, end, in, p); });
    }
    torch.in_block(-1);
    const auto gathers = [this](Value out) {  // in backward, before what comes before it
      if (!m.sharded()) return out;
      return torch.when_backward(out, [this] {
        gather(groups.back(), When::backward);
        begin_gather(groups[blocks.size() - 1]);
      });
    };
    Value result;
    if (m.loss == Loss::whole || m.loss == Loss::in_fp32) {
      Value logits = product("logits", norm("final norm", x, norm_weight), head);
      x = {};
      left_over = {};  // the root's forward pass is over
      logits = gathers(std::move(logits));
      if (m.loss == Loss::in_fp32) logits = torch.cast("logits as fp32", logits, DType::f32);
      result = torch.cross_entropy("loss", logits);
    } else {
      const Value h = norm("final norm", x, norm_weight);
      x = {};
      left_over = {};
      result = gathers(torch.chunked_loss("loss", h, head.weight,
                                          m.loss == Loss::fused     ? Eager::Chunks::fused
                                          : m.loss == Loss::chunked ? Eager::Chunks::eager
                                                                    : Eager::Chunks::compiled));
    }
    torch.autocast({});
    return result;
  }

  void backward(Value loss) {
    const DType type = loss.dtype;
    torch.backward(std::move(loss), torch.make("dloss", type, {1}));
    if (!m.sharded()) return;
    scatter(groups.back());
    scattered = {}, left_over = {};
  }
  void zero_grad() {
    for (Group& g : groups) g.reduced = {};
    if (m.gpus > 1 && !m.sharded()) return;  // of a bucket only the view goes
    for (const Parameter& p : trained) *p.grad = {};
  }
};

// Two steps; what is read is the second's, when Adam's moments are there. Of many micro-batches those that change nothing are left out, but for the
// last, where only totals are wanted.
LanguageModelAccount run(Process& process, const LanguageModel& m, Watch& watch, Detail detail, Launches* launches = nullptr) {
  Eager& torch = process.torch();
  Allocator& memory = process.memory();
  const auto enter = [&](Phase p) {
    memory.enter(p);
    if (launches) launches->enter(p);
  };
  memory.enter(Phase::parameter);
  Model model(torch, m);
  LanguageModelAccount out;
  out.params = model.params;
  memory.enter(Phase::input);
  const Value tokens = torch.make("tokens", DType::i64, {m.batch, m.len + 1}),
              inputs = torch.make("input tokens", DType::i64, {m.batch, m.len}),
              targets = torch.make("target tokens", DType::i64, {m.batch, m.len});
  if (m.in_backward && m.until == Until::update) model.optimizer.update_in_backward(model.trained);
  torch.write_launches(launches);
  for (int step = 0; step < (m.until == Until::update ? 2 : 1); ++step) {
    watch.start();
    Value loss;
    std::vector<std::uint64_t> before;
    for (std::int64_t micro = 0; micro < (m.until == Until::forward ? 1 : m.accumulate); ++micro) {
      enter(Phase::forward);
      loss = model.loss();
      out.forward_peak_bytes = memory.peak();
      out.before_backward_bytes = memory.live();
      if (micro + 1 == m.accumulate || m.until == Until::forward) watch.mark_saved();
      if (m.until == Until::forward) break;
      enter(Phase::backward);
      if (m.accumulate > 1) loss = torch.scaled("loss of one micro-batch", loss);
      model.backward(loss);
      loss.node = nullptr;
      out.forward_backward_peak_bytes = memory.peak();
      out.after_backward_bytes = memory.live();
      if (detail != Detail::totals || micro + 2 >= m.accumulate) continue;
      auto now = memory.state();
      if (now == before) micro = m.accumulate - 2;
      before = std::move(now);
    }
    out.train_peak_bytes = memory.peak(), out.held_bytes = memory.live(), out.reserved_bytes = memory.reserved();
    if (m.until != Until::update) break;
    enter(Phase::optimizer);
    if (!m.in_backward) model.optimizer.update();
    if (launches) launches->end_step();
    out.train_peak_bytes = memory.peak();
    model.zero_grad();
    loss = {};
    out.held_bytes = memory.live(), out.reserved_bytes = memory.reserved();
  }
  watch.stop();
  out.host_bytes = model.optimizer.host_bytes();
  const auto residual = m.precision.dtype != DType::f32 && (m.lora > 0 || m.parameters == Parameters::half) ? 2 : 4;
  if (m.offload_inputs) out.host_bytes += std::uint64_t(m.layers * m.batch * m.len * m.width * residual);
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
  const std::int64_t asked_kv = m.key_heads(), asked_dim = m.dim_of_head();
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

Launches launches_of(const LanguageModel& m, int sm) {
  check(m);
  Process process(0);
  Watch watch(process.memory());
  Launches launches(m.precision, sm);
  run(process, m, watch, Detail::components, &launches);
  return launches;
}

LanguageModelAccount account(const LanguageModel& m, std::uint64_t workspace, Detail detail) {
  check(m);
  Process process(workspace, Count::blocks);
  Watch watch(process.memory());
  LanguageModelAccount out = run(process, m, watch, detail);
  if (detail == Detail::totals) return out;
  Process elsewhere(0);
  Watch probe(elsewhere.memory());
  const auto [sizes, symbols] = probe_of(m);
  run(elsewhere, sizes, probe, detail);
  watch.describe(out.account, false, probe.shapes(), symbols);
  out.account.components = blocks_together(out.account.components);
  return out;
}

}  // namespace headroom::studies::pytorch
