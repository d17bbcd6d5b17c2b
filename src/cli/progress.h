// A progress line with the estimated time left, on standard error if that is a terminal.
#pragma once
#include <chrono>
#include <string>

namespace headroom::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(double done_share, const std::string& doing);  // share of the work, 0 to 1

 private:
  bool terminal_;
  std::chrono::steady_clock::time_point start_, shown_{};
};

}  // namespace headroom::cli
