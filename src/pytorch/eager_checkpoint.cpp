// torch.utils.checkpoint: a first run that keeps nothing but its input, and a second one when backward comes to it.
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

namespace {

template <class T>
class Meanwhile {  // another value until the closing brace
 public:
  Meanwhile(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  ~Meanwhile() { place_ = std::move(before_); }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  T& place_;
  T before_;
};

// A leaf whose gradient arrives in `gradient`.
std::shared_ptr<Node> leaf_into(Value& gradient) {
  auto leaf = std::make_shared<Node>();
  leaf->name = "a checkpoint's input";
  leaf->age = leaf_age;
  leaf->leaf = true;
  leaf->backward = [&gradient](const Value& g) {
    gradient = g;
    return Node::Gradients{};
  };
  return leaf;
}

}  // namespace

Value Eager::checkpointed(const std::string& name, const Value& x, const Body& f, Visit pass, Keeps keeps) {
  if (!keeps_history()) return f(x, Visit::first);
  const auto chosen = keeps == Keeps::selected ? std::make_shared<Selected>() : nullptr;
  Value out;
  {
    const Meanwhile selected(selected_, chosen);
    keep_history(false);
    out = pass == Visit::again ? unmade(x.dtype, x.shape) : f(x, Visit::first);
    keep_history(true);
  }
  out.node = std::make_shared<Node>();
  out.node->name = name;
  out.node->age = next_age();
  out.node->sources = {x.node};
  const Value on_host{nullptr, x.dtype, x.shape, Layout::fresh, nullptr};
  out.node->checkpoint = [this, x = keeps == Keeps::input_on_host ? on_host : x.saved(), wanted = bool(x.node), f, autocast = autocast_,
                          chosen](Value g) {
    Value dx;
    Value start = x ? x : make("a checkpoint's input, back from the host", x);
    if (wanted) start.node = leaf_into(dx);
    Value again = run_again(f, start, autocast, chosen);
    start = {};
    run_backward(std::move(again), std::move(g));
    return Node::Gradients{dx};
  };
  return out;
}

Value Eager::run_again(const Body& f, const Value& x, std::optional<DType> autocast, const std::shared_ptr<Selected>& chosen) {
  if (chosen) chosen->again = true, chosen->products = 0;
  const Meanwhile autocast_then(autocast_, autocast);
  const Meanwhile casts(cast_parameters_, {});
  const Meanwhile selected(selected_, chosen);
  const Meanwhile again(again_, true);
  return f(x, Visit::again);
}

Value* Eager::kept_before() {
  if (!selected_ || !selected_->again || selected_->next >= selected_->kept.size()) return nullptr;
  return &selected_->kept[selected_->next++];
}
void Eager::keep_selected(const std::vector<Value>& out) {
  if (!selected_ || selected_->again) return;
  for (const Value& v : out) selected_->kept.push_back(v.saved());
}

}  // namespace headroom::pytorch
