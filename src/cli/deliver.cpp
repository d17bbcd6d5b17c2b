#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/commit.h"
#include "dist/quiet.h"
#include "gpu/device.h"
#include "report/described_table.h"

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

// The width of the terminal that standard output is, or what COLUMNS says if it is none.
int columns_of_output() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  int columns = 0;
  if (said && std::from_chars(said, said + std::strlen(said), columns).ec == std::errc() && columns > 0) return columns;
  return 0;
}

namespace {
// As https://no-color.org asks.
bool colour_is_welcome() {
  const char *refused = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && !(refused && *refused) && !(terminal && std::strcmp(terminal, "dumb") == 0);
}

std::string command_typed;

std::string program_of(std::string_view path) { return std::string(path.substr(path.find_last_of('/') + 1)); }

std::string now_in_words() {  // in UTC; SOURCE_DATE_EPOCH, for files that have to come out the same
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t now = fixed ? std::time_t(std::strtoll(fixed, nullptr, 10)) : std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

struct Origin {  // where a page or file comes from
  std::string command, date, machine, version, commit;
};
void describe(Of<Origin> auto& o, auto&& f) {
  f(o.command, {.name = "command"});
  f(o.date, {.name = "date"});
  f(o.machine, {.name = "machine"});
  f(o.version, {.name = "version"});
  f(o.commit, {.name = "commit"});
}

Record with_origin(Record r, const Common& common) {
  Origin o{command_typed, now_in_words(), cpu_device().name, HEADROOM_VERSION, std::string(commit_of_source)};
  if (common.machine == Machine::present && cuda_device_count() > 0) o.machine += " · " + cuda_device(0).name;
  if (common.format == Format::json) {
    Record made{"made_by", "", {}};
    return std::move(r.add(Part{std::move(add_fields(made, o))}));
  }
  const std::string commit = o.commit.empty() ? "" : ", commit " + o.commit;
  return std::move(
      r.add(Part{Note{fmt::format("Made by {} on {} UTC, {}, headroom {}{}.", o.command, o.date, o.machine, o.version, commit)}}));
}

}  // namespace

void remember_command(std::span<char*> words) {
  command_typed.clear();
  for (const char* word : words)
    command_typed += (command_typed.empty() ? "" : " ") + as_typed_in_a_shell(command_typed.empty() ? program_of(word) : word);
}

namespace {
// What could not be written is not lost: it is printed, a page as text; one of kept runs can be made again. Returns what was done.
const char* printed_instead(const Record& record, const std::string& text, const Common& common) {
  const bool page = common.format == Format::html;
  if (page && common.of_kept_runs) return "the runs are kept: name another place";
  print(page ? render_text(record, {}) : text);
  return page ? "it is printed here as text instead" : "it is printed here instead";
}

int deliver(const Record& record, const Common& common, int code, TextLook::Answer answer) {
  if (common.silent) return code;
  const bool for_reader = common.out.empty() && common.format == Format::text;
  const std::string text = for_reader ? render_text(record, {columns_of_output(), colour_is_welcome(), answer})
                                      : render(with_origin(record, common), common.format);
  if (common.out.empty()) {
    print(text);
    return code;
  }
  try {
    write_atomically(common.out, text);
  } catch (const Error& e) { throw Error(Code::io, fmt::format("--out: {}; {}", e.what(), printed_instead(record, text, common))); }
  say(fmt::format("wrote {}", common.out));
  return code;
}
}  // namespace

int deliver(const Record& record, const Common& common, int code) {
  return deliver(record, common, code, code == yes ? TextLook::Answer::good : TextLook::Answer::bad);
}

int deliver_stopped(const Record& record, const Common& common) { return deliver(record, common, failed, TextLook::Answer::none); }

}  // namespace headroom::cli
