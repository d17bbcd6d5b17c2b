#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"

namespace headroom {

namespace fs = std::filesystem;

namespace {

std::atomic<long> steps_to_live{0};

void write_step() {
  if (steps_to_live.load(std::memory_order_relaxed) > 0 && steps_to_live.fetch_sub(1) == 1) std::raise(SIGKILL);
}

std::string reason(int error) {
  if (error == EFBIG) return "it may not grow any larger here (ulimit -f)";
  return std::strerror(error);
}

// "3" of /proc/self/fd/3, /dev/fd/3; /dev/stdout is a link to one of them.
int descriptor_named(const fs::path& path) {
  std::error_code ignored;
  const std::string folder = fs::weakly_canonical(path.parent_path(), ignored).string(), name = path.filename().string();
  if (!folder.starts_with("/proc/") || !folder.ends_with("/fd")) return -1;
  int fd = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fd);
  return error == std::errc() && end == name.data() + name.size() && folder == "/proc/" + std::to_string(getpid()) + "/fd" ? fd : -1;
}

struct Target {
  fs::path path;        // behind links
  int descriptor = -1;  // one of this program's that the name stands for
};

Target target_of(const std::string& path) {
  Target t{path};
  std::error_code failed;
  for (int links = 0; links < 40; ++links) {
    t.descriptor = descriptor_named(t.path);
    if (t.descriptor >= 0 || !fs::is_symlink(t.path, failed)) return t;
    const fs::path next = fs::read_symlink(t.path, failed);
    if (failed) return t;
    t.path = next.is_absolute() ? next : t.path.parent_path() / next;
  }
  throw Error(Code::io, fmt::format("'{}' cannot be written to: its links go round in a circle", path));
}

bool has_database_head(int fd) {
  constexpr std::string_view head("SQLite format 3\0", 16);
  std::array<char, 16> bytes{};
  return pread(fd, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()) && std::string_view(bytes.data(), bytes.size()) == head;
}

// A database, or the place of its journal: what stands there is taken for the end of an interrupted write.
void check_no_database(const std::string& target, const std::string& path) {
  bool database = is_database(target);
  for (const std::string_view end : {"-journal", "-wal", "-shm"})
    database |= target.ends_with(end) && is_database(target.substr(0, target.size() - end.size()));
  check(!database, Code::bad_argument, "'{}' is a database, such as results are kept in, or its journal; name another file", path);
}

// Anything that is no regular file. Opening a pipe without a reader would wait for ever.
Descriptor open_special(const Target& target, const std::string& path) {
  if (target.descriptor >= 0) {
    Descriptor same(fcntl(target.descriptor, F_DUPFD_CLOEXEC, 3));
    check(bool(same), Code::io, "'{}' cannot be written to: {}", path, reason(errno));
    return same;
  }
  Descriptor fd(open(target.path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  check(bool(fd) || errno != ENXIO, Code::io, "'{}' is a pipe without a reader; start the program that reads it first", path);
  check(bool(fd), Code::io, "'{}' cannot be written to: {}", path, reason(errno));
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

bool is_special(const Target& t) {
  std::error_code ignored;
  const auto status = fs::status(t.path, ignored);
  return t.descriptor >= 0 || (fs::exists(status) && !fs::is_regular_file(status));
}

// Its lock says that a process is writing it; a killed process holds none.
Descriptor begin_file(const fs::path& folder, const std::string& name, mode_t mode, std::string& unfinished) {
  unfinished = (folder / fmt::format(".{}.headroom-part", name.substr(0, 200))).string();
  for (int attempt = 0; attempt < 2; ++attempt) {
    Descriptor fd(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
    if (!fd) return fd;
    const bool taken = flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat mine {
    }, named{};
    const bool still_named = fstat(fd.get(), &mine) == 0 && lstat(unfinished.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
                             mine.st_dev == named.st_dev && S_ISREG(mine.st_mode);
    if (!taken && still_named && ftruncate(fd.get(), 0) == 0) return fd;
    unfinished = (folder / fmt::format(".{}.{}.headroom-part", name.substr(0, 200), getpid())).string();
  }
  errno = EBUSY;
  return {};
}

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd < 0 || fd > 2) return;
  fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  close(fd);
  errno = error;
}
Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
int Descriptor::release() { return std::exchange(fd_, -1); }

std::string read_file(const std::string& path, std::string_view who, std::uint64_t most_bytes) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));  // a pipe without a writer would hold us
  check(bool(fd), errno == ENOENT || errno == ENOTDIR ? Code::bad_argument : Code::io, "{}: '{}' cannot be opened: {}", who, path,
        std::strerror(errno));
  struct stat about {};
  const bool known = fstat(fd.get(), &about) == 0;  // before errno is an argument of check
  check(known, Code::io, "{}: '{}' cannot be read: {}", who, path, std::strerror(errno));
  check(!S_ISDIR(about.st_mode), Code::bad_argument, "{}: '{}' is a directory; name a file in it", who, path);
  check(!S_ISCHR(about.st_mode) && !S_ISBLK(about.st_mode), Code::bad_argument, "{}: '{}' is a device; name a file or a pipe", who, path);
  const bool regular = S_ISREG(about.st_mode);
  std::string text;
  if (regular && about.st_size > 0 && std::uint64_t(about.st_size) <= most_bytes) text.reserve(std::size_t(about.st_size));
  std::vector<char> piece(1 << 18);
  for (bool first = true;; first = false) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (!regular && !first && poll(&ready, 1, 200) == 0) {
      stop_if_interrupted();
      continue;
    }
    const ssize_t n = read(fd.get(), piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      stop_if_interrupted();
      continue;
    }
    check(n >= 0, Code::io, "{}: '{}' cannot be read: {}", who, path, std::strerror(errno));
    check(n > 0 || !first || !S_ISFIFO(about.st_mode), Code::bad_argument,
          "{}: '{}' is a pipe without a writer; start the program that writes to it first", who, path);
    if (n == 0) return text;
    text.append(piece.data(), std::size_t(n));
    check(text.size() <= most_bytes, Code::bad_argument, "{}: '{}' is larger than {}", who, path, bytes_in_words(double(most_bytes)));
  }
}

bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string why_no_file(const std::string& path) {
  const auto is = [&](const char* what) { return fmt::format("'{}' is {}, not a regular file", path, what); };
  std::error_code failed;
  switch (fs::status(path, failed).type()) {
    case fs::file_type::regular: return "";
    case fs::file_type::not_found: return fmt::format("there is no '{}'", path);
    case fs::file_type::directory: return is("a directory");
    case fs::file_type::fifo: return is("a pipe");
    case fs::file_type::character:
    case fs::file_type::block: return is("a device");
    case fs::file_type::socket: return is("a socket");
    default: return fmt::format("'{}' cannot be opened: {}", path, failed.message());
  }
}

bool is_database(const std::string& path) {
  if (!is_regular_file(path)) return false;
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return fd && has_database_head(fd.get());
}

void check_room(const std::string& folder, double bytes, std::string_view of_what) {
  std::error_code unknown;
  const fs::space_info disk = fs::space(folder, unknown);
  if (unknown || disk.capacity == 0) return;
  check(bytes <= double(disk.available), Code::io, "'{}' has no room for {}: {} are free on its disk, {} are needed", folder, of_what,
        bytes_in_words(double(disk.available)), bytes_in_words(bytes));
}

bool is_same_file(const std::string& one, const std::string& two) {
  std::error_code failed;
  if (fs::equivalent(one, two, failed)) return true;
  const auto place = [&](const std::string& path) {
    std::error_code ignored;
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  };
  return place(one) == place(two);
}

Descriptor open_for_writing(const std::string& path) {
  const Target target = target_of(path);
  if (is_special(target)) return open_special(target, path);
  check_no_database(target.path.string(), path);
  Descriptor fd(open(target.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
  check(bool(fd), Code::io, "'{}' cannot be written to: {}", path, reason(errno));
  return fd;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  const Target target = target_of(path);
  target_ = target.path.string();
  if (is_special(target)) {
    file_ = open_special(target, path);
    return;
  }
  check_no_database(target_, path);
  struct stat before {};
  const bool there = stat(target_.c_str(), &before) == 0;
  const bool may_be_written = !there || access(target_.c_str(), W_OK) == 0;  // before errno is an argument of check
  check(may_be_written, Code::io, "'{}' cannot be written to: {}", path, reason(errno));
  const fs::path folder = target.path.parent_path();
  file_ = begin_file(folder.empty() ? "." : folder, target.path.filename().string(), there ? before.st_mode & 0777 : 0666, unfinished_);
  if (!file_) {
    unfinished_.clear();
    fail();
  }
}

AtomicFile::~AtomicFile() {
  if (!unfinished_.empty()) unlink(unfinished_.c_str());
}

void AtomicFile::fail() const { throw Error(Code::io, fmt::format("'{}' cannot be written: {}", path_, reason(errno))); }

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    write_step();
    const ssize_t n = ::write(file_.get(), at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) fail();
    at += n;
    bytes -= std::size_t(n);
  }
}

void AtomicFile::put_in_place() {
  if (fsync(file_.get()) != 0 && !unfinished_.empty()) fail();  // a pipe knows nothing of it
  if (unfinished_.empty()) return;
  write_step();
  if (rename(unfinished_.c_str(), target_.c_str()) != 0) fail();
  unfinished_.clear();
  const std::string folder = fs::path(target_).parent_path().string();
  if (const Descriptor entry(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); entry) fsync(entry.get());
}

void write_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.put_in_place();
}

void end_at_write_step(long step) { steps_to_live = step; }

void hold_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int got = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);  // the lowest free one; not what it is for: that stays an error
    if (got >= 0 && got != fd) close(got);
  }
}

}  // namespace headroom
