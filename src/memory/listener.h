// Listener — is called when an op, a module around it or a part inside it begins and ends. An instrument that measures time
// implements it. Regions nest like braces. A Context without a listener does nothing here.
#pragma once
#include "base/dtype.h"
#include "memory/ledger.h"

namespace headroom {

// A product's output is m x n, its sums have k terms, and it is taken `batch` times. Of attention: len_q, len_k, the head's dimensions, and the
// heads of all sequences. 0: the op is neither.
struct Sides {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
};

// What a card's time depends on beside the formula.
struct OnCard {
  int launches = 1;       // kernels, each begun after the one before
  double again = 0;       // bytes that are read a second time
  double behind = 0;      // bytes that are moved behind a product's tiles, and hold its next ones up
  double in_turn = 0;     // operations in FP32 that do not run beside the others
  bool older = false;     // attention by kernels of an architecture before the card's own
  int tf32_products = 0;  // each product of FP32 is so many of tf32, whose ceiling limits them
  double units_us =
      0;  // how long Hopper's units compute at their full clock, where its kernels were timed (bench/lab/kernel_times.md); 0: they were not
};

struct Cost {  // one op's cost, by formula
  double flops = 0;
  double bytes = 0;       // read plus written, each tensor counted once
  double link_bytes = 0;  // sent to other devices
  Sides sides{};          // times go by them: tiles of a small output leave units of the card idle
  OnCard on_card{};
};

// The kind of work that an op does. Profiles group times by it, and expected times have a factor for each kind: an op says its own.
enum class Work : std::uint8_t {
  other,
  matmul,
  softmax,
  attention,        // products and softmax in one kernel
  attention_parts,  // the same, each a part of the op
  norm,
  rotary,
  loss,
  residual,
  update,
  rounding_update,  // an update whose moments are rounded at random
  quantise,
};
constexpr std::array<std::string_view, 12> work_names = {"other",  "matmul", "softmax",  "fused attention", "attention",       "norm",
                                                         "rotary", "loss",   "residual", "update",          "rounding update", "quantise"};
constexpr std::string_view name_of(Work w) { return work_names[std::size_t(w)]; }

enum class Making : std::uint8_t { values, gradients };  // what an op makes: gradients are made in backward alone, values also there

struct Region {
  enum class Kind : std::uint8_t { module, op, part };
  Kind kind;
  Name name;
  Phase phase;
  Precision precision;
  Cost cost;
  Work work = Work::other;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void begin(const Region&) = 0;
  virtual void end() noexcept = 0;  // ends the innermost open region
};

class [[nodiscard]] Running {  // a region, until the closing brace
 public:
  Running(Listener* listener, const Region& r) : listener_(listener) {
    if (listener_) listener_->begin(r);
  }
  ~Running() {
    if (listener_) listener_->end();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Listener* listener_;
};

}  // namespace headroom
