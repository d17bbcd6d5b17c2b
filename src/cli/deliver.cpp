#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/command.h"
#include "dist/quiet.h"

namespace headroom::cli {

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written && errno == EPIPE) throw dist::Quiet(Code::io, "the reader of standard output is gone");  // "| head" has what it asked for
  check(written, Code::io, "standard output cannot be written to: {}", std::strerror(errno));
}

void say(const std::string& sentence) {
  const std::string line = printable(sentence) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

namespace {
// Of the terminal that standard output is, or what COLUMNS says where it is none; 0: as wide as the table.
int columns_of_output() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  int columns = 0;
  if (said && std::from_chars(said, said + std::strlen(said), columns).ec == std::errc() && columns > 0) return columns;
  return 0;
}
}  // namespace

int deliver(const Record& record, const Common& common, int code) {
  if (common.silent) return code;
  const bool for_reader = common.out.empty() && common.format == Format::text;
  const std::string text = for_reader ? render_text(record, columns_of_output()) : render(record, common.format);
  if (common.out.empty()) {
    print(text);
    return code;
  }
  try {
    write_atomically(common.out, text);
  } catch (const Error& e) {
    print(text);  // nothing is lost
    throw Error(Code::io, fmt::format("--out: {}; it is printed here instead", e.what()));
  }
  say(fmt::format("wrote {}", common.out));
  return code;
}

}  // namespace headroom::cli
