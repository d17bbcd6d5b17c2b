// What a command says of its progress, on standard error. On a terminal one line with the estimated time left, which is wiped at the
// end; elsewhere nothing, or, of a command whose runs take hours, a line now and then.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/text.h"

namespace headroom::cli {

enum class Elsewhere : std::uint8_t { nothing, lines };  // if standard error is no terminal

// ", about 12 s left", after ms of work of which this share is done; empty where that says nothing.
inline std::string left_in_words(double ms, double done_share) {
  if (done_share <= 0.01 || done_share >= 1) return "";
  const double left_s = std::ceil(ms / done_share * (1 - done_share) / 1e3);  // a guess: whole seconds say enough
  return ", about " + time_in_words(1e3 * left_s) + " left";
}

// Lets some lines pass at once, and after them one in each `time`: a line before long work is then seen, however soon it follows another.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  Pace(Clock::duration time, int at_once) : time_(time), ahead_((at_once - 1) * time) {}
  bool passes(Clock::time_point now) {
    if (now + ahead_ < next_) return false;
    next_ = std::max(next_, now) + time_;
    return true;
  }

 private:
  Clock::duration time_, ahead_;
  Clock::time_point next_{};
};

class Progress {
 public:
  Progress(const char* who, Elsewhere);
  ~Progress();  // wipes the terminal's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double done_share, const std::string& doing);  // share of the work, 0 to 1
  void announce(const std::string& doing);                 // before anything is done: on a terminal alone

 private:
  std::string left(double done_share) const;

  std::string who_;
  bool terminal_, lines_;
  Pace pace_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace headroom::cli
