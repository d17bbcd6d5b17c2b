// Ranks' door: a communicator inside a process that another launcher started.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/device.h"
#include "base/threads.h"
#include "capi/edge.h"
#include "dist/group.h"
#include "engine/exchange/begun_calls.h"
#include "engine/exchange/collectives.h"
#include "gpu/caller.h"
#include "gpu/device.h"
#include "gpu/probe.h"

using namespace headroom;
using namespace headroom::capi;

struct headroom_comm {
  std::unique_ptr<dist::Group> group;
  std::unique_ptr<dist::Comm> comm;
  std::unique_ptr<Collectives> collectives;
  std::uint64_t made_at_fork = fork_count();
  std::atomic<bool> busy{false};
  Device gpu = cpu_device();  // calls on a stream have this device's memory
  std::string route{};
  std::mutex ending;
  std::string ended{};                               // why: no call runs any more
  std::string carries{};                             // what headroom_comm_carries said of the next call
  std::optional<CardCollectives::Queue> next_queue;  // as headroom_comm_on_stream or headroom_comm_later said
  BegunCalls begun;                                  // last: its thread uses the rest

  std::string why_ended() {
    const std::lock_guard lock(ending);
    return ended;
  }
  void end(const std::string& why) {
    {
      const std::lock_guard lock(ending);
      if (!ended.empty()) return;
      ended = why;
    }
    group->rendezvous().end(why);
  }
};

namespace {

static_assert(BegunCalls::most < CardCollectives::kept);

struct NotJoined : Error {
  using Error::Error;
};

DType dtype_of(headroom_dtype t) {
  switch (one_of<headroom_dtype>(t, 4, "dtype")) {
    case HEADROOM_F32: return DType::f32;
    case HEADROOM_BF16: return DType::bf16;
    case HEADROOM_F16: return DType::f16;
    case HEADROOM_I32: return DType::i32;
  }
  return DType::u8;
}

void look_at(const char* name, const void* data, std::int64_t count, std::int64_t times) {
  constexpr std::int64_t most = std::int64_t{1} << 56;
  check(count >= 0 && count <= most / times, Code::bad_argument, "count is {}, it must be at least 0", count);
  check(data != nullptr || count == 0, Code::bad_argument, "{} is NULL", name);
}

headroom_comm& of_this_process(headroom_comm* comm) {
  auto& c = given(comm, "comm");
  check(c.made_at_fork == fork_count(), Code::unsupported,
        "this process was forked after its communicator was made, and ranks do not survive a fork: make it in the child");
  return c;
}

// What the ranks ask for may differ, and their GPUs may be none that can be joined: all know it and go on. Every other failure ends the ranks.
template <class Body>
void or_end(headroom_comm& c, Body&& body) {
  try {
    const OnDevice on(c.gpu);
    body();
  } catch (const Differs&) { throw; } catch (const NotJoined&) {
    throw;
  } catch (const std::exception& e) {
    c.end(e.what());
    throw;
  }
}

// Runs what one thread at a time may ask of a communicator whose ranks have not ended.
template <class Body>
headroom_status collectively(headroom_comm* comm, const char* name, Body&& body) {
  return guard([&] {
    auto& c = of_this_process(comm);
    const std::string before = c.why_ended();
    check(before.empty(), Code::io, "{}: the ranks have ended: {}", name, before);
    if (c.busy.exchange(true)) {
      const std::string why =
          fmt::format("{}: another thread of rank {} is in a call: calls are made by one thread at a time", name, c.comm->rank());
      c.end(why);
      throw Error(Code::bad_argument, why);
    }
    struct Free {
      std::atomic<bool>& busy;
      ~Free() { busy = false; }
    } free{c.busy};
    or_end(c, [&] { body(c); });
  });
}

// A call that ranks make together, after those that were begun. After headroom_comm_later it is begun too: it meets the other ranks on a thread
// of its own, and what it throws is headroom_comm_wait's.
template <class Call>
void together(headroom_comm& c, Call&& call) {
  const auto queue = std::exchange(c.next_queue, {});
  auto carries = std::exchange(c.carries, {});
  const auto now = [&c, queue, carries = std::move(carries), call = std::forward<Call>(call)] {
    c.collectives->carries(carries);
    if (queue) c.collectives->next_on(*queue);
    call(*c.collectives);
  };
  if (queue && queue->ticket) {
    c.collectives->cards()->begin(queue->ticket, queue->stream);
    c.begun.begin([&c, now] { or_end(c, now); });
    return;
  }
  c.begun.wait_for_all();
  now();
}

void check_not_recorded(headroom_comm& c, const char* name, void* stream) {
  check(!c.collectives->cards() || !being_recorded(stream), Code::unsupported,
        "{}: the stream is being captured into a CUDA graph: ranks meet on the host, which a graph does not record", name);
}

// For a call that was begun, while no rank has ended.
const CardCollectives& cards_of_a_call(headroom_comm* comm, std::int64_t ticket) {
  auto& c = of_this_process(comm);
  const std::string before = c.why_ended();
  check(before.empty(), Code::io, "the ranks have ended: {}", before);
  c.comm->check_alive();
  check(ticket >= 1 && ticket < c.begun.next(), Code::bad_argument, "ticket is {}: no call of it was begun", ticket);
  return *c.collectives->cards();
}

}  // namespace

headroom_status headroom_comm_create(const headroom_comm_settings* settings, headroom_comm** out) {
  return guard([&] {
    given(out, "out") = nullptr;
    const auto s = read_struct(settings, "settings");
    check(s.rank >= -1 && s.ranks >= 0 && s.patience_ms >= 0, Code::bad_argument, "rank is {}, ranks {}, patience_ms {}: none is negative",
          s.rank, s.ranks, s.patience_ms);
    check(s.rank >= 0 || s.ranks == 0 || !s.rendezvous, Code::bad_argument, "ranks is {}: which of them is this? Say rank too", s.ranks);
    dist::RanksAsked asked;
    asked.rank = s.rank, asked.ranks = s.ranks, asked.option = "ranks";
    if (s.rendezvous) asked.rendezvous = s.rendezvous;
    const dist::Seat seat = dist::find_seat(asked);
    check(!seat.start_others, Code::bad_argument,
          "ranks is {}, and no launcher started them: say rank and rendezvous too, or start the program with torchrun or mpirun", s.ranks);
    auto made = std::make_unique<headroom_comm>();
    std::optional<std::chrono::milliseconds> patience;
    if (s.patience_ms > 0) patience = std::chrono::milliseconds(s.patience_ms);
    made->group = std::make_unique<dist::Group>(seat, dist::Group::Settings{}, patience);
    try {
      made->comm = made->group->comm(cpu_device());
    } catch (const std::exception& e) {
      made->group->end(e.what());
      throw;
    }
    made->collectives = std::make_unique<Collectives>(*made->comm);
    *out = made.release();
  });
}

void headroom_comm_destroy(headroom_comm* comm) {
  if (!comm) return;
  if (comm->made_at_fork != fork_count()) return;  // the parent's: its threads are not here
  const auto let_go = [&] {
    const Device gpu = comm->gpu;
    const OnDevice on(gpu);
    delete comm;
  };
  if (comm->why_ended().empty()) {
    guard([&] {
      try {
        comm->begun.wait_for_all();
        comm->collectives->leave();
        comm->group->leave();
      } catch (const std::exception&) {
        comm->end(fmt::format("rank {} has left", comm->comm->rank()));
        throw;
      }
    });
  }
  guard(let_go);
}

void headroom_comm_end(headroom_comm* comm, const char* why) {
  if (comm) guard([&] { comm->end(why ? why : "it failed"); });
}

int headroom_comm_rank(const headroom_comm* comm) { return comm ? comm->comm->rank() : 0; }
int headroom_comm_ranks(const headroom_comm* comm) { return comm ? comm->comm->ranks() : 0; }

headroom_status headroom_comm_join_gpu(headroom_comm* comm, const headroom_comm_gpu* gpu) {
  return collectively(comm, "join_gpu", [&](headroom_comm& c) {
    const auto g = read_struct(gpu, "gpu");
    constexpr std::int64_t usual = 512 << 20;
    check(g.device >= 0 && g.staging_bytes >= 0, Code::bad_argument, "device is {}, staging_bytes {}: neither is negative", g.device,
          g.staging_bytes);
    const auto route =
        one_of<headroom_comm_route>(g.route, 2, "route") == HEADROOM_ROUTE_NCCL ? dist::Route::kernels : dist::Route::automatic;
    if (c.collectives->cards())
      check(c.gpu.index == g.device, Code::bad_argument, "join_gpu: rank {} has joined with cuda:{}, and cuda:{} is another one",
            c.comm->rank(), c.gpu.index, g.device);
    c.begun.wait_for_all();
    c.collectives->join_gpus([&] {
      try {
        const auto staging = std::size_t(g.staging_bytes ? g.staging_bytes : usual);
        auto cards = dist::Cards::join(c.group->rendezvous(), g.device, staging, route);
        c.gpu = cuda_device(g.device);
        noted_cuda_use();
        c.route = cards->route();
        const OnDevice on(c.gpu);
        return std::make_unique<CardCollectives>(std::move(cards), g.device);
      } catch (const Error& e) {
        if (e.at.code == Code::unsupported || e.at.code == Code::nccl) throw NotJoined(e.at.code, e.what());  // agreed by all
        throw;
      }
    });
  });
}

headroom_status headroom_comm_on_stream(headroom_comm* comm, void* stream) {
  return collectively(comm, "on_stream", [&](headroom_comm& c) {
    check_not_recorded(c, "on_stream", stream);
    c.collectives->check_joined();
    c.next_queue = {.stream = stream};
  });
}

headroom_status headroom_comm_later(headroom_comm* comm, void* stream, int64_t* ticket) {
  return collectively(comm, "later", [&](headroom_comm& c) {
    check_not_recorded(c, "later", stream);
    c.collectives->check_joined();
    given(ticket, "ticket") = c.begun.next();
    c.next_queue = {.stream = stream, .ticket = *ticket};
  });
}

headroom_status headroom_comm_wait(headroom_comm* comm, int64_t ticket, void* stream) {
  return guard([&] {
    const auto& cards = cards_of_a_call(comm, ticket);
    comm->begun.wait(ticket);
    const OnDevice on(comm->gpu);
    cards.wait(ticket, stream);
  });
}

headroom_status headroom_comm_done(headroom_comm* comm, int64_t ticket, int32_t* done) {
  return guard([&] {
    const auto& cards = cards_of_a_call(comm, ticket);
    const OnDevice on(comm->gpu);
    given(done, "done") = comm->begun.is_made(ticket) && cards.done(ticket);
  });
}

const char* headroom_comm_gpu_route(const headroom_comm* comm) { return comm ? comm->route.c_str() : ""; }

headroom_status headroom_comm_carries(headroom_comm* comm, const char* what) {
  return collectively(comm, "carries", [&](headroom_comm& c) { c.carries = &given(what, "what"); });
}

headroom_status headroom_comm_barrier(headroom_comm* comm) {
  return collectively(comm, "barrier", [](headroom_comm& c) { together(c, [](Collectives& all) { all.barrier(); }); });
}

headroom_status headroom_comm_broadcast(headroom_comm* comm, void* data, int64_t count, headroom_dtype dtype, int32_t root) {
  return collectively(comm, "broadcast", [&](headroom_comm& c) {
    look_at("data", data, count, 1);
    together(c, [=, type = dtype_of(dtype)](Collectives& all) { all.broadcast(data, count, type, root); });
  });
}

headroom_status headroom_comm_all_reduce(headroom_comm* comm, void* data, int64_t count, headroom_dtype dtype,
                                         headroom_reduction reduction) {
  return collectively(comm, "all_reduce", [&](headroom_comm& c) {
    look_at("data", data, count, 1);
    together(c, [=, type = dtype_of(dtype), how = one_of<Reduction>(reduction, 2, "reduction")](Collectives& all) {
      all.all_reduce(data, count, type, how);
    });
  });
}

headroom_status headroom_comm_all_gather(headroom_comm* comm, const void* part, void* whole, int64_t count, headroom_dtype dtype) {
  return collectively(comm, "all_gather", [&](headroom_comm& c) {
    look_at("part", part, count, c.comm->ranks());
    look_at("whole", whole, count, c.comm->ranks());
    together(c, [=, type = dtype_of(dtype)](Collectives& all) { all.all_gather(part, whole, count, type); });
  });
}

headroom_status headroom_comm_reduce_scatter(headroom_comm* comm, const void* whole, void* part, int64_t count, headroom_dtype dtype,
                                             headroom_reduction reduction) {
  return collectively(comm, "reduce_scatter", [&](headroom_comm& c) {
    look_at("whole", whole, count, c.comm->ranks());
    look_at("part", part, count, c.comm->ranks());
    together(c, [=, type = dtype_of(dtype), how = one_of<Reduction>(reduction, 2, "reduction")](Collectives& all) {
      all.reduce_scatter(whole, part, count, type, how);
    });
  });
}

headroom_status headroom_comm_exchange(headroom_comm* comm, const void* mine, void* theirs, int64_t count, headroom_dtype dtype) {
  return collectively(comm, "exchange", [&](headroom_comm& c) {
    look_at("mine", mine, count, c.comm->ranks());
    look_at("theirs", theirs, count, c.comm->ranks());
    together(c, [=, type = dtype_of(dtype)](Collectives& all) { all.exchange(mine, theirs, count, type); });
  });
}
