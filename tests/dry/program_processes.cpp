// The program in several threads and processes; one that is killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "cuda_calls.h"

namespace {

void killed() {
  register_kernel();
  allocate(32 * mib);
  for (int i = 0; i < 1000; ++i) launch(nullptr);
  kill(getpid(), SIGKILL);
}

void forked() {
  allocate(2 * mib);
  const pid_t child = fork();
  if (child == 0) {
    allocate(4 * mib);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  print(status);
  allocate(6 * mib);
}

void threads() {
  register_kernel();
  std::vector<std::thread> all;
  for (int t = 0; t < 8; ++t)
    all.emplace_back([] {
      for (int i = 0; i < 2000; ++i) {
        char* const p = allocate(std::size_t(1 + i % 5) * mib);
        launch(nullptr);
        const long long sent = i;
        copy(p, &sent, sizeof sent);
        if (read(p) != i) print(-1);
        call("cudaFree", static_cast<void*>(p));
      }
    });
  for (std::thread& t : all) t.join();
  print(free_mib());
}

// Two processes on one card: each sees what the other holds.
void shared_card() {
  print(free_mib());
  int ready[2], done[2];
  if (pipe(ready) != 0 || pipe(done) != 0) return;
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    allocate(512 * mib);
    const bool told = ::write(ready[1], &byte, 1) == 1;
    _exit(told && ::read(done[0], &byte, 1) == 1 ? 0 : 1);
  }
  if (::read(ready[0], &byte, 1) == 1) print(free_mib());
  print(allocate(700 * mib) == nullptr);
  print(allocate(100 * mib) != nullptr);
  if (::write(done[1], &byte, 1) == 1) waitpid(child, nullptr, 0);
  print(allocate(700 * mib) != nullptr);
}

}  // namespace

const Words process_words = {
    {"killed", killed},
    {"forked", forked},
    {"threads", threads},
    {"shared_card", shared_card},
};
