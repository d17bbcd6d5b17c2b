#include "pytorch/autograd.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>

namespace headroom::pytorch {

Value Engine::make(const std::string& name, DType dtype, Shape shape) {
  return {memory_.make(name, dtype, shape), dtype, shape, Layout::fresh, nullptr};
}

// The first gradient is taken over as it is when its rows are in order, and copied otherwise; later ones are added in place.
Parameter Engine::parameter(const std::string& name, DType dtype, Shape shape) { return parameter(name, make(name, dtype, shape)); }

Parameter Engine::parameter(const std::string& name, Value value) {
  Parameter p{std::move(value)};
  p.value.node = std::make_shared<Node>();
  p.value.node->name = name;
  p.value.node->age = leaf_age;
  p.value.node->leaf = true;
  p.value.node->backward = [this, grad = p.grad, arrived = p.arrived, name](const Value& g) {
    const bool in_order = g.layout == Layout::fresh || g.layout == Layout::view;
    if (!*grad) {
      *grad = in_order ? g : make("d" + name, g.dtype, g.shape);
      memory_.becomes(*grad->storage, "d" + name, Phase::gradient);
    }
    if (*arrived) (*arrived)();
    return Node::Gradients{};
  };
  return p;
}

Value Engine::record(const std::string& name, Value out, std::vector<Value> inputs, std::function<Node::Gradients(const Value&)> backward) {
  const bool wanted = history_ && std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return bool(v.node); });
  if (!wanted) return out;
  auto node = std::make_shared<Node>();
  node->name = name;
  node->age = next_age_++;
  node->backward = std::move(backward);
  for (Value& v : inputs) node->sources.push_back(std::move(v.node));
  out.node = std::move(node);
  return out;
}

// Two gradients of one tensor: added in place when nothing else uses one of them, otherwise into a third.
void Engine::add_into(Value& old, Value more) {
  ran(Kernel::pointwise, old, old, more);
  const auto alone = [](const Value& v) { return v.layout == Layout::fresh && v.storage.use_count() == 1; };
  if (alone(old)) return;
  if (alone(more))
    old = std::move(more);
  else
    old = make("sum of gradients", old.dtype, old.shape);
}

namespace {

// What a walk of the graph knows of each node, found by the node's address.
class Walk {
 public:
  struct Known {
    int awaited = 0;  // gradients that have yet to arrive
    Value arrived;    // their sum so far
  };
  Walk() : places_(1 << 6, Place{nullptr, 0}) {}
  bool add(const Node* n) {  // whether it is new
    if (2 * known_.size() >= places_.size()) widen();
    Place& p = place_of(n);
    if (p.node) return false;
    p = {n, std::uint32_t(known_.size())};
    known_.emplace_back();
    return true;
  }
  Known& operator[](const Node* n) { return known_[place_of(n).known]; }  // n was added before

 private:
  struct Place {
    const Node* node;
    std::uint32_t known;
  };
  Place& place_of(const Node* n) {
    const std::size_t last = places_.size() - 1;
    std::size_t i = std::size_t((std::uint64_t(reinterpret_cast<std::uintptr_t>(n)) * 0x9E3779B97F4A7C15u) >> 32) & last;
    while (places_[i].node && places_[i].node != n) i = (i + 1) & last;
    return places_[i];
  }
  void widen() {
    const std::vector<Place> old = std::exchange(places_, std::vector<Place>(2 * places_.size(), Place{nullptr, 0}));
    for (const Place& p : old)
      if (p.node) place_of(p.node) = p;
  }
  std::vector<Place> places_;
  std::vector<Known> known_;
};

}  // namespace

void Engine::run_backward(Value root, Value gradient) {
  Walk walk;
  walk.add(root.node.get());
  std::vector<Node*> open{root.node.get()};
  while (!open.empty()) {
    Node* n = open.back();
    open.pop_back();
    for (const auto& s : n->sources) {
      if (!s) continue;
      if (walk.add(s.get())) open.push_back(s.get());
      ++walk[s.get()].awaited;
    }
  }
  const auto older = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->age < b->age; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(older)> ready(older);
  walk[root.node.get()].arrived = std::move(gradient);
  ready.push(std::move(root.node));
  root = {};
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = ready.top();
    ready.pop();
    Value incoming = std::exchange(walk[node.get()].arrived, {});
    Node::Gradients results = node->checkpoint ? node->checkpoint(std::move(incoming)) : node->backward(incoming);
    incoming = {};
    if (!node->leaf) node->backward = nullptr, node->checkpoint = nullptr;  // the saved tensors go here
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto& source = node->sources[i];
      Value result = std::move(results[i]);
      if (!source || !result) continue;
      Walk::Known& there = walk[source.get()];
      if (there.arrived)
        add_into(there.arrived, std::move(result));
      else
        there.arrived = std::move(result);
      if (--there.awaited == 0) ready.push(source);
    }
  }
}

}  // namespace headroom::pytorch
