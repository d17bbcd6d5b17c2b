// The work that a program gives the card: it goes into the record, and a stream's clock goes on. Nothing is computed.
//
// Two clocks: the host's is its pace (pace.h), which goes on while it waits for the card; a stream's says when its work would be done, by a roofline. Only
// their order matters here: an event is done once the pace has passed it, so blocks that a second stream used come back about as late as they do on a
// card, and at the same call in every run.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "dry/convolution.h"
#include "dry/library/public.h"
#include "dry/parameters.h"
#include "dry/record.h"
#include "dry/strides.h"

namespace headroom::dry {

struct Stream {
  std::uint32_t number = 0;  // 0: the device's own
  int device = 0, priority = 0;
  std::atomic<std::uint64_t> paced_ns = 0;  // when it is done, by the pace
  std::atomic<std::uint32_t> capture = 0;   // the graph that is being captured from it; 0: none
  std::atomic<bool> asks_all = false;       // its last launch was tensor.all()
};
Stream& stream_of(StreamHandle);
Stream* make_stream(int priority);
StreamHandle handle_of(Stream&);
std::uint32_t last_stream();  // the stream that the calling thread launched into

struct Event {
  std::uint32_t number = 0;
  std::atomic<std::uint64_t> paced_ns = 0;
  std::atomic<std::uint32_t> capture = 0;
};
Event* make_event();

std::uint64_t work_captured();  // how much of what the card was given went into graphs
std::uint64_t work_given();     // how much the card was given so far that may change its memory

void host_waits(const Stream&);
void host_waits(const Event&);
void host_waits_for_device(int device);

// A kernel's name, with its number in the record, and whether it is tensor.all()'s.
struct KernelName {
  explicit KernelName(std::string name);
  std::string text;
  bool asks_all;
  bool joins;     // it is torch.cat's
  bool of_torch;  // of the module that holds PyTorch's own kernels
  bool attends;   // it is flash attention's
  Holds holds;
  Lists lists;
  Written written;
  std::uint32_t block_elements;  // of a kernel that goes by elements: those of a block; else 0
  std::atomic<std::uint64_t> number = 0;
  std::atomic<bool> used = false;
};
std::uint32_t number_of(KernelName&);
void launched(KernelName&, Dim grid, Dim block, std::size_t shared_bytes, StreamHandle, std::uint64_t reached_bytes, const Touched& = {});

struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  int type_a = -1, type_b = -1, type_c = -1, compute = -1;
  bool left_transposed = false, right_transposed = false;
};
void multiplied(const char* name, StreamHandle, const ProductShape&);
void occupied(StreamHandle, double seconds);  // by work that has no place in the record

void tell_workspace(const void* p);  // what a library multiplies in, whenever it was allocated
// The workspace of one call, in a range of a card's. `seldom_less`: it takes less than this only where a card does not list an engine that it was seen to list.
void tell_workspace(const void* p, const WorkspaceRange&, std::uint64_t seldom_less);
inline void tell_workspace(const void* p, const WorkspaceRange& on_card) { tell_workspace(p, on_card, on_card.least); }
void tell_tries_are_known();  // what PyTorch takes to try convolutions' plans is as a card was seen to have it

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, len_q = 0, len_k = 0, head_dim = 0, kv_heads = 0;
  int type = 0;
  bool backward = false, masked = false;
};
void attended(const char* name, StreamHandle, const AttentionShape&, std::int64_t workspace_bytes);

void copied(Way, std::uint64_t bytes, StreamHandle);
void copy(void* to, const void* from, std::size_t bytes, StreamHandle);  // copied, with its values

struct Exchange {
  std::uint32_t communicator = 0, ranks = 1;
  std::int32_t peer = -1, type = 0;
  std::uint64_t bytes = 0;
  bool moved = false;
};
void exchanged(const char* name, StreamHandle, const Exchange&);

}  // namespace headroom::dry
