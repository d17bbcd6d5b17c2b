#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/text.h"

namespace headroom::cli {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::show(double done_share, const std::string& doing) {
  if (!terminal_) return;
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  const std::string left = done_share > 0.01 ? ", about " + time_in_words(ms / done_share * (1 - done_share)) + " left" : "";
  std::fputs(fmt::format("\r\033[K{:3.0f} %{} · {}", 100 * done_share, left, doing).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace headroom::cli
