#include "studies/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.h"

extern char** environ;

namespace headroom::studies {

namespace fs = std::filesystem;

namespace {

constexpr const char* lock_name = "owner";

// $1: the folder, $2: end or go_on. It reads until the owner is gone; the owner writes nothing.
constexpr const char* guardian_script = R"sh(
trap '' HUP INT QUIT TERM
cd /
read -r nothing
if [ "$2" = end ]; then
  for round in 1 2 3; do
    for file in /proc/[0-9]*/environ; do
      grep -qF -- "$1" "$file" 2> /dev/null || continue
      pid=${file#/proc/}
      kill -KILL "${pid%/environ}"
    done
  done
fi
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
)sh";

Descriptor locked(const fs::path& folder, int how, int flags) {
  Descriptor file(open((folder / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  while (file && flock(file.get(), how) != 0)
    if (errno != EINTR) return {};
  return file;
}

bool is_there(const Descriptor& file) {
  struct stat about {};
  return fstat(file.get(), &about) == 0 && about.st_nlink > 0;
}

// Folders of this kind whose owner is gone. A folder of someone else cannot be opened.
void take_away_orphans(const std::string& name) {
  std::error_code ignored;
  for (fs::directory_iterator at(fs::temp_directory_path(ignored), ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (!at->path().filename().string().starts_with(name + "-") || !fs::is_directory(at->symlink_status(ignored))) continue;
    if (const Descriptor lock = locked(at->path(), LOCK_EX | LOCK_NB, 0)) {
      std::error_code partly;
      fs::remove_all(at->path(), partly);
    }
  }
}

// 0: no shell could be started.
pid_t guardian_of(const fs::path& folder, ScratchFolder::Orphans orphans, int life_line) {
  std::string path = folder.string(), script = guardian_script;
  std::string shell = "sh", option = "-c", what = orphans == ScratchFolder::Orphans::end ? "end" : "go_on";
  char* arguments[] = {shell.data(), option.data(), script.data(), shell.data(), path.data(), what.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, life_line, STDIN_FILENO);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);  // what ends this process's group does not end it
  pid_t child = 0;
  if (posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments, environ) != 0) child = 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

// Where temporary files go, and the variable that says so.
std::string place_of_temporary_files(const char* who) {
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})  // as std::filesystem reads them
    if (const char* const path = std::getenv(name)) {
      std::error_code ignored;
      check(fs::is_directory(path, ignored), Code::io,
            "{}: {} is '{}', which is no folder; name one where temporary files may go, or unset it", who, name, path);
      break;
    }
  return fs::temp_directory_path().string();
}

}  // namespace

ScratchFolder::ScratchFolder(const char* who, const std::string& name, Orphans orphans) {
  take_away_orphans(name);
  do {  // between the folder and its lock another process may take it for an orphan
    const std::string place = place_of_temporary_files(who);
    std::string path = (fs::path(place) / (name + "-XXXXXX")).string();
    const bool made = mkdtemp(path.data()) != nullptr;  // before errno is an argument of check
    check(made, Code::io, "{}: no folder can be made in '{}': {}; TMPDIR names another place", who, place, std::strerror(errno));
    path_ = path;
    lock_ = locked(path_, LOCK_EX, O_CREAT);
  } while (lock_ ? !is_there(lock_) : !fs::exists(path_));
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const Descriptor read(ends[0]);
  life_line_ = Descriptor(ends[1]);
  guardian_ = guardian_of(path_, orphans, read.get());
}

ScratchFolder::~ScratchFolder() {
  if (guardian_ > 0) {
    kill(guardian_, SIGKILL);
    while (waitpid(guardian_, nullptr, 0) < 0 && errno == EINTR) {}
  }
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace headroom::studies
