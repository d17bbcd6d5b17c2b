#include "dry/library/exchange.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "dry/library/world.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

struct Entry {
  std::uint32_t bytes, known;
};

// A rank that has not come after this long will not: it has ended, or the ranks disagree about what they exchange.
constexpr int patience_ms = 120'000, patience_with_hosts_ms = 10'000, patience_once_one_is_absent_ms = 100;

int number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

class Log {  // a file of entries, written by one rank and read by all
 public:
  Log(const std::string& channel, int rank, int flags) {
    if (folder()) path_ = std::string(folder()) + "/values-" + channel + "-" + std::to_string(rank);
    flags_ = flags | O_CLOEXEC;
  }
  bool open() {
    if (file_ < 0 && !path_.empty()) file_ = ::open(path_.c_str(), flags_, 0600);
    return file_ >= 0;
  }
  void append(const void* bytes, Entry entry) {
    if (!open()) return;
    std::string whole(reinterpret_cast<const char*>(&entry), sizeof entry);
    if (entry.known) whole.append(static_cast<const char*>(bytes), entry.bytes);
    for (std::size_t done = 0; done < whole.size();) {
      const ssize_t n = write(file_, whole.data() + done, whole.size() - done);
      if (n <= 0) return;
      done += std::size_t(n);
    }
  }
  // The entry of that number, if it is there in full.
  std::optional<Given> entry(std::uint64_t number) {
    while (starts_.size() <= number) {
      const std::uint64_t at = end_;
      Entry e{};
      if (!open() || pread(file_, &e, sizeof e, off_t(at)) != ssize_t(sizeof e)) return {};
      starts_.push_back(at);
      end_ = at + sizeof e + (e.known ? e.bytes : 0);
    }
    Entry e{};
    if (pread(file_, &e, sizeof e, off_t(starts_[number])) != ssize_t(sizeof e)) return {};
    Given out{e.known != 0, std::vector<char>(e.known ? e.bytes : 0)};
    if (pread(file_, out.bytes.data(), out.bytes.size(), off_t(starts_[number] + sizeof e)) != ssize_t(out.bytes.size())) return {};
    return out;
  }

 private:
  std::string path_;
  int flags_ = 0, file_ = -1;
  std::vector<std::uint64_t> starts_;
  std::uint64_t end_ = 0;
};

struct Logs {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, Log> given, taken;
  std::set<std::pair<std::string, int>> absent;  // ranks of other hosts
};
Logs& logs() {
  static Logs& one = *new Logs;
  return one;
}

}  // namespace

void give_values(const std::string& channel, int rank, const void* bytes, std::size_t count, bool known) {
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().given.try_emplace({channel, rank}, channel, rank, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND).first->second;
  log.append(bytes, {std::uint32_t(count), known});
}

namespace {

// A rank of this host that stands for one of another: of the world the one in its place there, of other groups this process.
int instead_of(const std::string& channel, int rank) {
  const int here = number_of("LOCAL_WORLD_SIZE");
  if (here > 0 && rank >= here) return rank % here;
  const std::lock_guard lock(logs().mutex);
  if (!logs().absent.contains({channel, rank})) return rank;
  const auto own = logs().given.lower_bound({channel, 0});
  return own != logs().given.end() && own->first.first == channel ? own->first.second : rank;
}

// More ranks than cards, or a launcher that says so.
bool several_hosts() { return number_of(hosts_variable) > 1 || number_of("WORLD_SIZE") > std::max(1, host_cards()); }

int patience() {
  if (!several_hosts()) return patience_ms;
  const std::lock_guard lock(logs().mutex);
  return logs().absent.empty() ? patience_with_hosts_ms : patience_once_one_is_absent_ms;
}

}  // namespace

std::optional<Given> given_so_far(const std::string& channel, int rank, std::uint64_t number) {
  if (!folder()) return {};
  const std::lock_guard lock(logs().mutex);
  return logs().taken.try_emplace({channel, rank}, channel, rank, O_RDONLY).first->second.entry(number);
}

std::optional<Given> take_values(const std::string& channel, int rank, std::uint64_t number) {
  if (!folder()) return {};
  if (several_hosts()) rank = instead_of(channel, rank);
  for (int waited = 0, most = patience(); waited < most; ++waited) {
    if (auto given = given_so_far(channel, rank, number)) return given;
    usleep(1000);
  }
  if (several_hosts()) {
    {
      const std::lock_guard lock(logs().mutex);
      if (!logs().absent.emplace(channel, rank).second) return {};
    }
    return take_values(channel, rank, number);
  }
  note(Said::refused, "a rank did not come: " + channel);
  return {};
}

namespace {

struct Meeting {
  int ranks = 0;
  std::uint64_t number = 0;
};
thread_local std::map<std::string, Meeting> meetings;  // by channel: the latest, because a rank's contributions come in order

}  // namespace

void meet_later(const std::string& channel, int ranks, std::uint64_t number) { meetings[channel] = {ranks, number}; }

void meet() {
  for (const auto& [channel, meeting] : std::exchange(meetings, {}))
    for (int r = 0; r < meeting.ranks; ++r) take_values(channel, r, meeting.number);
}

}  // namespace headroom::dry
