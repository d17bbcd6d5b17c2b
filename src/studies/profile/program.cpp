#include "studies/profile/program.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text.h"

extern char** environ;

namespace headroom::studies {

namespace fs = std::filesystem;

namespace {

std::string find_library() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const char* const name = "libheadroom_inject.so";
  for (const fs::path& folder : {here, here / HEADROOM_LIBRARY_FROM_BIN})
    if (fs::exists(folder / name, ignored)) return fs::weakly_canonical(folder / name).string();
  throw Error(Code::unsupported,
              fmt::format("profile: a program is profiled through {}, which this build lacks: it is in neither '{}' nor '{}'. Build where "
                          "nvcc is found, or profile step or attention",
                          name, here.string(), (here / HEADROOM_LIBRARY_FROM_BIN).lexically_normal().string()));
}

class Folder {  // for what the program's processes write; gone at the end
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "headroom-profile-XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr, Code::io, "profile: no folder could be made in '{}': {}", fs::temp_directory_path().string(),
          std::strerror(errno));
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Signals belong to the program that is profiled: it ends as it wants to, and what it recorded is still shown. A terminal sends Ctrl-C
// to both of us; what is sent to this process alone is handed on.
volatile std::sig_atomic_t profiled_child = 0;

extern "C" void hand_on(int signal, siginfo_t* about, void*) {
  if (profiled_child > 0 && about->si_code <= 0) kill(pid_t(profiled_child), signal);  // from a program, not from the kernel
}

class HandedOn {
 public:
  HandedOn() {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = hand_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < all.size(); ++i) {
      sigaction(all[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(all[i], &action, nullptr);  // else the program inherits that it is ignored
    }
  }
  ~HandedOn() {
    for (std::size_t i = 0; i < all.size(); ++i) sigaction(all[i], &before_[i], nullptr);
  }
  HandedOn(const HandedOn&) = delete;
  HandedOn& operator=(const HandedOn&) = delete;

  static constexpr std::array all{SIGINT, SIGQUIT, SIGTERM, SIGHUP};

 private:
  std::array<struct sigaction, all.size()> before_{};
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

pid_t started(char** arguments, char** environment) {
  const Blocked blocked;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);  // those that this program ignores
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &blocked.before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], nullptr, &attributes, arguments, environment);
  posix_spawnattr_destroy(&attributes);
  check(failed == 0, Code::bad_argument, "profile: '{}' cannot be started: {}; give step, attention, or -- and a program", arguments[0],
        std::strerror(failed));
  profiled_child = child;
  return child;
}

// The program's exit status, by waitpid's convention.
int run_to_end(const std::vector<std::string>& command, const std::string& library, const std::string& folder) {
  std::vector<std::string> settings{"CUDA_INJECTION64_PATH=" + library, "NVTX_INJECTION64_PATH=" + library,
                                    "HEADROOM_PROFILE_FOLDER=" + folder};
  for (char** e = environ; *e; ++e) {
    const std::string_view had = *e;
    if (std::none_of(settings.begin(), settings.begin() + 3,
                     [&](const std::string& s) { return had.starts_with(s.substr(0, s.find('=') + 1)); }))
      settings.emplace_back(had);
  }
  std::vector<char*> environment, arguments;
  for (std::string& s : settings) environment.push_back(s.data());
  environment.push_back(nullptr);
  std::vector<std::string> words = command;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  const HandedOn handed_on;
  const pid_t child = started(arguments.data(), environment.data());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  profiled_child = 0;
  return status;
}

}  // namespace

ProgramRun run_profiled(const std::vector<std::string>& command, std::string library) {
  ProgramRun run;
  run.command = command;
  if (library.empty()) library = find_library();
  const Folder folder;
  const auto start = profile::now_ns();
  const int status = run_to_end(command, library, folder.path().string());
  run.wall_s = double(profile::now_ns() - start) / 1e9;
  run.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (WIFSIGNALED(status)) run.ended_by = strsignal(WTERMSIG(status));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path()))  // whatever else the program put there is its own
    if (entry.is_regular_file() && entry.path().extension() == ".activity") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::ifstream in(file);
    run.logs.push_back(profile::read_activity(in));
  }
  return run;
}

}  // namespace headroom::studies
