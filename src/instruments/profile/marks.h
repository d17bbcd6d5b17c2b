// Marks — a Listener that records when every region began and ended, and the ledger's position at both. An optional Echo
// is called at the same moments; it connects a GPU's kernels to the op that launched them.
#pragma once
#include <cstdint>
#include <vector>

#include "memory/listener.h"

namespace headroom::profile {

std::int64_t now_ns();  // the host's steady clock

struct Mark {
  Region region;
  int parent = -1;  // index of the region around it
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint32_t events_begin = 0, events_end = 0;  // numbers of the ledger's events at its begin and end
};

class Echo {
 public:
  virtual ~Echo() = default;
  virtual void begin(int mark, const Region&) = 0;
  virtual void end() noexcept = 0;
};

class Marks final : public Listener {
 public:
  explicit Marks(const Ledger* ledger = nullptr, Echo* echo = nullptr) : ledger_(ledger), echo_(echo) { marks_.reserve(4096); }

  void begin(const Region&) override;
  void end() noexcept override;

  const std::vector<Mark>& all() const { return marks_; }

 private:
  std::uint32_t events() const { return ledger_ ? std::uint32_t(ledger_->events().size()) : 0; }

  const Ledger* ledger_;
  Echo* echo_;
  std::vector<Mark> marks_;
  int open_ = -1;
};

// Measures the cost of one region's begin and end; a recording's overhead is this times its marks.
double mark_cost_ns();

}  // namespace headroom::profile
