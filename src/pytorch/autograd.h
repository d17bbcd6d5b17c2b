// PyTorch's autograd without the numbers: a graph of nodes that keep what backward needs, and the engine that walks it,
// newest node first, and frees each node's tensors as soon as it has run. It allocates what PyTorch allocates, in the same order.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "pytorch/allocator.h"
#include "pytorch/launches.h"

namespace headroom::pytorch {

enum class Layout : std::uint8_t {
  fresh,       // owns its storage, rows in order
  view,        // rows in order, but another tensor stands on the same storage
  transposed,  // a view whose last two dimensions changed places
  broadcast    // a view that repeats one element
};

struct Node;

struct Value {  // a tensor
  std::shared_ptr<Storage> storage;
  DType dtype = DType::f32;
  Shape shape;
  Layout layout = Layout::fresh;
  std::shared_ptr<Node> node;  // receives its gradient; null: not needed

  explicit operator bool() const { return bool(storage); }
  Value saved() const { return {storage, dtype, shape, layout, nullptr}; }  // what autograd keeps: the bytes, not the history
};

struct Node {
  using Gradients = std::vector<Value>;
  std::string name;
  std::uint64_t age = 0;                       // later nodes run first
  std::vector<std::shared_ptr<Node>> sources;  // the nodes that get backward's results
  std::function<Gradients(const Value&)> backward;
  std::function<Gradients(Value)> checkpoint;  // in place of backward: nodes of its own take the gradient over
  bool leaf = false;                           // adds up a parameter's gradient; stays after it has run
};

constexpr std::uint64_t leaf_age = std::numeric_limits<std::uint64_t>::max();  // gradients are added up as soon as they are there

struct Parameter {  // a tensor whose .grad is wanted
  Value value;
  std::shared_ptr<Value> grad = std::make_shared<Value>();
  std::shared_ptr<std::function<void()>> arrived =
      std::make_shared<std::function<void()>>();  // called when a gradient was added; may be empty
};

class Engine {
 public:
  explicit Engine(Allocator& memory) : memory_(memory) {}
  Value make(const std::string& name, DType, Shape);
  Value make(const std::string& name, const Value& like) { return make(name, like.dtype, like.shape); }
  Parameter parameter(const std::string& name, DType, Shape);
  Parameter parameter(const std::string& name, Value);  // makes a parameter of a tensor that is there
  // Marks `out` as made from `inputs`; backward's results answer to them one by one. Nothing is kept if no gradient is needed.
  Value record(const std::string& name, Value out, std::vector<Value> inputs, std::function<Node::Gradients(const Value&)> backward);
  void run_backward(Value root, Value gradient);
  void keep_history(bool on) { history_ = on; }  // torch.no_grad, and what a checkpoint's first pass comes to
  bool keeps_history() const { return history_; }
  Parameter frozen(const std::string& name, DType t, Shape s) { return {make(name, t, s)}; }
  Allocator& memory() { return memory_; }
  std::uint64_t next_age() { return next_age_++; }
  void write_launches(Launches* to) { launches_ = to; }  // null: they are not recorded
  void launched(auto&& what) {                           // something is given to the card: what() records it
    if (launches_) what(*launches_);
  }

 protected:
  // An operator's kernel runs: it writes `out` and reads the others.
  template <class... In>
  void ran(Kernel k, const Value& out, const In&... in) {
    launched([&](Launches& to) { to.kernel(k, out.shape.count(), (bytes_of(out) + ... + bytes_of(in))); });
  }
  // A kernel runs that makes all of `out`.
  template <class... In>
  Value by(Kernel k, Value out, const In&... in) {
    ran(k, out, in...);
    return out;
  }
  Value reduced(const Value& all, Value out) {  // sums of `all`
    ran(Kernel::reducing, all, out);
    return out;
  }
  // As Launches::product and Launches::softmax have them.
  void multiplied(std::int64_t m, std::int64_t n, std::int64_t k, DType t, std::uint32_t transposed, std::int64_t batch = 1) {
    launched([&](Launches& to) { to.product(m, n, k, t, transposed, batch); });
  }
  void softmax_ran(std::int64_t rows, std::int64_t columns, DType t, bool backward) {
    launched([&](Launches& to) { to.softmax(rows, columns, t, backward); });
  }
  static double bytes_of(const Value& v) { return double(v.shape.count()) * double(size_of(v.dtype)); }
  static Kernel between(DType a, DType b) { return a == b ? Kernel::pointwise : Kernel::converting; }
  static Kernel copy(DType from, DType to) { return size_of(to) > size_of(from) ? Kernel::converting : Kernel::pointwise; }

 private:
  void add_into(Value& old, Value more);
  Allocator& memory_;
  Launches* launches_ = nullptr;
  std::uint64_t next_age_ = 0;
  bool history_ = true;
};

}  // namespace headroom::pytorch
