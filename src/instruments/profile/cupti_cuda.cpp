// CUPTI, found at run time: already loaded, by its name, or in the toolkit's folder. Records have the layout of
// the header of this build, so another major version is refused.
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "instruments/profile/activity.h"

namespace headroom::profile {

namespace {

struct Functions {
  decltype(&cuptiGetVersion) version;
  decltype(&cuptiGetResultString) words_of;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime;
  decltype(&cuptiActivityEnableDriverApi) enable_driver;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock;
  decltype(&cuptiActivityGetNextRecord) next;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityPushExternalCorrelationId) push;
  decltype(&cuptiActivityPopExternalCorrelationId) pop;
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiGetGraphNodeId) node_id;
};

Functions f;
void (*hearer)(const Activity&) = nullptr;
void (*flushed)() = nullptr;
CUpti_SubscriberHandle subscriber = nullptr;
std::atomic<bool> active{false};

std::mutex nodes_mutex;
std::unordered_map<std::uint64_t, int>& nodes =
    *new std::unordered_map<std::uint64_t, int>;  // from recorded graphs and their clones to marks
thread_local std::array<std::uint64_t, 16> open_marks;
thread_local int open_count = 0;

template <class F>
bool find(void* library, const char* name, F& into) {
  into = reinterpret_cast<F>(dlsym(library, name));
  return into != nullptr;
}

std::string load() {
  std::string why;
  void* const library = open_cupti(&why);
  if (!library) return why;
  const bool all =
      find(library, "cuptiGetVersion", f.version) && find(library, "cuptiGetResultString", f.words_of) &&
      find(library, "cuptiActivityEnable", f.enable) && find(library, "cuptiActivityDisable", f.disable) &&
      find(library, "cuptiActivityEnableRuntimeApi", f.enable_runtime) && find(library, "cuptiActivityEnableDriverApi", f.enable_driver) &&
      find(library, "cuptiActivityRegisterCallbacks", f.register_buffers) &&
      find(library, "cuptiActivityRegisterTimestampCallback", f.register_clock) && find(library, "cuptiActivityGetNextRecord", f.next) &&
      find(library, "cuptiActivityFlushAll", f.flush) && find(library, "cuptiActivityPushExternalCorrelationId", f.push) &&
      find(library, "cuptiActivityPopExternalCorrelationId", f.pop) && find(library, "cuptiSubscribe", f.subscribe) &&
      find(library, "cuptiUnsubscribe", f.unsubscribe) && find(library, "cuptiEnableCallback", f.enable_callback) &&
      find(library, "cuptiGetGraphNodeId", f.node_id);
  if (!all) return "the CUPTI library here is too old: it lacks functions of CUDA 13";
  std::uint32_t version = 0;
  f.version(&version);
  const std::uint32_t built = CUPTI_API_VERSION;
  if (version / 10000 != built / 10000)
    return "the CUPTI library here is version " + std::to_string(version) + ", this program was built for " + std::to_string(built);
  return "";
}

std::uint64_t clock_ns() {
  return std::uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

constexpr std::size_t buffer_bytes = 1 << 20;

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *most_records = 0;
}

template <class Record>
Activity on_card(Activity::Kind kind, const Record& r, const char* name) {
  return {.kind = kind,
          .start_ns = std::int64_t(r.start),
          .end_ns = std::int64_t(r.end),
          .device = r.deviceId,
          .stream = r.streamId,
          .correlation = r.correlationId,
          .id = r.graphNodeId,
          .name = name};
}

template <class Record>
Activity moves_bytes(Activity::Kind kind, const Record& r, const char* name) {
  Activity a = on_card(kind, r, name);
  a.bytes = r.bytes;
  return a;
}

const char* direction_of(const CUpti_ActivityMemcpy6& r) {
  switch (r.copyKind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy to host";
    default: return "copy on device";
  }
}

std::optional<Activity> allocation(const CUpti_ActivityMemory4& r) {
  if (r.memoryKind != CUPTI_ACTIVITY_MEMORY_KIND_DEVICE && r.memoryKind != CUPTI_ACTIVITY_MEMORY_KIND_MANAGED) return std::nullopt;
  const bool takes = r.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  return Activity{.kind = takes ? Activity::Kind::take : Activity::Kind::give,
                  .start_ns = std::int64_t(r.timestamp),
                  .end_ns = std::int64_t(r.timestamp),
                  .device = r.deviceId,
                  .stream = r.streamId,
                  .correlation = r.correlationId,
                  .id = r.address,
                  .bytes = r.bytes,
                  .name = r.isAsync ? "cudaMallocAsync" : "cudaMalloc"};
}

std::optional<Activity> end_of_range(const CUpti_ActivityMarker2& r) {
  const bool begin = r.flags & CUPTI_ACTIVITY_FLAG_MARKER_START, end = r.flags & CUPTI_ACTIVITY_FLAG_MARKER_END;
  if (!begin && !end) return std::nullopt;  // a point in time
  return Activity{.kind = begin ? Activity::Kind::range_begin : Activity::Kind::range_end,
                  .start_ns = std::int64_t(r.timestamp),
                  .end_ns = std::int64_t(r.timestamp),
                  .thread = r.objectId.pt.threadId,
                  .id = r.id,
                  .name = r.name};
}

Activity host_call(const CUpti_ActivityAPI& r) {
  return {.kind = Activity::Kind::launch,
          .start_ns = std::int64_t(r.start),
          .end_ns = std::int64_t(r.end),
          .correlation = r.correlationId,
          .thread = r.threadId};
}

std::optional<Activity> link(const CUpti_ActivityExternalCorrelation& r) {
  if (r.externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return std::nullopt;
  return Activity{.kind = Activity::Kind::link, .correlation = r.correlationId, .id = r.externalId};
}

Activity overhead(const CUpti_ActivityOverhead3& r) {
  return {.kind = Activity::Kind::overhead, .start_ns = std::int64_t(r.start), .end_ns = std::int64_t(r.end)};
}

template <class Record>
const Record& as(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

// What a record says, in our words; nothing where it is of no use.
std::optional<Activity> activity_of(const CUpti_Activity* record) {
  using Kind = Activity::Kind;
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = as<CUpti_ActivityKernel10>(record);
      return on_card(Kind::kernel, kernel, kernel.name);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = as<CUpti_ActivityMemcpy6>(record);
      return moves_bytes(Kind::copy, copy, direction_of(copy));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return moves_bytes(Kind::copy, as<CUpti_ActivityMemcpyPtoP4>(record), "copy to another device");
    case CUPTI_ACTIVITY_KIND_MEMSET: return moves_bytes(Kind::fill, as<CUpti_ActivityMemset4>(record), "fill");
    case CUPTI_ACTIVITY_KIND_MEMORY2: return allocation(as<CUpti_ActivityMemory4>(record));
    case CUPTI_ACTIVITY_KIND_MARKER: return end_of_range(as<CUpti_ActivityMarker2>(record));
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return host_call(as<CUpti_ActivityAPI>(record));
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return link(as<CUpti_ActivityExternalCorrelation>(record));
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return overhead(as<CUpti_ActivityOverhead3>(record));
    default: return std::nullopt;
  }
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (active && valid > 0 && f.next(buffer, valid, &record) == CUPTI_SUCCESS)
    if (const auto said = activity_of(record)) hearer(*said);
  std::free(buffer);
  flushed();
}

// Runs while a graph is recorded and instantiated: a node gets its mark, a clone its original's.
void graph_changed(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const auto* graph = static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
  std::uint64_t node = 0, original = 0;
  if (!graph || f.node_id(graph->node, &node) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(nodes_mutex);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && open_count > 0)
    nodes[node] = int(open_marks[std::size_t(std::min(open_count, int(open_marks.size())) - 1)]);
  if (id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED || f.node_id(graph->originalNode, &original) != CUPTI_SUCCESS) return;
  if (const auto at = nodes.find(original); at != nodes.end()) nodes[node] = at->second;
}

// The calls that put work on a stream; recording others would cost time for nothing.
void enable_launches() {
  for (const auto id : {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
                        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
                        CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
                        CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020,
                        CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000})
    f.enable_runtime(id, 1);
  for (const auto id :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz})
    f.enable_driver(id, 1);
}

}  // namespace

void* open_cupti(std::string* why) {
  constexpr const char* name = "libcupti.so.13";
  if (void* loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return loaded;  // the program's own; a process must not have two
  if (void* found = dlopen(name, RTLD_NOW)) return found;
  if (const char* at = std::getenv("HEADROOM_CUPTI"))
    if (void* found = dlopen(at, RTLD_NOW)) return found;
  for (const char* at :
       {"/usr/local/cuda/lib64/libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/lib/libcupti.so.13"})
    if (void* found = dlopen(at, RTLD_NOW)) return found;
  *why =
      "libcupti.so.13 was not found; it comes with the CUDA toolkit and with PyTorch: put its folder on LD_LIBRARY_PATH, or its path into "
      "HEADROOM_CUPTI";
  return nullptr;
}

std::string start_activity(const Wanted& wanted, void (*on_activity)(const Activity&), void (*on_flush)()) {
  if (std::string why = load(); !why.empty()) return why;
  hearer = on_activity;
  flushed = on_flush;
  const auto refused = [](CUptiResult r) {
    const char* words = "";
    f.words_of(r, &words);
    const bool taken = r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    return std::string("CUPTI refuses: ") + words + (taken ? "; another profiler (Nsight, ncu) has this program already" : "");
  };
  f.register_clock(clock_ns);
  if (const auto r = f.register_buffers(give_buffer, take_buffer); r != CUPTI_SUCCESS) return refused(r);
  if (const auto r = f.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); r != CUPTI_SUCCESS) return refused(r);
  f.enable(CUPTI_ACTIVITY_KIND_MEMCPY);
  f.enable(CUPTI_ACTIVITY_KIND_MEMCPY2);
  f.enable(CUPTI_ACTIVITY_KIND_MEMSET);
  f.enable(CUPTI_ACTIVITY_KIND_OVERHEAD);
  if (wanted.memory) f.enable(CUPTI_ACTIVITY_KIND_MEMORY2);
  if (wanted.ranges) f.enable(CUPTI_ACTIVITY_KIND_MARKER);
  if (wanted.launches) enable_launches();
  if (wanted.links) {
    f.enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    f.enable(CUPTI_ACTIVITY_KIND_RUNTIME);
    f.enable(CUPTI_ACTIVITY_KIND_DRIVER);
    if (const auto r = f.subscribe(&subscriber, graph_changed, nullptr); r != CUPTI_SUCCESS) return refused(r);
    f.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
    f.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  }
  active = true;
  return "";
}

void flush_activity(bool wait_for_all) {
  if (active) f.flush(wait_for_all ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
}

void stop_activity() {
  if (!active) return;
  f.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  active = false;  // later activity has no owner
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                          CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MARKER,
                          CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER})
    f.disable(kind);
  if (subscriber) {
    f.unsubscribe(subscriber);
    subscriber = nullptr;
  }
}

void push_link(std::uint64_t mark) {
  if (open_count < int(open_marks.size())) open_marks[std::size_t(open_count)] = mark;
  ++open_count;
  if (active) f.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, mark);
}

void pop_link() {
  --open_count;
  std::uint64_t last = 0;
  if (active) f.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

int mark_of_node(std::uint64_t node) {
  const std::lock_guard lock(nodes_mutex);
  const auto at = nodes.find(node);
  return at == nodes.end() ? -1 : at->second;
}

}  // namespace headroom::profile
