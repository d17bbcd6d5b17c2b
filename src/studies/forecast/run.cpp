#include "studies/forecast/run.h"
#include "studies/scratch_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/host_memory.h"
#include "base/text.h"

namespace headroom::studies {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t tail_bytes = 1 << 16;
constexpr auto between_reads = std::chrono::milliseconds(200);

// A record that is still being written, from where it was left.
class Growing {
 public:
  explicit Growing(const fs::path& file) : file_(open(file.c_str(), O_RDONLY | O_CLOEXEC)) {}

  void look() {
    if (!file_) return;
    if (at_ == 0) {
      dry::FileHead head;
      if (!read_at(0, &head, sizeof head) || std::memcmp(head.magic, dry::record_magic, sizeof head.magic) != 0 || head.bytes < sizeof head)
        return;
      at_ = head.bytes;
    }
    std::vector<char> bytes(1 << 20);
    for (;;) {
      const auto n = pread(file_.get(), bytes.data(), bytes.size(), off_t(at_));
      if (n < ssize_t(sizeof(dry::Head))) return;
      std::size_t used = 0;
      while (used + sizeof(dry::Head) <= std::size_t(n)) {
        dry::Head head;
        std::memcpy(&head, bytes.data() + used, sizeof head);
        const std::size_t size = std::size_t(head.words) * 8;
        if (head.kind == dry::Kind::end || size < sizeof head) {
          at_ += used;
          return;
        }
        if (used + size > std::size_t(n)) break;
        take(head, bytes.data() + used + sizeof head, size - sizeof head);
        used += size;
      }
      if (used == 0) return;
      at_ += used;
    }
  }

  std::uint64_t live = 0;
  std::int64_t steps = 0;

 private:
  bool read_at(std::uint64_t at, void* into, std::size_t bytes) const {
    return pread(file_.get(), into, bytes, off_t(at)) == ssize_t(bytes);
  }
  void take(const dry::Head& head, const char* payload, std::size_t bytes) {
    if (head.kind == dry::Kind::block && bytes >= sizeof(dry::BlockChange)) {
      dry::BlockChange block;
      std::memcpy(&block, payload, sizeof block);
      live = block.allocated;
    } else if (head.kind == dry::Kind::name && bytes >= sizeof(dry::Name)) {
      dry::Name name;
      std::memcpy(&name, payload, sizeof name);
      if (std::string_view(payload + sizeof name, std::min<std::size_t>(name.length, bytes - sizeof name)) == "step") step_name_ = name.id;
    } else if (head.kind == dry::Kind::mark && bytes >= sizeof(dry::Mark)) {
      dry::Mark mark;
      std::memcpy(&mark, payload, sizeof mark);
      steps += mark.what == step_name_;
    }
  }

  Descriptor file_;
  std::uint64_t at_ = 0;
  std::uint32_t step_name_ = ~0u;
};

class Watching {
 public:
  explicit Watching(const fs::path& folder) : folder_(folder) {}
  void look() {
    if (Clock::now() < looked_ + between_reads) return;
    looked_ = Clock::now();
    least_available_ = std::min(least_available_, host_memory().available);
    for (const fs::path& file : files_with(folder_, ".dry")) files_.try_emplace(file.string(), file);
    for (auto& [name, file] : files_) file.look();
  }
  std::uint64_t live() const {  // the most that a rank has
    std::uint64_t most = 0;
    for (const auto& [name, file] : files_) most = std::max(most, file.live);
    return most;
  }
  std::int64_t steps() const {
    std::int64_t most = 0;
    for (const auto& [name, file] : files_) most = std::max(most, file.steps);
    return most;
  }
  std::uint64_t host_bytes() const { return at_first_ - least_available_; }  // what other programs took meanwhile, too

 private:
  fs::path folder_;
  const std::uint64_t at_first_ = host_memory().available;
  std::uint64_t least_available_ = at_first_;
  std::map<std::string, Growing> files_;
  Clock::time_point looked_{};
};

}  // namespace

namespace {

std::string without_rank(std::string line) {  // "[rank0]: ", as PyTorch begins a line of a traceback
  if (!line.starts_with("[rank")) return line;
  const std::size_t end = line.find_first_not_of("0123456789", 5);
  if (end != std::string::npos && line.compare(end, 3, "]: ") == 0) line.erase(0, end + 3);
  return line;
}

// The last line that is not empty, and the last with which a traceback ends.
std::pair<std::string, std::string> last_lines(const std::string& tail) {
  std::string last, exception;
  bool in_next_line = false;  // "ImportError: " and its text below, as transformers writes it
  for (std::size_t begin = 0; begin < tail.size();) {
    const std::size_t end = std::min(tail.find_first_of("\r\n", begin), tail.size());
    const std::string line = without_rank(tail.substr(begin, end - begin));
    begin = end + 1;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const bool has_words = std::ranges::any_of(line, [](unsigned char c) { return std::isalpha(c); });
    if (has_words || last.empty()) last = line;  // not the ruler below a message
    if (in_next_line && has_words) exception += line;
    in_next_line = false;
    // "torch.OutOfMemoryError: …", as Python ends a traceback; what a bar of progress writes after it says nothing.
    const std::size_t word = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    const std::string name = line.substr(0, word);
    const bool raised = name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt");
    if (!raised || (word != std::string::npos && line[word] != ':')) continue;
    const bool silent = word != std::string::npos && line.find_first_not_of(": \t", word) == std::string::npos;
    if (silent && !exception.empty()) continue;  // torchrun's ChildFailedError, after a rank's own
    exception = line;
    in_next_line = silent;
  }
  return {last, exception};
}

}  // namespace

bool DryRun::any_bytes() const {
  return std::any_of(processes.begin(), processes.end(), [](const ProcessStory& p) { return !p.cards.empty(); });
}

bool DryRun::says(std::string_view words) const {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(tail.begin(), tail.end(), words.begin(), words.end(), same) != tail.end();
}

std::string DryRun::last_line() const {
  const auto [last, exception] = last_lines(tail);
  return exception.empty() ? last : exception;
}

bool DryRun::shows_exception() const { return !last_lines(tail).second.empty(); }

std::string find_dry_library() {
  const char* const name = "libheadroom_dry.so";
  const fs::path library = beside_program(name);
  check(!library.empty(), Code::unsupported, "a program is run dry by {}, which is in {}; build it with the program: make build", name,
        places_beside_program());
  return library.string();
}

namespace {

// What observes PyTorch from within: modules, phases, steps, values. Without it nothing would end the program after its steps.
std::vector<std::string> observed(std::int64_t steps) {
  const fs::path observer = beside_program("headroom_observer");
  check(!observer.empty(), Code::unsupported,
        "a program is run dry with the folder headroom_observer, which is in {}; build it with the program: make build",
        places_beside_program());
  return {fmt::format("{}={}", dry::observer_variable, observer.string()), fmt::format("HEADROOM_DRY_STEPS={}", steps)};
}

// A program that ended itself with an exit code of its own, after enough of its steps were seen.
void add_own_ends(DryRun& run) {
  if (run.ended.exit_code == 0 || run.ended.asked) return;
  for (ProcessStory& p : run.processes) {
    if (p.settled.empty() || !p.end.empty() || p.ran_out_at_its_end()) continue;
    p.end = p.settled;
    p.ended_itself = true;
    p.said.push_back({"note", fmt::format("after its steps agreed, the program ended itself ({})",
                                          run.ended.by.empty() ? fmt::format("exit code {}", run.ended.exit_code) : run.ended.by)});
  }
}

// A record that had no room says too little: an answer from it would be wrong.
void check_whole(const fs::path& folder) {
  for (const fs::path& path : files_with(folder, ".dry")) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    dry::FileHead head{};
    const bool begun = file && pread(file.get(), &head, sizeof head, 0) == ssize_t(sizeof head) && head.bytes > 0;
    check(begun && head.cut == 0, Code::io,
          "forecast: the record of the run needs more room than there is in '{}'; TMPDIR names another place for it",
          folder.parent_path().string());
  }
}

}  // namespace

bool DryRun::ended_well() const {
  const bool waits = std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.waits; });
  return !waits && (ended.exit_code == 0 || enough);
}

// PyTorch's error ended it. Of a program that writes elsewhere (a log, a closed standard error) the exit code says enough, if it shows no other error.
bool DryRun::ran_out() const {
  bool noted = false, raised = false;
  for (const ProcessStory& p : processes)
    for (const ProgramAccount& a : p.cards) {
      noted |= a.ran_out.has_value();
      raised |= a.ran_out && a.ran_out->raised;
    }
  const bool silently = raised && ended.exit_code != 0 && ended.by.empty() && !shows_exception();
  return noted && (says("out of memory") || says("OutOfMemoryError") || silently);
}

std::optional<RanOut> DryRun::where_it_ran_out() const {
  std::optional<RanOut> found;
  for (const ProcessStory& p : processes)
    for (const ProgramAccount& a : p.cards)
      if (a.ran_out && (!found || a.ran_out->raised)) found = a.ran_out;
  return found;
}

std::string DryRun::how_it_ended() const {
  for (const ProcessStory& p : processes)
    if (p.waits) return p.end;
  const std::string last = last_line();
  return fmt::format("{}{}", ended.by.empty() ? fmt::format("exit code {}", ended.exit_code) : ended.by,
                     last.empty() ? "" : ": " + shortened(last, 120));
}

std::uint64_t DryRun::most_reserved() const {
  std::uint64_t most = 0;
  for (const ProcessStory& p : processes)
    for (const ProgramAccount& a : p.cards) most = std::max(most, a.peak_reserved_bytes + a.elsewhere_bytes);
  return most;
}

std::int64_t DryRun::steps() const {
  std::int64_t steps = 0;
  for (const ProcessStory& p : processes)
    for (const ProgramAccount& a : p.cards) steps = std::max(steps, a.whole_steps);
  return steps;
}

DryRun run_dry(const DryRunAsked& asked) {
  const ScratchFolder folder("forecast", "headroom-forecast", ScratchFolder::Orphans::end);
  DryRun run;
  Launch launching{.who = "forecast", .advice = "activate the environment that has it, or give its path", .command = asked.program};
  for (const auto& [name, value] : dry::environment(asked.dry, find_dry_library(), folder.path().string()))
    launching.settings.push_back(name + "=" + value);
  for (std::string& setting : observed(asked.steps)) launching.settings.push_back(std::move(setting));
  launching.settings.insert(launching.settings.end(), asked.settings.begin(), asked.settings.end());
  launching.mark_of_left_over = folder.path().string();
  launching.output = [&](std::string_view text) {
    asked.output(text);
    run.tail += text;
    if (run.tail.size() > 2 * tail_bytes) run.tail.erase(0, run.tail.size() - tail_bytes);
  };
  Watching watching(folder.path());
  launching.watch = [&] {
    watching.look();
    asked.progress(watching.steps(), watching.live());
    return Launch::Next::go_on;
  };
  run.ended = launch(launching);
  run.host_bytes = std::max(watching.host_bytes(), std::uint64_t(run.ended.host_peak_bytes));
  for (const fs::path& file : files_with(folder.path(), ".dry")) run.record_bytes += fs::file_size(file);
  check_whole(folder.path());
  for (const dry::Process& process : dry::read_record(folder.path().string())) {
    run.processes.push_back(story_of(process));
    if (asked.rates) run.processes.back().time = dry::step_time(process, *asked.rates);
  }
  add_own_ends(run);
  run.enough = std::ranges::any_of(run.processes, [](const auto& p) { return !p.end.empty() && !p.waits; }) &&
               std::ranges::none_of(run.processes, &ProcessStory::ran_out_at_its_end);
  return run;
}

}  // namespace headroom::studies
