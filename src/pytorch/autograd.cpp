#include "pytorch/autograd.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>
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

void Engine::run_backward(Value root, Value gradient) {
  std::unordered_map<Node*, int> awaited;  // gradients that have yet to arrive
  std::unordered_set<Node*> seen{root.node.get()};
  std::vector<Node*> open{root.node.get()};
  while (!open.empty()) {
    Node* n = open.back();
    open.pop_back();
    for (const auto& s : n->sources) {
      if (!s) continue;
      ++awaited[s.get()];
      if (seen.insert(s.get()).second) open.push_back(s.get());
    }
  }
  const auto older = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->age < b->age; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(older)> ready(older);
  std::unordered_map<Node*, Value> arrived;
  arrived[root.node.get()] = std::move(gradient);
  ready.push(std::move(root.node));
  root = {};
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = ready.top();
    ready.pop();
    Value incoming = std::move(arrived[node.get()]);
    arrived.erase(node.get());
    Node::Gradients results = node->backward(incoming);
    incoming = {};
    if (!node->leaf) node->backward = nullptr;  // the saved tensors go here
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto& source = node->sources[i];
      Value result = std::move(results[i]);
      if (!source || !result) continue;
      Value& there = arrived[source.get()];
      if (there)
        add_into(there, std::move(result));
      else
        there = std::move(result);
      if (--awaited[source.get()] == 0) ready.push(source);
    }
  }
}

}  // namespace headroom::pytorch
