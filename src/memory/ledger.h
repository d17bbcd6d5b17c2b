// Ledger — records every allocation of an arena and its end, with name, phase and order. The account, the plan and the report read it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace headroom {

enum class Phase : std::uint8_t { input, parameter, gradient, optimizer, saved, forward, backward, workspace };
constexpr int phase_count = 8;
std::string_view name_of(Phase);

struct Name {  // A tensor's name. Layer −1: it belongs to no layer. Allocates nothing.
  const char* text;
  int layer;
  Name(const char* t, int l = -1) : text(t), layer(l) {}
  std::string full() const;  // "block 3 attention.p"
};

struct Entry {  // one tensor in the arena
  Name name;
  DType dtype;
  Shape shape;
  std::size_t bytes;  // bytes of the elements
  std::size_t taken;  // after the arena's rounding; counts for the peak
  Phase phase;
};

class Ledger {
 public:
  struct Event {
    std::uint32_t entry;  // index into entries()
    bool take;            // false: the entry's end
    std::size_t live;     // bytes live after it
  };

  void take(const Entry&);
  void give(std::size_t count);  // ends the last `count` live entries, newest first
  void clear();

  std::size_t live_bytes() const { return live_bytes_; }
  std::size_t peak_bytes() const { return peak_bytes_; }
  void start_peak();  // the next peak starts at what is live now

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Event>& events() const { return events_; }
  std::vector<Entry> standing() const;  // live now
  std::vector<Entry> at_peak() const;   // live at the peak

 private:
  std::vector<Entry> entries_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> live_;
  std::size_t live_bytes_ = 0, peak_bytes_ = 0;
  std::size_t peak_event_ = 0;  // number of events when the peak was reached
};

}  // namespace headroom
