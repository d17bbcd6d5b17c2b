// What a command says of its progress, on standard error. On a terminal one line with the estimated time left, which is wiped at the
// end; elsewhere nothing, or, of a command whose runs take hours, a line now and then.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace headroom::cli {

enum class Elsewhere : std::uint8_t { nothing, lines };  // if standard error is no terminal

class Progress {
 public:
  Progress(const char* who, Elsewhere);
  ~Progress();  // wipes the terminal's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double done_share, const std::string& doing);  // share of the work, 0 to 1

 private:
  std::string left(double done_share) const;

  std::string who_;
  bool terminal_, lines_;
  std::chrono::steady_clock::time_point start_, shown_{};
};

}  // namespace headroom::cli
