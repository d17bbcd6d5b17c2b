#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/printable.h"
#include "base/text.h"

namespace headroom::cli {

namespace {
constexpr std::chrono::milliseconds a_moment(100), now_and_then(30'000);
}

Progress::Progress(const char* who, Elsewhere elsewhere)
    : who_(who),
      terminal_(isatty(STDERR_FILENO) == 1),
      lines_(!terminal_ && elsewhere == Elsewhere::lines),
      pace_(terminal_ ? a_moment : now_and_then, terminal_ ? 3 : 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

std::string Progress::left(double done_share) const {
  return left_in_words(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count(), done_share);
}

void Progress::announce(const std::string& doing) {
  if (terminal_) show(0, doing);
}

void Progress::show(double done_share, const std::string& doing) {
  if ((!terminal_ && !lines_) || !pace_.passes(Pace::Clock::now())) return;
  if (lines_) {
    std::fputs(fmt::format("headroom {}: {}{}\n", who_, printable(doing), left(done_share)).c_str(), stderr);
  } else {
    winsize size{};
    const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1 : 79;  // in one line
    const std::string line = fmt::format("{:3.0f} %{} · {}", 100 * done_share, left(done_share), printable(doing));
    std::fputs(("\r\033[K" + shortened(line, columns)).c_str(), stderr);
  }
  std::fflush(stderr);
}

}  // namespace headroom::cli
