#include "studies/profile_program.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
              fmt::format("profile: a program is profiled by {}, which is neither beside headroom nor in {}; it is built "
                          "where CUDA's compiler is found. Without it: profile step, profile attention",
                          name, (here / HEADROOM_LIBRARY_FROM_BIN).lexically_normal().string()));
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

class Ignored {  // Ctrl-C belongs to the program that is profiled; what it recorded is still shown
 public:
  explicit Ignored(int signal) : signal_(signal), before_(std::signal(signal, SIG_IGN)) {}
  ~Ignored() { std::signal(signal_, before_); }
  Ignored(const Ignored&) = delete;
  Ignored& operator=(const Ignored&) = delete;

 private:
  int signal_;
  void (*before_)(int);
};

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
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults), sigaddset(&defaults, SIGINT), sigaddset(&defaults, SIGQUIT);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const Ignored interrupt(SIGINT), quit(SIGQUIT);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], nullptr, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  check(failed == 0, Code::bad_argument, "profile: '{}' cannot be started: {}; say step, attention, or -- and a program", command[0],
        std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
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
  for (const auto& entry : fs::directory_iterator(folder.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::ifstream in(file);
    run.logs.push_back(profile::read_activity(in));
  }
  return run;
}

}  // namespace headroom::studies
