#include "pytorch/compiled.h"

#include <algorithm>
#include <utility>

namespace headroom::pytorch {

namespace {
const Parameter& of(const BlockParameters& p, Weight w) { return *p[std::size_t(w)]; }
constexpr std::int64_t line_bytes = 128;  // Inductor pads rows that are large and not whole lines
}  // namespace

Value Compiled::tensor(const std::string& name, DType t, Shape s) {
  return torch_.make(layer_ < 0 ? name : "block " + std::to_string(layer_) + " " + name, t, s);
}

// A gradient leaves the compiled code when all of it has run; then it is taken over, or added to the one that is there.
Value Compiled::gradient(const Parameter& p, std::vector<Collected>& all) {
  if (!p.value.node) return {};  // frozen
  const Value d = torch_.make("gradient", p.value.dtype, p.value.shape);
  all.push_back({&p, d});
  return d;
}
void Compiled::hand_over(std::vector<Collected>& all) {
  for (Collected& c : all) {
    if (!*c.of->grad) {
      *c.of->grad = c.gradient;
      torch_.memory().becomes(*c.gradient.storage, "d" + (c.of->value.node ? c.of->value.node->name : ""), Phase::gradient);
    }
    c.gradient = {};
    if (*c.of->arrived) (*c.of->arrived)();
  }
  all.clear();
}

void Compiled::copy(Kept& k, const BlockParameters& p, Weight w) {
  if (!s_.casts) return;
  const Parameter& weight = of(p, w);
  k.copies[std::size_t(w)] = tensor("weight as " + std::string(name_of(s_.low)), s_.low, weight.value.shape);
}

void Compiled::attention(Kept& k, const BlockParameters& p) {
  const std::int64_t kv = s_.kv_heads * s_.dim, all = s_.heads * s_.dim;
  copy(k, p, Weight::q);
  Value q = tensor("q", s_.low, {s_.batch, s_.len, all});
  copy(k, p, Weight::k);
  Value keys = tensor("k", s_.low, {s_.batch, s_.len, kv});
  copy(k, p, Weight::v);
  k.v = tensor("v", s_.low, {s_.batch, s_.len, kv});
  if (s_.kv_heads != s_.heads) {
    const Value repeated = heads("values, repeated", s_.low, s_.heads);
    k.v = repeated;
    k.k = heads("keys, turned and repeated", s_.low, s_.heads);
    keys = {};
    k.q = heads("q, turned", s_.low, s_.heads);
    q = {};
  } else {
    k.q = heads("q, turned", s_.low, s_.heads);
    k.k = heads("k, turned", s_.low, s_.heads);
    q = {}, keys = {};  // their buffers serve again below
  }
  if (size_of(s_.low) == 2) {
    k.seed = tensor("attention's seed", DType::i64, {1});
    k.offset = tensor("attention's offset", DType::i64, {1});
  }
  k.out = heads("attention output", s_.low, s_.heads);
  k.lse = tensor("attention log-sum-exp", DType::f32, {s_.batch, s_.heads, s_.len});
}

Value Compiled::forward(Kept& k, const BlockParameters& p, Residual residual) {
  torch_.touch_workspace();
  const Value whole = written_out();
  const bool wide = s_.casts;  // the stream is FP32
  const DType type = wide ? DType::f32 : s_.low;
  k.r1 = per_row("norm1 1/rms");
  k.h1 = stream("norm1", s_.low);
  attention(k, p);
  copy(k, p, Weight::o);
  if (size_of(s_.low) == 2) k.joined = tensor("heads joined", s_.low, {s_.batch, s_.len, s_.heads * s_.dim});  // FP32's kernel writes it so
  k.branch = stream("o", s_.low);
  if (residual == Residual::stream) k.middle = stream("attention residual", type);
  k.r2 = per_row("norm2 1/rms");
  k.h2 = stream("norm2", s_.low);
  if (residual == Residual::stream) k.branch = {};
  copy(k, p, Weight::gate);
  k.gate = hidden("gate");
  copy(k, p, Weight::up);
  k.up = hidden("up");
  copy(k, p, Weight::down);
  k.act = hidden("silu(gate)·up");
  Value down = stream("down", s_.low);
  return wide ? stream("feed-forward residual", type) : down;
}

// The first run of a checkpoint: nothing lasts but the output.
Value Compiled::forward_in_passing(const Value& x) {
  torch_.touch_workspace();
  const Value whole = written_out();
  const std::int64_t all = s_.heads * s_.dim, kv = s_.kv_heads * s_.dim;
  Value branch;
  {
    const Value h1 = stream("norm1", s_.low);
    Value copy;
    if (s_.casts) copy = tensor("weight in passing", s_.low, {all, s_.width});
    const Value v = tensor("v", s_.low, {s_.batch, s_.len, kv});
    {
      const Value q = tensor("q", s_.low, {s_.batch, s_.len, all}), k = tensor("k", s_.low, {s_.batch, s_.len, kv});
      branch = tensor("turned", s_.low, {s_.batch, s_.len, all});
    }
    const Value out = heads("attention output", s_.low, s_.heads);
    const Value lse = tensor("attention log-sum-exp", DType::f32, {s_.batch, s_.heads, s_.len});
  }
  Value gate;
  {
    Value copy;
    if (s_.casts) copy = tensor("weight in passing", s_.low, {s_.ffn, s_.width});
    const Value h2 = stream("norm2", s_.low);
    gate = hidden("gate");
    const Value up = hidden("up");
  }
  Value copy;
  if (s_.casts) copy = tensor("weight in passing", s_.low, {s_.width, s_.ffn});
  Value down = stream("down", s_.low);
  gate = {}, copy = {};
  return s_.casts ? stream("feed-forward residual", x.dtype) : down;
}

void Compiled::attention_backward(Kept& k) {
  {
    const Value accumulator = heads("dQ in FP32", DType::f32, s_.heads);
    const Value delta = tensor("row sums of dO·O", DType::f32, {s_.batch, s_.heads, s_.len});
  }
  k.q = {}, k.k = {}, k.v = {}, k.out = {}, k.lse = {}, k.seed = {}, k.offset = {};
}

Value Compiled::backward(Kept& k, const BlockParameters& p, const Value& incoming, std::vector<Collected>& all) {
  torch_.touch_workspace();
  const Value whole = written_out();
  const auto matrix = [&](Weight w) {
    return s_.casts ? tensor("gradient as " + std::string(name_of(s_.low)), s_.low, of(p, w).value.shape) : Value{};
  };
  const auto drop = [&](Weight w) { k.copies[std::size_t(w)] = {}; };
  Value narrow = s_.casts ? stream("gradient of the stream", s_.low) : Value{};
  Value temporary = matrix(Weight::down);
  if (!s_.casts) gradient(of(p, Weight::down), all);
  k.act = {};
  Value inner = hidden("d(silu(gate)·up)");
  narrow = {};
  drop(Weight::down);
  if (s_.casts) gradient(of(p, Weight::down), all);
  temporary = {};
  Value branch = hidden("d(up)");
  inner = {};
  k.gate = {};
  temporary = matrix(Weight::up);
  if (!s_.casts) gradient(of(p, Weight::up), all);
  Value d_h2 = stream("d(norm2)", s_.low);
  branch = {};
  drop(Weight::up);
  gradient(of(p, s_.casts ? Weight::up : Weight::gate), all);
  k.h2 = {};
  Value d_more = stream("d(norm2), gate's part", s_.low);
  k.up = {};
  drop(Weight::gate);
  if (s_.casts) gradient(of(p, Weight::gate), all);
  temporary = {};
  Value dx = stream("gradient of the stream", incoming.dtype);
  Value d_branch = s_.casts ? stream("d(o)", s_.low) : Value{};
  Value d_joined = stream("d(heads joined)", s_.low);
  drop(Weight::o);
  Value dq = heads("dq", s_.low, s_.heads), dk = heads("dk", s_.low, s_.heads), dv = heads("dv", s_.low, s_.heads);
  attention_backward(k);
  drop(Weight::v), drop(Weight::k), drop(Weight::q);
  Value turned_q = stream("d(q), turned back", s_.low), turned_k = stream("d(k), turned back", s_.low);
  d_more = {}, d_h2 = {}, k.joined = {}, k.r2 = {};
  gradient(of(p, Weight::norm2), all);
  temporary = matrix(Weight::o);
  d_branch = {}, k.branch = {}, k.middle = {};
  gradient(of(p, Weight::o), all);
  for (const Weight w : {Weight::v, Weight::k, Weight::q}) gradient(of(p, w), all);
  dq = {}, dk = {}, dv = {}, k.h1 = {};
  temporary = {};
  gradient(of(p, Weight::norm1), all);
  k.r1 = {}, k.x = {}, k.constants.clear();
  return dx;
}

Value Compiled::block(int layer, const Value& x, const BlockParameters& p, std::vector<Value> constants, Keeps keeps,
                      std::vector<const Parameter*> adapters) {
  layer_ = layer;
  auto kept = std::make_shared<Kept>();
  Value out;
  give(What::block);
  if (keeps != Keeps::all) {
    out = forward_in_passing(x);
  } else {
    out = forward(*kept, p, Residual::branch);
  }
  kept->x = keeps == Keeps::input_on_host ? Value{} : x.saved();
  kept->constants = std::move(constants);
  if (!torch_.keeps_history()) return out;
  out.node = std::make_shared<Node>();
  out.node->name = "compiled block";
  out.node->age = torch_.next_age();
  out.node->sources = {x.node};
  out.node->backward = [this, kept, p, keeps, layer, adapters = std::move(adapters), type = x.dtype](const Value& g) {
    layer_ = layer;
    if (keeps == Keeps::input_on_host) kept->x = stream("a checkpoint's input, back from the host", type);
    if (keeps != Keeps::all) {
      give(What::block);
      const Value made = forward(*kept, p, Residual::branch);
      const Value gate = hidden("gate, made again"), up = hidden("up, made again"), act = hidden("product, made again");
    }
    give(What::block_backward);
    std::vector<Collected> all;
    Value dx = backward(*kept, p, g, all);
    for (const Parameter* a : adapters) gradient(*a, all);
    hand_over(all);
    layer_ = -1;
    return Node::Gradients{dx};
  };
  layer_ = -1;
  return out;
}

// One graph of all blocks: Inductor's buffers of backward go from block to block, and what is new are the gradients.
void Compiled::backward_in_model(Kept& k, const BlockParameters& p, Work& work, std::vector<Collected>& all, bool last, bool first) {
  const auto drop = [&](Weight w) { k.copies[std::size_t(w)] = {}; };
  const auto grad = [&](Weight w) { gradient(of(p, w), all); };
  if (last && s_.casts) work.matrix = tensor("gradient of a matrix", s_.low, of(p, Weight::down).value.shape);
  k.act = {}, drop(Weight::down);
  grad(Weight::down);
  if (last) {
    const Value inner = hidden("d(silu(gate)·up)");
    work.feed_forward = hidden("d(up)");
  }
  k.gate = {}, drop(Weight::up);
  grad(Weight::up);
  k.h2 = {}, drop(Weight::gate);
  grad(Weight::gate);
  k.up = {};  // one block's at a time: the next block reuses it
  grad(Weight::norm2);
  k.middle = {}, k.r2 = {};
  if (last && s_.casts) work.head_matrix = tensor("gradient of a matrix", s_.low, of(p, Weight::o).value.shape);
  if (first) work.feed_forward = {}, work.matrix = {};
  k.joined = {}, drop(Weight::o), k.branch = {};
  grad(Weight::o);
  {
    const Value dq = heads("dq", s_.low, s_.heads), dk = heads("dk", s_.low, s_.heads);
    if (last) work.rows.push_back(stream("gradient of attention", s_.low)), work.rows.push_back(stream("gradient of attention", s_.low));
    attention_backward(k);
  }
  for (const Weight w : {Weight::v, Weight::k, Weight::q}) drop(w), grad(w);
  k.h1 = {};
  grad(Weight::norm1);
  k.x = {}, k.r1 = {};
}

Value Compiled::head_and_loss(WholeModel& kept, const Ends& ends) {
  give(What::end);
  kept.root = per_row("final norm 1/rms");
  kept.h = stream("final norm", s_.low);
  if (s_.casts) kept.head_copy = tensor("head as " + std::string(name_of(s_.low)), s_.low, ends.head->value.shape);
  const std::int64_t line = line_bytes / std::int64_t(size_of(s_.low));
  kept.logits = tensor("logits", s_.low, {s_.batch, s_.len, (s_.vocab + line - 1) / line * line});
  kept.maximum = per_row("rows' maximum"), kept.sum = per_row("rows' sum");
  return tensor("loss", DType::f32, {1});
}

void Compiled::backward_of_head(WholeModel& kept, const Ends& ends, std::vector<Collected>& gradients) {
  give(What::end_backward);
  kept.maximum = {}, kept.sum = {};
  const Value narrow = s_.casts ? tensor("gradient of the head", s_.low, ends.head->value.shape) : gradient(*ends.head, gradients);
  kept.h = {};
  const Value dh = stream("d(final norm)", s_.low);
  kept.logits = {}, kept.head_copy = {};
  if (s_.casts) gradient(*ends.head, gradients);
}

void Compiled::backward_of_model(WholeModel& kept, const Ends& ends, const std::vector<BlockParameters>& blocks) {
  std::vector<Collected> gradients;
  torch_.touch_workspace();
  backward_of_head(kept, ends, gradients);
  Work work;
  for (const char* name : {"gradient of a norm", "gradient of the stream", "gradient of a product"})
    work.rows.push_back(stream(name, s_.low));
  gradient(*ends.norm, gradients);
  kept.root = {};
  for (std::size_t i = blocks.size(); i-- > 0;) {
    layer_ = int(i);
    give(What::block_backward);
    backward_in_model(kept.blocks[i], blocks[i], work, gradients, i + 1 == blocks.size(), i == 0);
  }
  layer_ = -1;
  if (ends.tied)
    const Value more = tensor("gradient of the embedding", ends.embedding->value.dtype, ends.embedding->value.shape);
  else
    gradient(*ends.embedding, gradients);
  give(What::embedding_backward);
  work = {};
  kept.x = {};
  hand_over(gradients);
}

Value Compiled::model(const Ends& ends, const std::vector<BlockParameters>& blocks) {
  auto kept = std::make_shared<WholeModel>();
  Value x = stream("embedded tokens", s_.casts ? DType::f32 : s_.low);
  give(What::embedding);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    layer_ = int(i);
    Kept k;
    k.x = x;
    give(What::block);
    x = forward(k, blocks[i], i == 0 ? Residual::branch : Residual::stream);
    kept->blocks.push_back(std::move(k));
  }
  layer_ = -1;
  kept->x = x;
  x = {};
  Value loss = head_and_loss(*kept, ends);
  const Value count = tensor("tokens that count", DType::f32, {1});
  if (!torch_.keeps_history()) return loss;
  loss.node = std::make_shared<Node>();
  loss.node->name = "compiled model";
  loss.node->age = torch_.next_age();
  loss.node->backward = [this, kept, ends, blocks, count](const Value&) {
    backward_of_model(*kept, ends, blocks);
    return Node::Gradients{};
  };
  return loss;
}

}  // namespace headroom::pytorch
