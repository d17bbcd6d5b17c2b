// libheadroom_mpi.so: the calls of door.h by MPI, from point to point, so that sizes past 2³¹ need nothing special and every wait can be given up.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "dist/mpi/door.h"

namespace {

constexpr std::size_t most_of_a_message = std::size_t(1) << 30;
int me = 0, all = 1;

class Messages {
 public:
  void send(const void* from, std::size_t bytes, int to) {
    each(bytes, [&](std::size_t at, int n, int tag) {
      MPI_Request r;
      const int error = MPI_Isend(static_cast<const char*>(from) + at, n, MPI_BYTE, to, tag, MPI_COMM_WORLD, &r);
      keep(error, r);
    });
  }
  void receive(void* to, std::size_t bytes, int from) {
    each(bytes, [&](std::size_t at, int n, int tag) {
      MPI_Request r;
      const int error = MPI_Irecv(static_cast<char*>(to) + at, n, MPI_BYTE, from, tag, MPI_COMM_WORLD, &r);
      keep(error, r);
    });
  }
  int wait(headroom_mpi_give_up give_up, void* who) {
    for (int done = 0; error_ == MPI_SUCCESS;) {
      error_ = MPI_Testall(int(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      if (error_ == MPI_SUCCESS && done) return 0;
      if (give_up(who)) return headroom_mpi_given_up;
      sched_yield();
    }
    return error_;
  }

 private:
  template <class Body>
  static void each(std::size_t bytes, Body&& body) {
    int tag = 0;
    for (std::size_t at = 0; at < bytes; at += most_of_a_message) body(at, int(std::min(most_of_a_message, bytes - at)), tag++);
  }
  void keep(int error, MPI_Request r) {
    if (error == MPI_SUCCESS)
      requests_.push_back(r);
    else if (error_ == MPI_SUCCESS)
      error_ = error;
  }
  std::vector<MPI_Request> requests_;
  int error_ = MPI_SUCCESS;
};

int start(int* rank, int* ranks) {
  int begun = 0, error = MPI_Initialized(&begun);
  if (error == MPI_SUCCESS && !begun) {
    int got;
    error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &got);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, &all);
  *rank = me, *ranks = all;
  return error;
}

int exchange(const void* mine, void* theirs, std::size_t part, headroom_mpi_give_up give_up, void* who) {
  Messages m;
  for (int k = 1; k < all; ++k) {
    const int to = (me + k) % all, from = (me + all - k) % all;
    m.receive(static_cast<char*>(theirs) + std::size_t(from) * part, part, from);
    m.send(static_cast<const char*>(mine) + std::size_t(to) * part, part, to);
  }
  if (part > 0)
    std::memcpy(static_cast<char*>(theirs) + std::size_t(me) * part, static_cast<const char*>(mine) + std::size_t(me) * part, part);
  return m.wait(give_up, who);
}

int gather(const void* part, void* whole, std::size_t bytes, headroom_mpi_give_up give_up, void* who) {
  Messages m;
  for (int k = 1; k < all; ++k) {
    const int to = (me + k) % all, from = (me + all - k) % all;
    m.receive(static_cast<char*>(whole) + std::size_t(from) * bytes, bytes, from);
    m.send(part, bytes, to);
  }
  char* const place = static_cast<char*>(whole) + std::size_t(me) * bytes;
  if (place != part && bytes > 0) std::memcpy(place, part, bytes);
  return m.wait(give_up, who);
}

int broadcast(void* whole, std::size_t bytes, int root, headroom_mpi_give_up give_up, void* who) {
  Messages m;
  if (me != root) m.receive(whole, bytes, root);
  for (int i = 0; me == root && i < all; ++i)
    if (i != root) m.send(whole, bytes, i);
  return m.wait(give_up, who);
}

int barrier(headroom_mpi_give_up give_up, void* who) {
  MPI_Request r;
  int error = MPI_Ibarrier(MPI_COMM_WORLD, &r);
  for (int done = 0; error == MPI_SUCCESS; sched_yield()) {
    error = MPI_Test(&r, &done, MPI_STATUS_IGNORE);
    if (done) return error;
    if (give_up(who)) return headroom_mpi_given_up;
  }
  return error;
}

void words(int error, char* into, std::size_t bytes) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int n = 0;
  if (MPI_Error_string(error, text, &n) != MPI_SUCCESS) std::snprintf(text, sizeof text, "error %d", error);
  std::snprintf(into, bytes, "%s", text);
}

void finish() {
  int over = 0;
  if (MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Finalize();
}

constexpr headroom_mpi_door door = {headroom_mpi_abi, start, exchange, gather, broadcast, barrier, words, finish};

}  // namespace

extern "C" __attribute__((visibility("default"))) const headroom_mpi_door* headroom_mpi(void) { return &door; }
