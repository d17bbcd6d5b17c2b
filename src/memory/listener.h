// Listener — is called when an op, a module around it or a part inside it begins and ends. An instrument that measures time
// implements it. Regions nest like braces. A Context without a listener does nothing here.
#pragma once
#include "base/dtype.h"
#include "memory/ledger.h"

namespace headroom {

struct Cost {  // one op's cost, by formula
  double flops = 0;
  double bytes = 0;       // read plus written, each tensor counted once
  double link_bytes = 0;  // sent to other devices
};

enum class Work : std::uint8_t { other, matmul, softmax, attention };  // attention: products and softmax in one kernel
constexpr std::string_view name_of(Work w) {
  constexpr std::array<std::string_view, 4> names = {"other", "matmul", "softmax", "fused attention"};
  return names[std::size_t(w)];
}

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
