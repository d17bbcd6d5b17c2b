// A line on a terminal's standard error that says how far a command is and how long it will still take. Silent elsewhere.
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
  std::chrono::steady_clock::time_point start_;
};

}  // namespace headroom::cli
