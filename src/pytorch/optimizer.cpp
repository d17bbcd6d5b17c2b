#include "pytorch/optimizer.h"

#include <algorithm>

namespace headroom::pytorch {

namespace {

constexpr std::int64_t in_8_bits = 4096, paged_from = 100'000;  // numbers, of bitsandbytes

}  // namespace

void Optimizer::make_state(const Shape& s) {
  const std::int64_t n = s.count();
  const auto moments = [&](DType type) {
    for (auto name : {"Adam's first moment", "Adam's second moment"}) state_.push_back(torch_.make(name, type, s));
  };
  switch (adam_) {
    case Adam::sgd: return;
    case Adam::offloaded: host_bytes_ += 4 * std::uint64_t(n) * size_of(type_); return;  // parameter, gradient, two moments
    case Adam::adafactor:
      if (s.rank < 2) return state_.push_back(torch_.make("Adafactor's variance", type_, s));
      state_.push_back(torch_.make("Adafactor's rows", type_, {s[0], 1}));
      state_.push_back(torch_.make("Adafactor's columns", type_, {1, s[1]}));
      return;
    case Adam::lion: return state_.push_back(torch_.make("Lion's moment", DType::f32, s));
    case Adam::muon:
    case Adam::fused: state_.push_back(torch_.make("Adam's step count", DType::f32, {1})); [[fallthrough]];
    case Adam::foreach: return moments(type_);
    case Adam::lion_8bit:
      if (n < in_8_bits) return state_.push_back(torch_.make("Lion's moment", DType::f32, s));
      state_.push_back(torch_.make("Lion's moment", DType::u8, s));
      return state_.push_back(torch_.make("scales of moments", DType::f32, {(n + 255) / 256}));
    case Adam::eight_bit:
    case Adam::paged: break;
  }
  if (n < in_8_bits) return moments(type_);
  if (adam_ == Adam::paged && n >= paged_from)
    host_bytes_ += 2 * std::uint64_t(n);
  else
    moments(DType::u8);
  for (auto name : {"scales of first moments", "scales of second moments"})
    state_.push_back(torch_.make(name, DType::f32, {(n + 255) / 256}));
}

void Optimizer::make_tables() {
  if (adam_ == Adam::eight_bit || adam_ == Adam::paged)
    for (auto name : {"values of 8 bits, first moments", "values of 8 bits, second moments"})
      state_.push_back(torch_.make(name, DType::f32, {256}));
  if (adam_ == Adam::lion_8bit) state_.push_back(torch_.make("values of 8 bits", DType::f32, {256}));
}

Value Optimizer::temporary_of(const Shape& s) {
  const bool any = adam_ == Adam::adafactor || (adam_ == Adam::foreach && in_backward_);
  return any ? torch_.make("update of one parameter", type_, s) : Value{};
}

// Five steps of Newton and Schulz in bf16. What Python's variables hold of the step before goes when the next is there.
void Optimizer::orthogonalise(const Shape& s) {
  const std::int64_t side = std::min(s[0], s[1]);
  const auto make = [&](const char* name, Shape shape) { return torch_.make(name, DType::bf16, shape); };
  const Value update = torch_.make("gradient and momentum of one matrix", type_, s);
  last_ = {};
  Value whole = make("the same in bf16", s), gram, gram_update;
  torch_.touch_workspace();
  for (int i = 0; i < 5; ++i) {
    gram = make("its rows' products", {side, side});
    gram_update = make("a polynomial of them", {side, side});
    whole = make("the next step of it", s);
  }
  last_ = whole;
}

void Optimizer::update() {
  if (state_.empty() && host_bytes_ == 0) {
    for (const Shape& s : hidden_) state_.push_back(torch_.make("Muon's momentum", type_, s));
    for (const Shape& s : updated_) make_state(s);
    make_tables();
  }
  torch_.launched([this](Launches& to) { launch(to); });
  for (const Shape& s : hidden_) orthogonalise(s);
  last_ = {};
  if (adam_ != Adam::foreach) {
    for (const Shape& s : updated_) const Value one = temporary_of(s);
    return;
  }
  std::vector<Value> roots;
  for (const Shape& s : updated_) roots.push_back(torch_.make("root of the second moment", type_, s));
}

void Optimizer::launch(Launches& to) const {
  std::int64_t numbers = 0;
  for (const Shape& s : updated_) numbers += s.count();
  const DType t = type_;
  switch (adam_) {
    case Adam::fused: return to.fused_adam(numbers, t);
    case Adam::sgd: return to.list("BinaryOpListAlpha", numbers, t, 2, 2);
    case Adam::foreach:  // weight decay, first moment, second moment in two, root, its correction, epsilon, parameters
      to.list("BinaryOpScalar", numbers, t, 1, 1);
      to.list("TernaryOpScalar", numbers, t, 2, 2);
      to.list("BinaryOpScalar", numbers, t, 1, 1);
      to.list("PointwiseOpScalar", numbers, t, 3, 3);
      to.list("UnaryOp", numbers, t, 2, 1);
      to.list("BinaryOpScalarList", numbers, t, 1, 1);
      to.list("BinaryOpScalar", numbers, t, 1, 1);
      return to.list("PointwiseOpScalarList", numbers, t, 3, 3);
    case Adam::paged:      // while its pages are on the card
    case Adam::eight_bit:  // a kernel for each parameter: it reads the gradient, and reads and writes parameter and two moments
      for (const Shape& s : updated_) {
        const double moments = s.count() < in_8_bits ? 16 : 4;
        to.kernel(Kernel::other, s.count(), double(s.count()) * (3 * double(size_of(t)) + moments));
      }
      return;
    case Adam::lion:
    case Adam::lion_8bit:  // the same with one moment
      for (const Shape& s : updated_)
        to.kernel(Kernel::other, s.count(),
                  double(s.count()) * (3 * double(size_of(t)) + (adam_ == Adam::lion || s.count() < in_8_bits ? 8 : 2)));
      return;
    case Adam::offloaded:
    case Adam::muon:
    case Adam::adafactor: return;
  }
}

void Optimizer::update_in_backward(const std::vector<Parameter>& trained) {
  make_tables();
  for (const Parameter& p : trained)
    *p.arrived = [this, grad = p.grad, shape = p.value.shape, known = false]() mutable {
      const Phase before = torch_.memory().phase();
      torch_.memory().enter(Phase::optimizer);
      if (!known) make_state(shape);
      known = true;
      { const Value one = temporary_of(shape); }
      *grad = {};
      torch_.memory().enter(before);
    };
}

}  // namespace headroom::pytorch
