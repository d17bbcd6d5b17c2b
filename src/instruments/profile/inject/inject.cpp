// libheadroom_inject.so — loaded by the CUDA driver into any program that `headroom profile -- …` starts (CUDA_INJECTION64_PATH), and by
// NVTX (NVTX_INJECTION64_PATH). Writes what the GPU did as lines into a file, as it happens, so that a crash leaves what came before.
//
// Lines:  V 1                                           the format's version
//         H ns                                          loaded
//         N id name                                     a name, before its first use
//         K|C|F start end device stream name correlation bytes      kernel, copy, fill
//         A|R ns address bytes name                     memory allocated, released
//         B|E ns id thread name                         an NVTX range begins, ends (E: name is 0)
//         L start end thread correlation                a call that launches
//         O start end                                   CUPTI's own time
//         X why                                         nothing could be recorded
//         Z ns                                          the program ended in order
// Includes only the standard library and CUPTI, because it runs inside other programs.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "instruments/profile/activity.h"

namespace headroom::profile {
namespace {

std::FILE* file = nullptr;
std::mutex mutex;

std::unordered_map<std::string, int>& names() {
  static auto* const all = new std::unordered_map<std::string, int>;  // never destroyed: it must outlive every destructor of the program
  return *all;
}

int number_of(const char* name) {
  if (!name) return 0;
  const auto [at, fresh] = names().try_emplace(name, int(names().size()) + 1);
  if (fresh) {
    std::fprintf(file, "N %d ", at->second);
    for (const char* c = name; *c; ++c) std::fputc(static_cast<unsigned char>(*c) < 0x20 ? ' ' : *c, file);
    std::fputc('\n', file);
  }
  return at->second;
}

void write(const Activity& a) {
  const std::lock_guard lock(mutex);
  const int name = number_of(a.name);
  switch (a.kind) {
    case Activity::Kind::kernel:
    case Activity::Kind::copy:
    case Activity::Kind::fill: {
      const char letter = a.kind == Activity::Kind::kernel ? 'K' : a.kind == Activity::Kind::copy ? 'C' : 'F';
      std::fprintf(file, "%c %" PRId64 " %" PRId64 " %u %u %d %u %" PRIu64 "\n", letter, a.start_ns, a.end_ns, a.device, a.stream, name,
                   a.correlation, a.bytes);
      break;
    }
    case Activity::Kind::take:
    case Activity::Kind::give:
      std::fprintf(file, "%c %" PRId64 " %" PRIu64 " %" PRIu64 " %d\n", a.kind == Activity::Kind::take ? 'A' : 'R', a.start_ns, a.id,
                   a.bytes, name);
      break;
    case Activity::Kind::range_begin:
    case Activity::Kind::range_end:
      std::fprintf(file, "%c %" PRId64 " %" PRIu64 " %u %d\n", a.kind == Activity::Kind::range_begin ? 'B' : 'E', a.start_ns, a.id,
                   a.thread, name);
      break;
    case Activity::Kind::launch:
      std::fprintf(file, "L %" PRId64 " %" PRId64 " %u %u\n", a.start_ns, a.end_ns, a.thread, a.correlation);
      break;
    case Activity::Kind::overhead: std::fprintf(file, "O %" PRId64 " %" PRId64 "\n", a.start_ns, a.end_ns); break;
    case Activity::Kind::link: break;
  }
}

void on_disk() {
  const std::lock_guard lock(mutex);
  std::fflush(file);
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::atomic<bool> ending{false};

// Writes complete records to the file from time to time, so that little is lost if the program dies.
void flush_often() {
  while (!ending) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (!ending) flush_activity(false);
  }
}

void at_end() {
  ending = true;
  flush_activity(true);
  const std::lock_guard lock(mutex);
  std::fprintf(file, "Z %" PRId64 "\n", now());
  std::fflush(file);
}

bool start() {
  const char* folder = std::getenv("HEADROOM_PROFILE_FOLDER");
  if (!folder) return false;
  const int fd =
      open((std::string(folder) + "/" + std::to_string(getpid()) + ".activity").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int above = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);  // a program may have closed its standard output: it is not ours
  if (fd >= 0) close(fd);
  file = above < 0 ? nullptr : fdopen(above, "w");
  if (!file) return false;
  std::fprintf(file, "V 1\nH %" PRId64 "\n", now());
  const std::string why = start_activity({.launches = true, .ranges = true, .memory = true, .links = false}, write, on_disk);
  if (!why.empty()) std::fprintf(file, "X %s\n", why.c_str());
  std::fflush(file);
  if (why.empty()) {
    std::thread(flush_often).detach();
    std::atexit(at_end);
  }
  return why.empty();
}

enum State : int { asleep, starting, on, failed };
std::atomic<int> state{asleep};

bool started() {  // the first caller starts it; CUPTI may initialise CUDA, which calls this again
  int expected = asleep;
  if (state.compare_exchange_strong(expected, starting)) state = start() ? on : failed;
  return state != failed;
}

}  // namespace
}  // namespace headroom::profile

extern "C" {

__attribute__((visibility("default"))) int InitializeInjection() {
  headroom::profile::started();
  return 1;
}

// NVTX asks here for its functions; CUPTI has them.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(void* export_table) {
  std::string why;
  void* const cupti = headroom::profile::open_cupti(&why);
  const auto serve = cupti ? reinterpret_cast<int (*)(void*)>(dlsym(cupti, "InitializeInjectionNvtx2")) : nullptr;
  return serve && headroom::profile::started() ? serve(export_table) : 0;
}
}
