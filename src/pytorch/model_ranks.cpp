// Several GPUs: FSDP2's shards and DDP's buckets.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/divide.h"
#include "pytorch/model.h"

namespace headroom::pytorch {

void Model::shard_one(Parameter& p, Group& g, const char* name) {
  Shape local = p.value.shape;
  local.dim[0] = round_up(local.dim[0], m.gpus) / m.gpus;
  standing.push_back(torch.make(std::string(name) + ", this rank's part", held, local));
  const bool trains = bool(p.value.node);
  if (trains) optimizer.sees(local, false);
  const Shape real = p.value.shape;
  Shape padded = real;
  padded.dim[0] = local.dim[0] * m.gpus;
  p = {};
  Value gathered{torch.memory().make_empty(name, low, padded), low, real, Layout::fresh, nullptr};
  p = trains ? torch.parameter(name, std::move(gathered)) : Parameter{std::move(gathered)};
  g.shard += local.count();
  g.params.push_back(p);
  if (!trains) return;
  g.trained += local.count();
  trained.push_back(p);
}

void Model::shard_all() {
  trained.clear();
  groups.resize(blocks.size() + 1);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    BlockWeights& b = blocks[i];
    const auto one = [&](Parameter& p, const char* name) {
      if (p.value) shard_one(p, groups[i], name);
    };
    one(b.norm1, "norm1"), one(b.norm2, "norm2");
    one(b.q.weight, "q weight"), one(b.k.weight, "k weight"), one(b.v.weight, "v weight"), one(b.o.weight, "o weight");
    one(b.q.bias, "q bias"), one(b.k.bias, "k bias"), one(b.v.bias, "v bias");
    one(b.q_norm, "q norm"), one(b.k_norm, "k norm");
    for (Matrix* x : {&b.q, &b.k, &b.v, &b.o, &b.up, &b.gate, &b.down}) one(x->a, "adapter a"), one(x->b, "adapter b");
    one(b.norm1_bias, "norm1 bias"), one(b.norm2_bias, "norm2 bias"), one(b.qkv.weight, "qkv weight"), one(b.qkv.bias, "qkv bias");
    one(b.o.bias, "o bias"), one(b.up.bias, "up bias"), one(b.down.bias, "down bias");
    one(b.attention_norm, "norm behind attention"), one(b.feed_forward_norm, "norm behind feed-forward");
    one(b.router.weight, "router weight"), one(b.experts_up, "experts' up and gate weights"), one(b.experts_down, "experts' down weights");
    one(b.router.bias, "router bias"), one(b.experts_up_bias, "experts' up and gate biases"),
        one(b.experts_down_bias, "experts' down biases");
    one(b.sinks, "sinks");
    one(b.up.weight, "up weight"), one(b.gate.weight, "gate weight"), one(b.down.weight, "down weight");
  }
  shard_one(embed, groups.back(), "embedding");
  shard_one(norm_weight, groups.back(), "final norm");
  if (positions.value) shard_one(positions, groups.back(), "learned positions"), shard_one(norm_bias, groups.back(), "final norm bias");
  if (m.tied)
    head.weight = embed;
  else
    shard_one(head.weight, groups.back(), "head");
}

void Model::begin_gather(Group& g) {
  if (g.whole || g.arriving) return;
  torch.memory().on_stream(1);
  {
    Value sent;
    if (low != held) sent = torch.make("this rank's part, to be gathered", low, {g.shard});
    g.arriving = torch.make("gathered weights", low, {m.gpus, g.shard});
  }
  torch.memory().on_stream(0);
  torch.launched([&](Launches& to) {  // FSDP2's stream of gathers does not wait for the blocks' work
    g.gathers = to.collective("ncclAllGather", double(g.shard) * double(size_of(low)), m.gpus, 1, Launches::Begins::at_once);
  });
}
void Model::gather(Group& g, When when) {
  begin_gather(g);
  if (!g.arriving) return;
  for (Parameter& p : g.params) p.value.storage->refill();
  g.whole = true;
  torch.launched([&](Launches& to) {  // and the whole is copied into each parameter
    to.await(g.gathers);
    to.kernel(Kernel::other, g.shard * m.gpus, 2 * double(g.shard * m.gpus) * double(size_of(low)));
  });
  if (when == When::forward) left_over = std::move(g.arriving);  // what was left before goes now, in PyTorch 2.11
  g.arriving = {};
}
void Model::release(Group& g) {
  for (Parameter& p : g.params) p.value.storage->resize_to_nothing();
  g.whole = false;
}
void Model::scatter(Group& g) {
  std::vector<Value> grads;
  for (Parameter& p : g.params) grads.push_back(std::exchange(*p.grad, {}));
  release(g);
  if (g.trained == 0) return;
  scattered = {};
  Value sent = torch.make("gradients to be scattered", held, {m.gpus, g.trained});
  grads.clear();
  torch.launched([&](Launches& to) {
    const double whole = double(g.trained) * double(m.gpus);
    to.kernel(Kernel::other, g.trained * m.gpus, whole * double(size_of(low) + size_of(held)));
    to.collective("ncclReduceScatter", whole * double(size_of(held)), m.gpus, 2, Launches::Begins::after_work);
  });
  torch.memory().on_stream(2);
  Value mine = torch.make("gradient, this rank's part", held, {g.trained});
  torch.memory().on_stream(0);
  if (!g.reduced) {
    torch.memory().becomes(*mine.storage, "gradient, this rank's part", Phase::gradient);
    g.reduced = std::move(mine);
  }
  scattered = std::move(sent);
}

// The trained parameters that this rank updates. ZeroRedundancyOptimizer hands out whole parameters, the largest first, each to the rank
// that has the fewest numbers. The rank with the most is the one that is accounted for.
std::vector<std::size_t> Model::updated_here() const {
  std::vector<std::size_t> order(trained.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  if (!m.shares_update()) return order;
  const auto numbers = [this](std::size_t i) { return trained[i].value.shape.count(); };
  std::ranges::stable_sort(order, std::ranges::greater{}, numbers);
  struct Rank {
    std::int64_t numbers = 0;
    std::vector<std::size_t> parameters{};
  };
  std::vector<Rank> ranks(std::size_t(m.gpus));
  for (const std::size_t i : order) {
    Rank& least = *std::ranges::min_element(ranks, {}, &Rank::numbers);
    least.numbers += numbers(i);
    least.parameters.push_back(i);
  }
  return std::ranges::max_element(ranks, {}, &Rank::numbers)->parameters;
}

// DDP's buckets: gradients are views of them, and they stay. They are filled from the last parameter on.
void Model::make_buckets() {
  const DType type = optimizer.type();
  constexpr std::int64_t first = 1 << 20, others = 25 << 20;
  std::vector<Parameter*> members;
  std::int64_t numbers = 0, most = first;
  const auto close = [&] {
    const Value bucket = torch.make("gradients' bucket", type, {numbers});
    torch.memory().becomes(*bucket.storage, "gradients' bucket", Phase::gradient);
    standing.push_back(bucket);
    const auto missing = std::make_shared<std::size_t>(members.size());
    for (Parameter* p : members) {
      *p->grad = {bucket.storage, type, p->value.shape, Layout::view, nullptr};
      *p->arrived = [this, missing, all = members.size(), bytes = double(numbers) * double(size_of(type))] {
        if (--*missing > 0) return;
        *missing = all;
        torch.launched([&](Launches& to) { to.collective("ncclAllReduce", bytes, m.gpus, 1, Launches::Begins::after_work); });
      };
    }
    members.clear(), numbers = 0, most = others;
  };
  for (auto p = trained.rbegin(); p != trained.rend(); ++p) {
    members.push_back(&*p);
    numbers += p->value.shape.count();
    if (numbers * std::int64_t(size_of(type)) >= most) close();
  }
  if (!members.empty()) close();
}

}  // namespace headroom::pytorch
