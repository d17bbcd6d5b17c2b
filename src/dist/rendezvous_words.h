// What both ends of a rendezvous say and go by: the greeting, silence, and a process that is gone.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/text.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr const char* protocol = "headroom 2";
constexpr const char* gone_without_word = "its process is gone without a word (killed, or crashed)";

inline std::string seconds_in_words(milliseconds t) { return fmt::format("{:g} s", std::chrono::duration<double>(t).count()); }

// What a rank says when it comes, and what must be equal: the job's name and the port that was meant, because a rank that finds it
// taken goes on to the next.
inline std::string greeting_of(const Coming& c) {
  constexpr std::size_t most = 160;
  const std::string port = c.address.local || c.address.port == 0 ? "" : fmt::format("port {}", c.address.port);
  return fmt::format("{} {}{}{}", protocol, port, port.empty() || c.job.empty() ? "" : ", ", c.job).substr(0, most);
}

// Silence counts only while this process itself runs: one that was stopped for a while, or whose machine slept, starts anew.
class Awake {
 public:
  explicit Awake(milliseconds limit) : limit_(limit) {}
  bool slept() {
    const auto now = Clock::now();
    return now - std::exchange(last_, now) > limit_ / 2;
  }

 private:
  milliseconds limit_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace headroom::dist
