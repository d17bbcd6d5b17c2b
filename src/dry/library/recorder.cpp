#include "dry/library/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>

#include "dry/library/world.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

constexpr std::uint64_t window_bytes = 8 << 20;

std::uint64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::uint64_t(t.tv_sec) * 1'000'000'000 + std::uint64_t(t.tv_nsec);
}

std::int32_t number_of(const char* variable, int missing) {
  const char* const text = std::getenv(variable);
  return text && *text ? std::atoi(text) : missing;
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text)
    if (c == '\0') c = ' ';
  return text;
}

void copy_text(std::span<char> to, std::string_view text) { std::memcpy(to.data(), text.data(), std::min(to.size() - 1, text.size())); }

}  // namespace

std::uint32_t thread_number() {
  static thread_local std::uint32_t number = 0;
  static thread_local std::uint32_t of = 0;  // a fork keeps the thread, under another number
  if (of != Recorder::get().generation()) {
    number = std::uint32_t(syscall(SYS_gettid));
    of = Recorder::get().generation();
  }
  return number;
}

Recorder& Recorder::get() {
  static Recorder& one = *new Recorder;  // entries come until the very end of the process
  return one;
}

Recorder::Recorder() : on_(std::getenv(folder_variable) != nullptr), begin_ns_(clock_ns(CLOCK_MONOTONIC)) {
  pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().forked(); });
  std::atexit([] { get().close(); });
}

std::uint64_t Recorder::now_ns() const { return clock_ns(CLOCK_MONOTONIC) - begin_ns_; }

void Recorder::forked() {
  new (&mutex_) std::recursive_mutex;  // the child's thread has another number, so it could not unlock what its parent locked
  if (file_ >= 0) ::close(file_);
  if (window_) munmap(window_, window_bytes);
  file_ = -1;
  window_ = nullptr;
  names_.clear();
  ++generation_;
}

void Recorder::close() {  // what comes after is written too; only the end of the file is made neat
  const std::lock_guard lock(mutex_);
  if (file_ >= 0 && ftruncate(file_, off_t(next_)) == 0) {
    munmap(window_, window_bytes);
    window_ = nullptr;
  }
}

void Recorder::begin() {
  const std::string path = std::string(std::getenv(folder_variable)) + "/" + std::to_string(getpid()) + ".dry";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  window_at_ = next_ = 0;
  begin_ns_ = clock_ns(CLOCK_MONOTONIC);
  FileHead head{};
  std::memcpy(head.magic, record_magic, sizeof head.magic);
  head.version = record_version;
  head.bytes = sizeof head;
  head.pid = getpid();
  head.parent = getppid();
  head.rank = number_of("RANK", -1);
  head.ranks = number_of("WORLD_SIZE", 1);
  head.local_rank = number_of("LOCAL_RANK", -1);
  head.devices = devices();
  head.begin_unix_ns = clock_ns(CLOCK_REALTIME);
  head.device_bytes = card().memory_bytes;
  head.context_bytes = card().context_bytes;
  copy_text(head.device, card().name);
  copy_text(head.program, command_line());
  if (file_ < 0 || !make_room(sizeof head)) {
    say("its record cannot be written", path.c_str());
    on_ = false;
    return;
  }
  std::memcpy(window_, &head, sizeof head);
  next_ = sizeof head;
}

bool Recorder::make_room(std::size_t bytes) {
  if (window_ && next_ + bytes <= window_at_ + window_bytes) return true;
  if (window_) munmap(window_, window_bytes);
  window_ = nullptr;
  const std::uint64_t page = std::uint64_t(sysconf(_SC_PAGESIZE));
  window_at_ = next_ / page * page;
  // A full disk is noticed here; a write into a hole of a mapped file would end the process.
  if (posix_fallocate(file_, off_t(window_at_), off_t(window_bytes)) != 0) return false;
  void* const at = mmap(nullptr, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, off_t(window_at_));
  if (at == MAP_FAILED) return false;
  window_ = static_cast<char*>(at);
  return true;
}

void Recorder::add(Kind kind, const void* payload, std::size_t bytes, std::span<const char> tail, std::uint64_t at_ns) {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) begin();
  const std::size_t whole = (sizeof(Head) + bytes + tail.size() + 7) / 8 * 8;
  if (!on_ || whole / 8 > 0xffff) return;
  if (!make_room(whole)) {
    on_ = false;
    const std::uint64_t cut = 1;  // the head's page is on the disk already
    if (pwrite(file_, &cut, sizeof cut, offsetof(FileHead, cut)) != sizeof cut) say("its record does not say that it is cut", "");
    return say("the disk of its record is full", "");
  }
  char* const at = window_ + (next_ - window_at_);
  const Head head{kind, std::uint16_t(whole / 8), thread_number(), at_ns ? at_ns : now_ns()};
  std::memcpy(at + sizeof head, payload, bytes);
  if (!tail.empty()) std::memcpy(at + sizeof head + bytes, tail.data(), tail.size());
  std::memcpy(at + 8, reinterpret_cast<const char*>(&head) + 8, sizeof head - 8);
  std::uint64_t first;
  std::memcpy(&first, &head, sizeof first);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).store(first, std::memory_order_release);
  next_ += whole;
}

std::uint32_t Recorder::name(std::string_view text) {
  if (!on_) return 0;
  const std::lock_guard lock(mutex_);
  if (const auto known = names_.find(text); known != names_.end()) return known->second;
  const auto id = std::uint32_t(names_.size() + 1);
  text = text.substr(0, 65536);
  add(Name{.id = id, .length = std::uint32_t(text.size())}, text);
  names_.emplace(text, id);
  return id;
}

}  // namespace headroom::dry
