// The record of a dry run: what libheadroom_dry.so writes while a program runs under a CUDA that is not there. This header is the whole
// description of the format; read.h reads it.
//
// One file a process, FOLDER/<pid>.dry: a FileHead, then entries, each a Head and its payload, in whole words of 8 bytes. The file is a
// shared mapping, so everything that was recorded is there after a kill. An entry's first word is written last: kind 0 is the end.
// A reader passes over kinds that it does not know by their length. Little-endian; times are nanoseconds since FileHead::begin_unix_ns.
#pragma once
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace headroom::dry {

constexpr char record_magic[8] = {'H', 'R', 'D', 'R', 'Y', 'R', 'E', 'C'};
constexpr std::uint32_t record_version = 4;

struct FileHead {
  char magic[8];
  std::uint32_t version, bytes;  // bytes: of this head; entries begin there
  std::int32_t pid, parent;
  std::int32_t rank, ranks, local_rank;  // from the launcher's variables when the file was begun; −1, 1 and −1 without any
  std::int32_t devices;                  // cards that the process sees
  std::uint64_t begin_unix_ns;
  std::uint64_t device_bytes, context_bytes;  // a card's memory, and what a process's context takes of it
  char device[64];
  char program[160];  // the command line, cut off
  std::uint64_t cut;  // not 0: there was no room on the disk for what came later
};

enum class Kind : std::uint16_t {
  end = 0,
  name,
  stack,
  block,
  driver,
  host,
  launch,
  kernel,
  product,
  attention,
  copy,
  collective,
  event,
  wait,
  graph,
  read,
  note,
  mark,
  requests,
  pool,
  host_work,
};

struct Head {
  Kind kind;
  std::uint16_t words;   // words of the whole entry, with this head
  std::uint32_t thread;  // the system's number
  std::uint64_t at_ns;   // when
};

// Payloads. A `name` is the number of a Name entry that comes before; 0: none. A `stream` is 0 for a device's own stream, else its number in
// the order of creation; `device` is the card's index as the program sees it.

struct Name {  // followed by `length` bytes
  static constexpr Kind kind = Kind::name;
  std::uint32_t id, length;
};

struct Frame {                   // a Python frame; the innermost first
  std::uint32_t file, function;  // names
  std::uint32_t line, reserved;
};

struct Stack {  // followed by `count` frames
  static constexpr Kind kind = Kind::stack;
  std::uint32_t id, count;
};

// Where the program is: `stack` is the Python stack at the thread's last allocation or read (0: not known, a thread without Python),
// `scope` what the observer
// said last on that thread (headroom_dry_scope).
struct CallSite {
  std::uint32_t stack, scope;
};

struct BlockChange {  // PyTorch's caching allocator hands out (bytes > 0) or takes back (bytes < 0)
  static constexpr Kind kind = Kind::block;
  std::uint64_t address;
  std::int64_t bytes;
  std::uint64_t allocated, reserved;  // bytes of the device after this
  std::uint32_t device, stream;       // stream: of the thread's last launch; the allocator does not say its own
  CallSite place;
};

struct Driver {  // the driver's memory of a device changes: cudaMalloc, cudaFree, pages of virtual memory
  static constexpr Kind kind = Kind::driver;
  std::uint64_t address;  // 0: no block of the program's, but what libraries have, and pages that map pinned memory
  std::int64_t bytes;
  std::uint64_t used;    // after this, without the context
  std::uint64_t others;  // what other processes of the run have of the same card, with their contexts
  std::uint32_t device;
  std::uint32_t name;  // the function
};

struct Host {  // pinned or managed memory
  static constexpr Kind kind = Kind::host;
  std::uint64_t address;
  std::int64_t bytes;
  std::uint64_t used;  // bytes of this sort after this
  std::uint32_t managed, name;
};

// What a kernel that goes by elements reads and writes, by the strides of its operands (strides.h).
struct Touched {
  std::uint64_t elements, dimensions;
  std::uint64_t bytes;          // of the operands, each element once
  std::uint64_t block_sectors;  // pieces of 32 bytes that each block of threads asks for, summed
  std::uint64_t warp_lines;     // pieces of 128 bytes that 32 threads ask for at once, summed
  std::uint64_t reread_bytes;   // what goes by until a sector is asked for again; 0: nothing
};

struct Launch {
  static constexpr Kind kind = Kind::launch;
  std::uint32_t device, stream, name, scope;
  std::uint32_t grid[3], block[3];
  std::uint32_t shared_bytes, graph;  // graph: number of the capture that took it, it did not run; 0: it ran
  std::uint64_t reached_bytes;        // from the addresses among its arguments to the ends of their blocks: an upper bound
  Touched touched;                    // of a kernel that goes by elements in an order of its own; else zeros
};

struct Kernel {  // once, before its first launch; followed by the bytes of each parameter, u16 each
  static constexpr Kind kind = Kind::kernel;
  std::uint32_t name, registers, shared_bytes, parameters;
};

struct Product {
  static constexpr Kind kind = Kind::product;
  std::uint32_t device, stream, name, scope;
  std::int64_t m, n, k, batch;
  std::int32_t type_a, type_b, type_c, compute;  // cudaDataType, cublasComputeType; −1: not known
  std::uint32_t graph, transposed;               // transposed: 1 the left side, 2 the right one
};

struct Attention {
  static constexpr Kind kind = Kind::attention;
  std::uint32_t device, stream, name, scope;
  std::int64_t batch, heads, len_q, len_k, head_dim, kv_heads;
  std::int64_t workspace_bytes;
  std::int32_t type;                      // cudnnDataType
  std::uint32_t backward, graph, masked;  // masked: 1 by positions, as a causal one is
};

enum class Way : std::uint32_t { to_device, to_host, on_device, between_devices, on_host, fill };

struct Copy {
  static constexpr Kind kind = Kind::copy;
  std::uint32_t device, stream;
  Way way;
  std::uint32_t graph;
  std::uint64_t bytes;
};

struct Collective {
  static constexpr Kind kind = Kind::collective;
  std::uint32_t device, stream, name, scope;
  std::uint32_t communicator, ranks;  // communicator: its number in this process
  std::int32_t peer;                  // root, or the other rank of send and receive; −1: none
  std::uint32_t moved;                // 1: its bytes were really exchanged
  std::uint64_t bytes;                // contributed by this rank
  std::int32_t type;                  // ncclDataType
  std::uint32_t graph;
};

enum class EventDone : std::uint32_t { record, stream_waits };

struct EventEntry {
  static constexpr Kind kind = Kind::event;
  EventDone done;
  std::uint32_t device, stream, event;  // event: its number in the order of creation
};

enum class WaitsFor : std::uint32_t { device, stream, event };

struct Wait {  // the host waits for the card
  static constexpr Kind kind = Kind::wait;
  WaitsFor what;
  std::uint32_t device, number, reserved;
  std::uint64_t until_ns;  // on the card's virtual clock
};

enum class GraphDone : std::uint32_t { begin, end, instantiate, launch };

struct Graph {
  static constexpr Kind kind = Kind::graph;
  GraphDone done;
  std::uint32_t device, stream, graph;  // graph: number of the capture
};

struct Read {  // the program reads the card's memory
  static constexpr Kind kind = Kind::read;
  std::uint64_t address, bytes;
  std::uint32_t known;  // 1: the bytes are those of a card; 0: they are unknown, and the program got a guess
  std::uint32_t device;
  CallSite place;
};

enum class Said : std::uint32_t {
  accepted,        // a function did nothing but say yes
  refused,         // a function answered that it is not supported
  no_workspace,    // a library's function: its workspace is not known here and was taken as 0
  full,            // the card had no room for `bytes` (PyTorch gives back what it caches and asks again)
  out_of_memory,   // PyTorch raised its error: `bytes` is the tensor's size
  static_runtime,  // a library brings its own runtime; `name` is its file
  host_full,       // the host's limit for pinned memory
  by_formula,      // a library's function: its workspace is a formula's, fitted to a few shapes that a card was asked about
  by_rule,         // a library's function: its workspace is what a card was seen to take, give or take `bytes`
  by_library,  // a library's function: its workspace is what the library says without a device; on a card it may be `bytes` more or less
  by_another_version,  // a library's function: its workspace is what another version of the library takes, give or take `bytes`
};

struct Note {  // the first time, then at counts of 2, 4, 8, …
  static constexpr Kind kind = Kind::note;
  Said said;
  std::uint32_t name;
  std::uint64_t count, bytes;
  std::uint32_t device, reserved;
  CallSite place;
};

struct Mark {  // the observer's word: headroom_dry_mark
  static constexpr Kind kind = Kind::mark;
  std::uint32_t what, text;  // names: "phase", "module", "step", …
  std::int64_t value;
};

// What PyTorch's caching allocator was asked, in its own order, as the observer read it at the end of the run (torch.cuda.memory): once a
// device, in parts.
enum class RequestIs : std::uint32_t { taken, unused, given, segment_taken, segment_free, mapped, other };

struct Request {
  std::uint64_t address, bytes;  // as requested, before any rounding
  std::uint32_t what, stream;    // RequestIs; streams are numbered in the order in which they come, a pool's own ones with this bit
};
constexpr std::uint32_t own_pool = 1u << 31;

struct Requests {  // followed by `count` of them
  static constexpr Kind kind = Kind::requests;
  std::uint32_t device, count, whole, reserved;  // whole: 1 where nothing before the first of them is missing
};

struct Pool {  // the pools of cudaMallocAsync on a device, together: more is live, or taken from the card, than ever before
  static constexpr Kind kind = Kind::pool;
  std::uint64_t live, taken;
  std::uint32_t device, reserved;
};

// What the host did on a thread since that thread's entry before: counts. Python's are known once the observer has begun to count (steps.py).
struct HostWork {
  static constexpr Kind kind = Kind::host_work;
  std::uint32_t operations, nodes;    // calls of PyTorch's dispatcher; nodes of autograd that ran
  std::uint32_t functions, builtins;  // called by Python: its own functions, and those of C
  std::uint64_t bytes;                // memory that PyTorch took for tensors of the host
};

using Payloads = std::tuple<Name, Stack, BlockChange, Driver, Host, Launch, Kernel, Product, Attention, Copy, Collective, EventEntry, Wait,
                            Graph, Read, Note, Mark, Requests, Pool, HostWork>;

namespace detail {
template <class... T>
constexpr bool in_whole_words(const std::tuple<T...>*) {
  return ((sizeof(T) % 8 == 0 && std::is_trivially_copyable_v<T>)&&...);
}
}  // namespace detail
static_assert(sizeof(Head) == 16 && sizeof(FileHead) % 8 == 0 && detail::in_whole_words(static_cast<Payloads*>(nullptr)));

}  // namespace headroom::dry
