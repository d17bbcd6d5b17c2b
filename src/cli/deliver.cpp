#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "cli/command.h"

namespace headroom::cli {

int deliver(const Record& record, const Common& common, int code) {
  const std::string text = render(record, common.format);
  if (common.out.empty()) {
    const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;  // before errno is read
    check(written, Code::io, "standard output cannot be written to: {}", std::strerror(errno));
    return code;
  }
  std::ofstream file(common.out, std::ios::binary);
  file << text << std::flush;
  if (!file) {
    std::fputs(text.c_str(), stdout);  // nothing is lost
    throw Error(Code::io, fmt::format("--out: '{}' cannot be written to; it is printed here instead", common.out));
  }
  std::fputs(fmt::format("wrote {}\n", common.out).c_str(), stderr);
  return code;
}

namespace {
volatile std::sig_atomic_t interrupts = 0;
extern "C" void on_interrupt(int) { interrupts = 1; }
}  // namespace

void listen_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // the next one ends the program as usual
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupts != 0; }

}  // namespace headroom::cli
