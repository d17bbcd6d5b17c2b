// Arena — a stack of named tensors in one allocation. It is independent of CUDA. Without memory (dry) the same calls predict the peak.
//
// Order of calls: make, make, … inside a scope; the closing brace frees everything made since the scope was opened.
// One thread uses an arena. An attached ledger records every allocation and its end; without one, nothing else is allocated.
#pragma once
#include <cstdint>
#include <limits>
#include <utility>

#include "base/divide.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/tensor.h"
#include "memory/ledger.h"

namespace headroom {

class Arena {
 public:
  static constexpr std::size_t alignment = 256;  // cudaMalloc's; enough for every vector load
  static constexpr std::size_t boundless = std::numeric_limits<std::size_t>::max() / 2;
  static constexpr std::size_t rounded(std::size_t bytes) { return round_up(bytes, alignment); }

  Arena(void* base, std::size_t capacity, Ledger* ledger = nullptr)
      : base_(reinterpret_cast<std::uintptr_t>(base)), capacity_(capacity), ledger_(ledger) {}
  explicit Arena(Ledger* ledger = nullptr) : Arena(nullptr, boundless, ledger) {}  // dry
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool dry() const { return base_ == 0; }

  Tensor make(Name name, DType type, Shape shape) {
    const Tensor view(reinterpret_cast<void*>(base_ + top_), type, shape);
    const std::size_t taken = rounded(view.bytes());
    fault::point();
    if (taken > capacity_ - top_) [[unlikely]]
      refuse(name, type, shape, taken);
    if (ledger_) ledger_->take({name, type, shape, view.bytes(), taken, phase_});
    ++made_;
    if ((top_ += taken) > peak_) peak_ = top_;
    return view;
  }

  class [[nodiscard]] Scope {  // frees at the closing brace what was made after this line
   public:
    explicit Scope(Arena& a) : arena_(a), top_(a.top_), made_(a.made_) {}
    ~Scope() { arena_.give_back(top_, made_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t top_, made_;
  };
  Scope scope() { return Scope(*this); }

  class [[nodiscard]] InPhase {  // tensors made until the closing brace belong to this phase
   public:
    InPhase(Arena& a, Phase p) : arena_(a), before_(std::exchange(a.phase_, p)) {}
    ~InPhase() { arena_.phase_ = before_; }
    InPhase(const InPhase&) = delete;
    InPhase& operator=(const InPhase&) = delete;

   private:
    Arena& arena_;
    Phase before_;
  };
  InPhase in_phase(Phase p) { return InPhase(*this, p); }
  Phase phase() const { return phase_; }

  std::size_t used() const { return top_; }
  std::size_t peak() const { return peak_; }
  std::size_t capacity() const { return capacity_; }
  void start_peak() {  // the next peak is counted from what is live now
    peak_ = top_;
    if (ledger_) ledger_->start_peak();
  }
  Ledger* ledger() const { return ledger_; }

 private:
  [[noreturn]] void refuse(Name name, DType type, Shape shape, std::size_t taken) const;

  void give_back(std::size_t top, std::size_t made) {
    if (ledger_) ledger_->give(made_ - made);
    top_ = top;
    made_ = made;
  }

  std::uintptr_t base_;
  std::size_t capacity_, top_ = 0, peak_ = 0, made_ = 0;
  Phase phase_ = Phase::workspace;
  Ledger* ledger_;
};

}  // namespace headroom
