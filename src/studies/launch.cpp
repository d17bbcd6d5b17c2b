#include "studies/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"

extern char** environ;

namespace headroom::studies {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto between_looks = std::chrono::milliseconds(50), a_moment = std::chrono::milliseconds(10);
constexpr auto patience = std::chrono::seconds(10);  // with a program that was asked to end

// A handler runs in whichever thread its signal reached.
std::array<std::atomic<int>, most_launched> launched_children{};  // 0: free
std::atomic<int> launched_asked = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // others are not safe in a handler

extern "C" void hand_on(int signal, siginfo_t* about, void*) {
  const int before = errno;  // the errno of the call that the signal met
  launched_asked = signal;
  for (const std::atomic<int>& child : launched_children)
    if (const int pid = child; pid > 0 && about->si_code <= 0) kill(pid_t(pid), signal);  // from a program, not from the kernel
  errno = before;
}

// A started program's place among those that signals are handed on to.
class Child {
 public:
  explicit Child(pid_t number) : pid(number) {
    for (std::atomic<int>& one : launched_children)
      if (int free = 0; one.compare_exchange_strong(free, number)) {
        place_ = &one;
        return;
      }
  }
  ~Child() { has_ended(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void has_ended() {
    if (place_) *std::exchange(place_, nullptr) = 0;
  }
  const pid_t pid;

 private:
  std::atomic<int>* place_ = nullptr;
};

// While it lives, signals are handed on. Several live at once where several programs run: the first installs the handlers, the last takes them away. A
// signal that one of them met reaches this program's own handler then, too, even where it came after the programs' ends.
class HandedOn {
 public:
  explicit HandedOn(bool stops_us) {
    const std::lock_guard lock(mutex_);
    stops_us_ |= stops_us;
    if (living_++ > 0) return;
    launched_asked = 0;
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = hand_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < all.size(); ++i) {
      sigaction(all[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(all[i], &action, nullptr);  // else the program inherits that it is ignored
    }
    if (const int earlier = interrupting_signal()) launched_asked = earlier;  // it came before these handlers were there
  }
  ~HandedOn() {
    const std::lock_guard lock(mutex_);
    if (--living_ > 0) return;
    for (std::size_t i = 0; i < all.size(); ++i) sigaction(all[i], &before_[i], nullptr);
    const bool stops_us = std::exchange(stops_us_, false);
    if (launched_asked && stops_us && !interrupted()) std::raise(launched_asked);
  }
  HandedOn(const HandedOn&) = delete;
  HandedOn& operator=(const HandedOn&) = delete;

  static constexpr std::array all{SIGINT, SIGQUIT, SIGTERM, SIGHUP};

 private:
  static inline std::mutex mutex_;
  static inline int living_ = 0;
  static inline bool stops_us_ = false;
  static inline std::array<struct sigaction, all.size()> before_{};
};

class Blocked {  // until the child's number is known
 public:
  Blocked() {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : HandedOn::all) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

struct Pipe {  // carries the program's output
  explicit Pipe(bool wanted) {
    int ends[2] = {-1, -1};
    if (wanted && pipe2(ends, O_CLOEXEC) == 0) {
      read = Descriptor(ends[0]);
      write = Descriptor(ends[1]);
      fcntl(read.get(), F_SETFL, O_NONBLOCK);
    }
  }
  // What has come within a moment. False: there is no more.
  bool hand_to(const std::function<void(std::string_view)>& output, std::chrono::milliseconds wait) {
    pollfd one{read.get(), POLLIN, 0};
    if (poll(&one, 1, int(wait.count())) <= 0) return false;
    char text[1 << 16];
    const auto n = ::read(read.get(), text, sizeof text);
    if (n > 0) output({text, std::size_t(n)});
    return n > 0;
  }
  Descriptor read, write;
};

Child started(const Launch& l, char** arguments, char** environment, const Pipe& pipe) {
  const Blocked blocked;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);  // those that this program ignores
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &blocked.before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (pipe.write)
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) posix_spawn_file_actions_adddup2(&actions, pipe.write.get(), fd);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  check(failed == 0, Code::bad_argument, "{}: '{}' cannot be started: {}", l.who, arguments[0],
        failed ? why_not_started(l.command, failed, l.advice) : "");
  return Child(child);
}

bool same_name(std::string_view setting, std::string_view variable) {
  return variable.starts_with(setting.substr(0, setting.find('=') + 1));
}

// Every process of this user whose environment has the mark.
std::vector<pid_t> marked(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (fs::directory_iterator at("/proc", ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size() || pid == getpid()) continue;
    std::ifstream in(at->path() / "environ", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.find(mark) != std::string::npos) found.push_back(pid);
  }
  return found;
}

// Python's process that removes semaphores and shared memory once all who may use them are gone.
bool removes_for_others(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  const std::string words{std::istreambuf_iterator<char>(in), {}};
  return words.find("multiprocessing.resource_tracker") != std::string::npos;
}

int end_left_over(const std::string& mark) {
  if (mark.empty()) return 0;
  auto left = marked(mark);
  const auto wait = [&] {
    for (int i = 0; i < 10 && !left.empty(); ++i) {
      std::this_thread::sleep_for(between_looks);
      left = marked(mark);
    }
  };
  wait();  // workers that see that their parent is gone
  int ended = 0;
  for (const pid_t pid : left)
    if (!removes_for_others(pid)) ended += kill(pid, SIGKILL) == 0;
  wait();
  for (const pid_t pid : left) ended += kill(pid, SIGKILL) == 0;
  return ended;
}

}  // namespace

Ended launch(const Launch& l) {
  std::vector<std::string> settings = l.settings;
  for (char** e = environ; *e; ++e)
    if (std::none_of(l.settings.begin(), l.settings.end(), [&](const std::string& s) { return same_name(s, *e); }))
      settings.emplace_back(*e);
  std::vector<char*> environment, arguments;
  for (std::string& s : settings) environment.push_back(s.data());
  environment.push_back(nullptr);
  std::vector<std::string> words = l.command;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  const HandedOn handed_on(l.stops_us);
  const auto start = Clock::now();
  Pipe pipe(bool(l.output));
  Child child = started(l, arguments.data(), environment.data(), pipe);
  pipe.write = {};
  if (launched_asked) kill(child.pid, launched_asked);  // a signal from before the child began is for the child, too
  int status = 0;
  rusage used{};
  std::optional<Clock::time_point> asked_to_end;
  for (;;) {
    const pid_t ended = wait4(child.pid, &status, l.watch || l.output ? WNOHANG : 0, &used);
    if (ended == child.pid || (ended < 0 && errno != EINTR)) break;
    if (!l.watch && !l.output) continue;
    const Launch::Next next = l.watch ? l.watch() : Launch::Next::go_on;
    if (!asked_to_end && (launched_asked || next != Launch::Next::go_on)) {
      asked_to_end = Clock::now();
      if (next == Launch::Next::end) kill(child.pid, SIGTERM);
    }
    if (asked_to_end && (next == Launch::Next::kill || Clock::now() > *asked_to_end + patience)) kill(child.pid, SIGKILL);
    if (!pipe.read || !pipe.hand_to(l.output, between_looks)) std::this_thread::sleep_for(a_moment);
  }
  while (pipe.read && pipe.hand_to(l.output, {})) {}
  child.has_ended();
  Ended e;
  e.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  e.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (WIFSIGNALED(status)) e.by = strsignal(WTERMSIG(status));
  e.asked = launched_asked != 0;
  e.host_peak_bytes = std::int64_t(used.ru_maxrss) << 10;
  e.left_over = end_left_over(l.mark_of_left_over);
  return e;
}

std::vector<fs::path> files_with(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ending) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

namespace {
std::array<fs::path, 2> beside() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {here, (here / HEADROOM_LIBRARY_FROM_BIN).lexically_normal()};
}
}  // namespace

fs::path beside_program(const std::string& name) {
  std::error_code ignored;
  for (const fs::path& folder : beside())
    if (fs::exists(folder / name, ignored)) return fs::weakly_canonical(folder / name);
  return {};
}

std::string places_beside_program() {
  const auto [here, library] = beside();
  return fmt::format("neither '{}' nor '{}'", here.string(), library.string());
}

}  // namespace headroom::studies
