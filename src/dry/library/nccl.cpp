// NCCL: collectives are recorded with their bytes. Small ones really move between the ranks of one dry run, where their values are known:
// programs compare shapes and lists that way. Types and reductions have NCCL's published numbers.
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dry/library/exchange.h"
#include "dry/library/memory.h"
#include "dry/library/public.h"
#include "dry/library/reduce.h"
#include "dry/library/values.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

constexpr int success = 0, system_error = 2, invalid_usage = 5;

struct Id {
  char bytes[128];
};

struct Communicator {
  std::uint32_t number = 0;
  int ranks = 1, rank = 0, device = 0;
  std::string channel;
  std::uint64_t exchanged = 0, splits = 0;
  std::map<int, std::uint64_t> received;  // by peer
};

Communicator* make(int ranks, int rank, std::string channel) {
  static std::atomic<std::uint32_t> number = 0;
  auto* const c = new Communicator;
  c->number = ++number;
  c->ranks = ranks;
  c->rank = rank;
  c->device = device();
  c->channel = std::move(channel);
  return c;
}

std::string channel_of(const Id& id) {
  char text[17];
  std::uint64_t first;
  std::memcpy(&first, id.bytes, sizeof first);
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(first));
  return text;
}

// A pickled object is known to its end; PyTorch makes its tensor as long as the longest rank's, and nothing reads what is behind it.
bool known_to_its_end(const char* in, std::size_t bytes) {
  const auto is_known = [&](std::size_t at) {
    char value = 0;
    return known(in + at, 1, &value) == Knowledge::all;
  };
  std::size_t end = 0;  // what is known is in front
  for (std::size_t beyond = bytes; end < beyond;) {
    const std::size_t middle = end + (beyond - end) / 2;
    if (is_known(middle))
      end = middle + 1;
    else
      beyond = middle;
  }
  std::vector<char> values(end);
  return end > 0 && known(in, end, values.data()) == Knowledge::all;
}

// Bytes are moved if they are an object; whether they are, only their rank knows.
bool moves(std::size_t bytes, int type) { return bytes <= (is_byte(type) ? most_object_bytes : most_exchanged_bytes) && folder(); }

// Whether a rank's part is known; `values` are then its bytes, with zeros behind an object.
bool part_is_known(const void* in, std::size_t bytes, int type, std::vector<char>& values) {
  if (bytes == 0 || (bytes > most_exchanged_bytes && !holds_object(in, bytes))) return false;
  values.resize(bytes);
  return known(in, bytes, values.data()) == Knowledge::all || (is_byte(type) && known_to_its_end(static_cast<const char*>(in), bytes));
}

void give(const std::string& channel, int rank, const void* in, std::size_t bytes, int type) {
  std::vector<char> values;
  const bool is_known = part_is_known(in, bytes, type, values);
  give_values(channel, rank, values.data(), bytes, is_known);
}

void copy_own(void* to, const void* in, std::size_t bytes, int type) {
  std::vector<char> values;
  if (moves(bytes, type) && is_byte(type) && part_is_known(in, bytes, type, values))
    know(to, bytes, values.data());
  else
    copy_known(to, in, bytes);
}

// This rank's part of a small exchange goes out; the number under which all ranks' parts are found, or none for what is too large.
struct Offer {
  bool made = false;
  std::uint64_t number = 0;
};
Offer offer(Communicator& c, const void* in, std::size_t bytes, std::size_t largest, int type) {
  if (!moves(largest, type) || c.ranks < 2) return {};
  give(c.channel, c.rank, in, bytes, type);
  return {true, c.exchanged++};
}

void record(const char* name, Communicator& c, StreamHandle stream, std::size_t bytes, int type, int peer, bool moved) {
  exchanged(name, stream,
            {.communicator = c.number, .ranks = std::uint32_t(c.ranks), .peer = peer, .type = type, .bytes = bytes, .moved = moved});
}

// What `from` gave under that number, into `out`.
bool fetch(const std::string& channel, int from, std::uint64_t number, char* out, std::size_t bytes) {
  const auto given = take_values(channel, from, number);
  if (!given || !given->known || given->bytes.size() != bytes) return false;
  std::memcpy(out, given->bytes.data(), bytes);
  return true;
}

// The sum (or another reduction) of one part of what every rank gave.
bool fetch_reduced(const std::string& channel, int ranks, std::uint64_t number, std::size_t offset, std::size_t bytes, int type,
                   int operation, char* out) {
  bool all_known = true;
  for (int r = 0; r < ranks; ++r) {
    const auto given = take_values(channel, r, number);
    all_known &= given && given->known && given->bytes.size() >= offset + bytes;
    if (!all_known) return false;
    if (r == 0)
      std::memcpy(out, given->bytes.data() + offset, bytes);
    else if (!reduce(out, given->bytes.data() + offset, bytes, type, operation))
      return false;
  }
  return operation != reduce_average || divide(out, bytes, type, ranks);
}

std::size_t bytes_of(std::size_t count, int type) { return count * nccl_type_bytes(type); }

void send_small(Communicator& c, const void* in, std::size_t bytes, int type, int peer) {
  if (moves(bytes, type)) give(c.channel + ".to" + std::to_string(peer), c.rank, in, bytes, type);
}

void receive_small(Communicator& c, void* out, std::size_t bytes, int type, int peer) {
  if (!moves(bytes, type)) return forget(out, bytes);
  know_later(out, bytes, [channel = c.channel + ".to" + std::to_string(c.rank), peer, n = c.received[peer]++, bytes](char* to) {
    return fetch(channel, peer, n, to, bytes);
  });
}

thread_local std::string why_refused;

// NCCL refuses two ranks on one card. Of two ranks that come, the later one finds the earlier.
bool shares_its_card(const Communicator& c) {
  if (c.ranks < 2) return false;
  const std::string channel = c.channel + ".cards";
  const int mine = physical(c.device);
  give_values(channel, c.rank, &mine, sizeof mine, true);
  for (int r = 0; r < c.ranks; ++r) {
    const auto theirs = r == c.rank ? std::nullopt : given_so_far(channel, r, 0);
    if (!theirs || std::memcmp(theirs->bytes.data(), &mine, sizeof mine) != 0) continue;
    why_refused = "Duplicate GPU detected : rank " + std::to_string(c.rank) + " and rank " + std::to_string(r) + " both on CUDA device " +
                  std::to_string(mine);
    return true;
  }
  return false;
}

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
int ncclGetUniqueId(Id* id) {
  std::memset(id, 0, sizeof *id);
  return getrandom(id->bytes, 16, 0) == 16 ? success : system_error;
}
const char* ncclGetErrorString(int error) { return error == invalid_usage ? "invalid usage" : "an error of NCCL in a dry run"; }
const char* ncclGetLastError(void*) { return why_refused.c_str(); }
int ncclCommInitRank(Communicator** out, int ranks, Id id, int rank) {
  *out = make(ranks, rank, channel_of(id));
  return shares_its_card(**out) ? invalid_usage : success;
}
int ncclCommInitRankConfig(Communicator** out, int ranks, Id id, int rank, void*) { return ncclCommInitRank(out, ranks, id, rank); }
int ncclCommInitRankScalable(Communicator** out, int ranks, int rank, int, const Id* ids, void*) {
  return ncclCommInitRank(out, ranks, ids[0], rank);
}
int ncclCommInitAll(Communicator** out, int count, const int*) {
  Id id{};
  ncclGetUniqueId(&id);
  for (int r = 0; r < count; ++r) out[r] = make(count, r, channel_of(id));
  return success;
}
int ncclCommSplit(Communicator* from, int color, int key, Communicator** out, void*) {
  // Which rank is in which part is known only to all ranks together, so this waits for all ranks, as NCCL does.
  const std::uint64_t split = from->splits++;
  const std::string channel = from->channel + ".split" + std::to_string(split);
  const int mine[2] = {color, key};
  give_values(channel, from->rank, mine, sizeof mine, true);
  std::vector<std::pair<int, int>> part;  // key and rank of those with our color
  for (int r = 0; r < from->ranks; ++r) {
    int theirs[2] = {color, r};
    if (r == from->rank)
      std::memcpy(theirs, mine, sizeof mine);
    else if (!fetch(channel, r, 0, reinterpret_cast<char*>(theirs), sizeof theirs))
      say("a split of ranks is guessed:", "a rank did not come");
    if (theirs[0] == color) part.emplace_back(theirs[1], r);
  }
  *out = nullptr;
  if (color < 0) return success;  // NCCL_SPLIT_NOCOLOR
  std::ranges::sort(part);
  const auto self = std::ranges::find(part, from->rank, &std::pair<int, int>::second) - part.begin();
  *out = make(int(part.size()), int(self), channel + "." + std::to_string(color));
  return success;
}
int ncclCommShrink(Communicator* from, const int* excluded, int count, Communicator** out, void*, int) {
  int rank = 0;
  for (int r = 0; r < from->rank; ++r) rank += std::count(excluded, excluded + count, r) == 0;
  *out = make(from->ranks - count, rank, from->channel + ".shrunk" + std::to_string(from->splits++));
  return success;
}
int ncclCommDestroy(Communicator*) { return success; }  // what was given may still be asked for
int ncclCommAbort(Communicator*) { return success; }
int ncclCommRevoke(Communicator*, int) { return success; }
int ncclCommFinalize(Communicator*) { return success; }
int ncclCommCount(const Communicator* c, int* out) {
  *out = c->ranks;
  return success;
}
int ncclCommUserRank(const Communicator* c, int* out) {
  *out = c->rank;
  return success;
}
int ncclCommCuDevice(const Communicator* c, int* out) {
  *out = c->device;
  return success;
}
int ncclCommGetAsyncError(Communicator*, int* out) {
  *out = success;
  return success;
}
int ncclCommRegister(Communicator*, void* p, std::size_t, void** handle) {
  *handle = p;
  return success;
}
int ncclCommDeregister(Communicator*, void*) { return success; }
int ncclGroupStart() { return success; }
int ncclGroupEnd() { return success; }
int ncclMemAlloc(void** out, std::size_t bytes) { return (*out = take(bytes, "ncclMemAlloc")) ? success : 1; }
int ncclMemFree(void* p) {
  give(p, "ncclMemFree");
  return success;
}
int ncclRedOpCreatePreMulSum(int* out, void*, int, int, Communicator*) {
  *out = reduce_unknown;
  return success;
}
int ncclRedOpDestroy(int, Communicator*) { return success; }

int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int operation, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  const Offer o = offer(*c, in, bytes, bytes, type);
  record("ncclAllReduce", *c, s, bytes, type, -1, o.made);
  if (!o.made) return c->ranks > 1 ? forget(out, bytes) : copy_known(out, in, bytes), success;
  if (count == 1) meet_later(c->channel, c->ranks, o.number);
  know_later(out, bytes, [channel = c->channel, ranks = c->ranks, n = o.number, bytes, type, operation](char* to) {
    return fetch_reduced(channel, ranks, n, 0, bytes, type, operation, to);
  });
  return success;
}
int ncclReduce(const void* in, void* out, std::size_t count, int type, int operation, int root, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  const Offer o = offer(*c, in, bytes, bytes, type);
  record("ncclReduce", *c, s, bytes, type, root, o.made);
  if (c->rank != root) return success;
  if (!o.made) return forget(out, bytes), success;
  know_later(out, bytes, [channel = c->channel, ranks = c->ranks, n = o.number, bytes, type, operation](char* to) {
    return fetch_reduced(channel, ranks, n, 0, bytes, type, operation, to);
  });
  return success;
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int operation, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type), all = bytes * std::size_t(c->ranks);
  const Offer o = offer(*c, in, all, all, type);
  record("ncclReduceScatter", *c, s, all, type, -1, o.made);
  if (!o.made) return forget(out, bytes), success;
  const std::size_t offset = bytes * std::size_t(c->rank);
  know_later(out, bytes, [channel = c->channel, ranks = c->ranks, n = o.number, offset, bytes, type, operation](char* to) {
    return fetch_reduced(channel, ranks, n, offset, bytes, type, operation, to);
  });
  return success;
}
int ncclAllGather(const void* in, void* out, std::size_t count, int type, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  const Offer o = offer(*c, in, bytes, bytes, type);
  record("ncclAllGather", *c, s, bytes, type, -1, o.made);
  for (int r = 0; r < c->ranks; ++r) {
    char* const to = static_cast<char*>(out) + std::size_t(r) * bytes;
    if (r == c->rank)
      copy_own(to, in, bytes, type);
    else if (!o.made)
      forget(to, bytes);
    else
      know_later(to, bytes, [channel = c->channel, r, n = o.number, bytes](char* at) { return fetch(channel, r, n, at, bytes); });
  }
  return success;
}
int ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  const Offer o = offer(*c, c->rank == root ? in : nullptr, c->rank == root ? bytes : 0, bytes, type);
  record("ncclBroadcast", *c, s, bytes, type, root, o.made);
  if (c->rank == root)
    copy_own(out, in, bytes, type);
  else if (!o.made)
    forget(out, bytes);
  else
    know_later(out, bytes, [channel = c->channel, root, n = o.number, bytes](char* to) { return fetch(channel, root, n, to, bytes); });
  return success;
}
int ncclBcast(void* buffer, std::size_t count, int type, int root, Communicator* c, StreamHandle s) {
  return ncclBroadcast(buffer, buffer, count, type, root, c, s);
}
int ncclSend(const void* in, std::size_t count, int type, int peer, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  send_small(*c, in, bytes, type, peer);
  record("ncclSend", *c, s, bytes, type, peer, moves(bytes, type));
  return success;
}
int ncclRecv(void* out, std::size_t count, int type, int peer, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  record("ncclRecv", *c, s, bytes, type, peer, moves(bytes, type));
  receive_small(*c, out, bytes, type, peer);
  return success;
}
int ncclGather(const void* in, void* out, std::size_t count, int type, int root, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  record("ncclGather", *c, s, bytes, type, root, moves(bytes, type));
  if (c->rank != root) return send_small(*c, in, bytes, type, root), success;
  for (int r = 0; r < c->ranks; ++r) {
    char* const to = static_cast<char*>(out) + std::size_t(r) * bytes;
    r == root ? copy_own(to, in, bytes, type) : receive_small(*c, to, bytes, type, r);
  }
  return success;
}
int ncclScatter(const void* in, void* out, std::size_t count, int type, int root, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  record("ncclScatter", *c, s, bytes, type, root, moves(bytes, type));
  if (c->rank != root) return receive_small(*c, out, bytes, type, root), success;
  for (int r = 0; r < c->ranks; ++r) {
    const char* const from = static_cast<const char*>(in) + std::size_t(r) * bytes;
    r == root ? copy_own(out, from, bytes, type) : send_small(*c, from, bytes, type, r);
  }
  return success;
}
int ncclAlltoAll(const void* in, void* out, std::size_t count, int type, Communicator* c, StreamHandle s) {
  const std::size_t bytes = bytes_of(count, type);
  for (int r = 0; r < c->ranks; ++r) {
    ncclSend(static_cast<const char*>(in) + std::size_t(r) * bytes, count, type, r, c, s);
    ncclRecv(static_cast<char*>(out) + std::size_t(r) * bytes, count, type, r, c, s);
  }
  return success;
}
}
