// The few declarations of NCCL that are used, by its public ABI: the library is opened at run time, and nothing links against it.
// Names and values are NCCL's own (nccl.h, 2.14 and later; fields of the configuration only ever grow at the end).
#pragma once
#include <climits>
#include <cstddef>

namespace headroom::dist::nccl {

using Comm = void*;    // ncclComm_t
using Window = void*;  // ncclWindow_t
using Stream = void*;  // cudaStream_t
struct UniqueId {
  char internal[128];
};

enum Result : int { success = 0, in_progress = 7 };
enum DataType : int { int8 = 0 };  // ncclInt8: only bytes are moved

constexpr int undefined = INT_MIN;
constexpr int window_symmetric = 0x01;  // NCCL_WIN_COLL_SYMMETRIC
constexpr int cta_policy_zero = 0x02;   // NCCL_CTA_POLICY_ZERO: no multiprocessors where copy engines can do it
constexpr int version_of(int major, int minor, int patch) { return major * 10000 + minor * 100 + patch; }
constexpr int least_version = version_of(2, 18, 1);  // oldest tested version: ncclCommInitRankConfig with split and abort as of today
// Registered windows and copy engines: the first version that they were seen to work with.
constexpr int with_windows = version_of(2, 28, 9);       // ncclCommWindowRegister, symmetric
constexpr int with_copy_engines = version_of(2, 28, 9);  // NCCL_CTA_POLICY_ZERO
constexpr int with_all_to_all = version_of(2, 28, 3);    // ncclAlltoAll

struct Config {  // ncclConfig_v22800; an older library reads the beginning of it
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = version_of(2, 28, 0);
  int blocking = undefined, cga_cluster_size = undefined, min_ctas = undefined, max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined, traffic_class = undefined;
  const char* comm_name = nullptr;
  int collnet_enable = undefined, cta_policy = undefined, shrink_share = undefined, nvls_ctas = undefined;
  int channels_per_net_peer = undefined, nvlink_centric_sched = undefined;
};

struct Library {
  int version = 0;
  Result (*GetVersion)(int*);
  Result (*GetUniqueId)(UniqueId*);
  Result (*CommInitRankConfig)(Comm*, int ranks, UniqueId, int rank, Config*);
  Result (*CommDestroy)(Comm);
  Result (*CommAbort)(Comm);
  Result (*CommGetAsyncError)(Comm, Result*);
  const char* (*GetErrorString)(Result);
  const char* (*GetLastError)(Comm);
  Result (*AllGather)(const void*, void*, std::size_t, DataType, Comm, Stream);
  Result (*Broadcast)(const void*, void*, std::size_t, DataType, int root, Comm, Stream);
  Result (*Send)(const void*, std::size_t, DataType, int peer, Comm, Stream);
  Result (*Recv)(void*, std::size_t, DataType, int peer, Comm, Stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  // Empty before 2.19, 2.27, 2.28.
  Result (*MemAlloc)(void**, std::size_t) = nullptr;
  Result (*MemFree)(void*) = nullptr;
  Result (*CommWindowRegister)(Comm, void*, std::size_t, Window*, int flags) = nullptr;
  Result (*CommWindowDeregister)(Comm, Window) = nullptr;
  Result (*AlltoAll)(const void*, void*, std::size_t, DataType, Comm, Stream) = nullptr;
};

// Opened once: the process's own where it has one already, HEADROOM_NCCL (a file), libnccl.so.2 by its name, or beside CUDA. An Error says what
// to install, or which version was found and which is needed.
const Library& library();

}  // namespace headroom::dist::nccl
