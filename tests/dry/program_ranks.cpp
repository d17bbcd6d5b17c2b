// Ranks that exchange values by NCCL, and the thread that PyTorch has beside it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_calls.h"

namespace {

// PyTorch's thread beside NCCL, as it looks every 100 ms: whether a collective is done, until its group ends and all are.
struct Beside {
  std::mutex mutex;
  std::condition_variable wakes;
  int looks = 0;
  bool ends = false, done = false;
  void* event = nullptr;
  std::thread thread{[this] {
    pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
    for (bool last = false; !last;) {
      std::unique_lock lock(mutex);
      using namespace std::chrono;
      const auto ended = [this] { return ends; };
      if (looks % 2 == 0)  // the C library has two calls for them
        wakes.wait_for(lock, 100ms, ended);
      else
        wakes.wait_until(lock, system_clock::now() + 100ms, ended);
      ++looks;
      done = call("cudaEventQuery", event) == 0;
      last = ends && done;
    }
  }};
  Beside() { call("cudaEventCreate", &event); }
  void print_looks() {
    const std::lock_guard lock(mutex);
    print(looks);
    print(done);
  }
  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    wakes.notify_one();
    thread.join();
  }
};

// A collective of so many numbers in 32 bits, and an event behind it.
void collect(void* group, char* p, std::size_t numbers, void* event) {
  constexpr int in_32_bits = 7, sum = 0;
  void* const stream = nullptr;
  call("ncclAllReduce", static_cast<const void*>(p), static_cast<void*>(p), numbers, in_32_bits, sum, group, stream);
  call("cudaEventRecord", event, stream);
}

struct Id {
  char bytes[128];
};

void* group_of_one() {
  Id id{};
  void* group = nullptr;
  call("ncclGetUniqueId", &id);
  call("ncclCommInitRank", &group, 1, id, 0);
  return group;
}

void watchdog() {
  register_kernel();
  void* const group = group_of_one();
  char* const p = allocate(mib);
  Beside beside;
  collect(group, p, 64, beside.event);
  const auto go_on = [](int launches) {
    for (int i = 0; i < launches; ++i) launch(nullptr);
  };
  usleep(250'000);
  go_on(100);  // about 18 ms by the pace: 27 us each, 15 ms for the first
  beside.print_looks();
  go_on(4000);  // 108 ms
  beside.print_looks();
  go_on(8000);  // no collective since
  beside.print_looks();
  collect(group, p, 50'000'000'000, beside.event);  // 0.7 s of the card
  go_on(4000);
  beside.print_looks();
  call("cudaDeviceSynchronize");  // and it is asked again
  beside.print_looks();
  collect(group, p, 50'000'000'000, beside.event);
  go_on(4000);
  beside.print_looks();
  beside.end();
  print(1);
}

void watchdog_is_waited_for() {  // the program does not go on before it has looked
  Beside beside;
  collect(group_of_one(), allocate(mib), 64, beside.event);
  for (int i = 0; i < 1000; ++i) {
    usleep(20'000);
    const std::lock_guard lock(beside.mutex);
    if (beside.looks > 0) break;
  }
  beside.print_looks();
  beside.end();
}

// Two ranks that exchange small values: each is a process, as under a launcher.
int rank_of(int rank, int ranks, Id id) {
  constexpr int int64 = 4, sum = 0;
  constexpr std::size_t list_bytes = 320'000;
  void* group = nullptr;
  call("cudaSetDevice", rank);
  if (call("ncclCommInitRank", &group, ranks, id, rank) != 0) return 1;
  char* const p = allocate(mib);
  void* const none = nullptr;
  const long long mine = 100 + rank;
  copy(p, &mine, sizeof mine);
  call("ncclAllGather", static_cast<const void*>(p), static_cast<void*>(p + 64), std::size_t(1), int64, group, none);
  call("ncclAllReduce", static_cast<const void*>(p), static_cast<void*>(p + 256), std::size_t(1), int64, sum, group, none);
  call("ncclBroadcast", static_cast<const void*>(p), static_cast<void*>(p + 320), std::size_t(1), int64, 1, group, none);
  call("ncclSend", static_cast<const void*>(p), std::size_t(1), int64, (rank + 1) % ranks, group, none);
  call("ncclRecv", static_cast<void*>(p + 384), std::size_t(1), int64, (rank + ranks - 1) % ranks, group, none);
  call("ncclReduceScatter", static_cast<const void*>(p + 64), static_cast<void*>(p + 448), std::size_t(1), int64, sum, group, none);
  call("ncclGather", static_cast<const void*>(p), static_cast<void*>(p + 512), std::size_t(1), int64, 1, group, none);
  call("ncclScatter", static_cast<const void*>(p + 64), static_cast<void*>(p + 640), std::size_t(1), int64, 0, group, none);
  const std::vector<long long> list(40'000, 7 + rank);  // as a checkpoint's plan in bytes
  copy(p + 2 * list_bytes, list.data(), list_bytes);
  call("ncclBroadcast", static_cast<const void*>(p + 2 * list_bytes), static_cast<void*>(p + list_bytes), list.size(), int64, 1, group,
       none);
  // Objects of several lengths in tensors of one: what is behind an object comes as zeros.
  constexpr int uint8 = 1;
  copy(p + 704, "abcdefgh", std::size_t(rank + 1));
  call("ncclAllGather", static_cast<const void*>(p + 704), static_cast<void*>(p + 768), std::size_t(8), uint8, group, none);
  void* part = nullptr;
  int members = 0;
  call("ncclCommSplit", group, rank % 2, rank, &part, none);
  call("ncclCommCount", static_cast<const void*>(part), &members);
  long long all = 0, gathered = 0;
  for (int r = 0; r < ranks; ++r) all = all * 1000 + read(p + 64 + 8 * r);
  for (int r = 0; r < ranks; ++r) gathered = gathered * 1000 + read(p + 512 + 8 * r);
  bool objects = true;
  for (int r = 0; r < ranks; ++r) objects &= read(p + 768 + 8 * r) == (0x6867666564636261ll & ((1ll << (8 * (r + 1))) - 1));
  const bool right = objects && all == (ranks == 4 ? 100101102103 : 100101) && read(p + 256) == (ranks == 4 ? 406 : 201) &&
                     read(p + 320) == 101 && read(p + 384) == 100 + (rank + ranks - 1) % ranks && read(p + 448) == ranks * (100 + rank) &&
                     members == ranks / 2 && gathered == (rank == 1 ? all : 0) && read(p + 640) == 100 + rank &&
                     read(p + 2 * list_bytes - 8) == 8;
  return right ? 0 : 2;
}

void print_what_ranks_return(int ranks, int (*program)(int rank, int ranks, Id id)) {
  Id id{};
  call("ncclGetUniqueId", &id);
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    children.push_back(fork());
    if (children.back() == 0) _exit(program(r, ranks, id));
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    print(WEXITSTATUS(status));
  }
}

void ranks() { print_what_ranks_return(4, rank_of); }

int word[2];  // a pipe

// One rank is late, and says so in a pipe before the barrier; the other, which waited, must find the word there.
int before_and_behind_barrier(int rank, int ranks, Id id) {
  constexpr int float32 = 7, sum = 0;
  void* group = nullptr;
  call("cudaSetDevice", rank);
  if (call("ncclCommInitRank", &group, ranks, id, rank) != 0) return 1;
  char* const p = allocate(mib);
  if (rank == 0) {
    usleep(300'000);
    [[maybe_unused]] const auto n = write(word[1], "w", 1);
  }
  void* const stream = nullptr;
  call("ncclAllReduce", static_cast<const void*>(p), static_cast<void*>(p), std::size_t(1), float32, sum, group, stream);
  call("cudaStreamSynchronize", stream);
  char there = 0;
  if (rank == 1 && ::read(word[0], &there, 1) != 1) return 2;
  return 0;
}

// Each rank sends an object of 3 MiB, as pickle begins one, and of as many bytes that are none: the one is moved, the other is not.
int objects(int rank, int ranks, Id id) {
  constexpr int uint8 = 1;
  constexpr std::size_t bytes = 3 * mib;
  void* group = nullptr;
  void* const none = nullptr;
  call("cudaSetDevice", rank);
  if (call("ncclCommInitRank", &group, ranks, id, rank) != 0) return 1;
  char* const p = allocate(bytes * std::size_t(ranks + 2));
  std::string sent(bytes, char(65 + rank)), got(bytes, 0);
  for (const bool is_object : {true, false}) {
    sent[0] = is_object ? char(0x80) : 'n', sent[1] = 4;
    copy(p, sent.data(), bytes);
    char* const all = p + 2 * bytes;
    call("ncclAllGather", static_cast<const void*>(p), static_cast<void*>(all), bytes, uint8, group, none);
    copy(p + bytes, all + bytes * std::size_t(1 - rank), bytes);
    copy(got.data(), p + bytes, bytes);
    const std::string other = std::string(1, char(0x80)) + char(4) + std::string(bytes - 2, char(65 + 1 - rank));
    if (got != (is_object ? other : std::string(bytes, 0))) return 2 + is_object;
  }
  return 0;
}

void large_objects() { print_what_ranks_return(2, objects); }

void barrier() {
  if (pipe2(word, O_NONBLOCK) == 0) print_what_ranks_return(2, before_and_behind_barrier);
}

// Two ranks that forgot to take a card each: the later one is refused.
void ranks_on_one_card() {
  Id id{};
  call("ncclGetUniqueId", &id);
  int refused = 0;
  for (int r = 0; r < 2; ++r) {  // one after the other
    const pid_t child = fork();
    if (child == 0) {
      void* group = nullptr;
      const int failed = call("ncclCommInitRank", &group, 2, id, r);
      const auto last = reinterpret_cast<const char* (*)(void*)>(dlsym(RTLD_DEFAULT, "ncclGetLastError"));
      const bool said = last && std::string(last(nullptr)) == "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 0";
      _exit(failed + 10 * said);
    }
    int status = -1;
    waitpid(child, &status, 0);
    refused = refused * 100 + WEXITSTATUS(status);
  }
  print(refused);
}

}  // namespace

const Words rank_words = {
    {"watchdog", watchdog},           {"watchdog_is_waited_for", watchdog_is_waited_for}, {"ranks", ranks}, {"barrier", barrier},
    {"large_objects", large_objects}, {"ranks_on_one_card", ranks_on_one_card},
};
