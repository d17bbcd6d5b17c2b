#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/printable.h"
#include "base/text.h"

namespace headroom::cli {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::show(double done_share, const std::string& doing) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now < shown_ + std::chrono::milliseconds(100)) return;
  shown_ = now;
  const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
  const std::string left = done_share > 0.01 ? ", about " + time_in_words(ms / done_share * (1 - done_share)) + " left" : "";
  winsize size{};
  const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1 : 79;  // in one line
  const std::string line = fmt::format("{:3.0f} %{} · {}", 100 * done_share, left, printable(doing));
  std::fputs(("\r\033[K" + shortened(line, columns)).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace headroom::cli
