// The CUDA runtime: streams, events, graphs.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "dry/library/beside.h"
#include "dry/library/caller.h"
#include "dry/library/exchange.h"
#include "dry/library/host.h"
#include "dry/library/last_error.h"
#include "dry/library/order.h"
#include "dry/library/pace.h"
#include "dry/library/public.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/library/watchdog.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

struct Captures {
  std::mutex mutex;
  std::map<std::uint32_t, std::vector<Stream*>> streams;  // the streams that each capture has reached
  std::map<std::uint32_t, std::uint64_t> before;          // what graphs had been given when each began
  std::uint32_t last = 0;
};
Captures& captures() {
  static Captures& one = *new Captures;
  return one;
}

struct GraphOf {
  std::uint32_t number;
  std::uint64_t nodes = 0;
  int device = 0;
};

void graph_entry(GraphDone done, const Stream& s, std::uint32_t number) {
  Recorder::get().add(Graph{done, std::uint32_t(s.device), s.number, number});
}

void event_entry(EventDone done, const Stream& s, const Event& e) {
  Recorder::get().add(headroom::dry::EventEntry{done, std::uint32_t(s.device), s.number, e.number});
}

// A program that asks again and again goes on by the pace, too.
bool done(std::uint64_t paced_at_ns) {
  pace_asked();
  return paced_at_ns <= paced_ns();
}

}  // namespace

extern "C" {
int cudaStreamCreateWithPriority(StreamHandle* out, unsigned, int priority) {
  takes_beside(Beside::stream, device());
  *out = make_stream(priority);
  return ok;
}
int cudaStreamCreate(StreamHandle* out) { return cudaStreamCreateWithPriority(out, 0, 0); }
int cudaStreamCreateWithFlags(StreamHandle* out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
int cudaStreamDestroy(StreamHandle) { return ok; }  // its number stays in the record
int cudaStreamGetPriority(StreamHandle s, int* out) {
  *out = stream_of(s).priority;
  return ok;
}
int cudaStreamGetFlags(StreamHandle, unsigned* out) {
  *out = 1;
  return ok;
}
int cudaStreamGetDevice(StreamHandle s, int* out) {
  *out = stream_of(s).device;
  return ok;
}
int cudaStreamGetId(StreamHandle s, unsigned long long* out) {
  *out = stream_of(s).number + 1;
  return ok;
}
int cudaStreamQuery(StreamHandle s) { return done(stream_of(s).paced_ns) ? ok : not_ready; }
int cudaStreamSynchronize(StreamHandle s) {
  settle();
  meet();
  host_waits(stream_of(s));
  order_host_waits(stream_of(s));
  return ok;
}
int cudaStreamAddCallback(StreamHandle s, void (*call)(StreamHandle, int, void*), void* data, unsigned) {
  call(s, ok, data);
  return ok;
}
int cudaLaunchHostFunc(StreamHandle, void (*call)(void*), void* data) {
  call(data);
  return ok;
}
int cudaLaunchHostFunc_v2(StreamHandle, void (*call)(void*), void* data, unsigned) {
  call(data);
  return ok;
}
int cudaStreamAttachMemAsync(StreamHandle, void*, std::size_t, unsigned) { return ok; }
int cudaCtxResetPersistingL2Cache() { return ok; }

int cudaEventCreateWithFlags(void** out, unsigned) {
  *out = make_event();
  return ok;
}
int cudaEventCreate(void** out) { return cudaEventCreateWithFlags(out, 0); }
int cudaEventDestroy(void* e) {
  if (e) order_forgets(*static_cast<Event*>(e));
  delete static_cast<Event*>(e);
  return ok;
}
int cudaEventRecord(void* e, StreamHandle s) {
  Event& event = *static_cast<Event*>(e);
  const Stream& stream = stream_of(s);
  event.paced_ns = stream.paced_ns.load();
  event.capture = stream.capture.load();
  order_recorded(event, stream);
  event_entry(EventDone::record, stream, event);
  return ok;
}
int cudaEventRecordWithFlags(void* e, StreamHandle s, unsigned) { return cudaEventRecord(e, s); }
int cudaEventQuery(void* e) {
  const Event& event = *static_cast<Event*>(e);
  if (is_watchdog()) return done_for_watchdog(event) ? ok : not_ready;
  const bool by_the_pace = done(event.paced_ns);
  if (!is_allocators(__builtin_return_address(0))) return by_the_pace ? ok : not_ready;
  return done_for_allocator(event, by_the_pace) ? ok : not_ready;
}
int cudaEventSynchronize(void* e) {
  settle();
  meet();
  host_waits(*static_cast<Event*>(e));
  order_host_waits(*static_cast<Event*>(e));
  return ok;
}
int cudaEventElapsedTime(float* ms, void* from, void* to) {
  const auto a = static_cast<Event*>(from)->paced_ns.load(), b = static_cast<Event*>(to)->paced_ns.load();
  *ms = std::max(float(double(b) - double(a)) * 1e-6f, 1e-4f);
  return ok;
}
int cudaEventElapsedTime_v2(float* ms, void* from, void* to) { return cudaEventElapsedTime(ms, from, to); }
int cudaStreamWaitEvent(StreamHandle s, void* e, unsigned) {
  const Event& event = *static_cast<Event*>(e);
  Stream& stream = stream_of(s);
  stream.paced_ns = std::max<std::uint64_t>(stream.paced_ns, event.paced_ns);
  order_stream_waits(stream, event);
  event_entry(EventDone::stream_waits, stream, event);
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  if (event.capture && !stream.capture && c.streams.contains(event.capture)) {  // a capture reaches the streams that wait for it
    stream.capture = event.capture.load();
    c.streams[event.capture].push_back(&stream);
  }
  return ok;
}

int cudaStreamBeginCapture(StreamHandle s, int) {
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  Stream& stream = stream_of(s);
  stream.capture = ++c.last;
  c.streams[c.last] = {&stream};
  c.before[c.last] = work_captured();
  graph_entry(GraphDone::begin, stream, c.last);
  return ok;
}
int cudaStreamBeginCaptureToGraph(StreamHandle s, void*, const void*, const void*, std::size_t, int mode) {
  return cudaStreamBeginCapture(s, mode);
}
int cudaStreamEndCapture(StreamHandle s, void** out) {
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  Stream& stream = stream_of(s);
  const std::uint32_t number = stream.capture;
  for (Stream* one : c.streams[number]) one->capture = 0;
  c.streams.erase(number);
  *out = new GraphOf{number, work_captured() - c.before[number]};
  c.before.erase(number);
  graph_entry(GraphDone::end, stream, number);
  return ok;
}
int cudaStreamIsCapturing(StreamHandle s, int* out) {
  *out = stream_of(s).capture ? 1 : 0;
  return ok;
}
int cudaStreamGetCaptureInfo_v2(StreamHandle s, int* status, unsigned long long* id, void** graph, const void** nodes, std::size_t* count) {
  const std::uint32_t number = stream_of(s).capture;
  if (status) *status = number ? 1 : 0;
  if (id) *id = number;
  if (graph) *graph = nullptr;
  if (nodes) *nodes = nullptr;
  if (count) *count = 0;
  return ok;
}
int cudaStreamGetCaptureInfo_v3(StreamHandle s, int* status, unsigned long long* id, void** graph, const void** nodes, const void** edges,
                                std::size_t* count) {
  if (edges) *edges = nullptr;
  return cudaStreamGetCaptureInfo_v2(s, status, id, graph, nodes, count);
}
// The name without a version has seven parameters in CUDA 13 and three in CUDA 12, where programs call _v2.
int cudaStreamGetCaptureInfo(StreamHandle s, int* status, unsigned long long* id, void** graph, const void** nodes, const void** edges,
                             std::size_t* count) {
  if (cuda_version() < 13000) return cudaStreamGetCaptureInfo_v2(s, status, id, nullptr, nullptr, nullptr);
  return cudaStreamGetCaptureInfo_v3(s, status, id, graph, nodes, edges, count);
}
int cudaStreamUpdateCaptureDependencies() { return ok; }
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int now = 0;
  std::swap(now, *mode);
  return ok;
}
int cudaGraphCreate(void** out, unsigned) {
  *out = new GraphOf{0};
  return ok;
}
int cudaGraphGetNodes(void*, void** nodes, std::size_t* count) {
  if (!nodes)
    *count = 1;  // PyTorch warns of a graph without any
  else
    *count = 0;
  return ok;
}
int cudaGraphInstantiateWithFlags(void** out, void* graph, unsigned long long) {
  const GraphOf from = graph ? *static_cast<GraphOf*>(graph) : GraphOf{0};
  *out = new GraphOf{from.number, from.nodes, device()};
  takes_beside(Beside::graph_node, device(), std::int64_t(from.nodes));
  graph_entry(GraphDone::instantiate, stream_of(nullptr), from.number);
  return ok;
}
int cudaGraphInstantiate(void** out, void* graph, unsigned long long flags) { return cudaGraphInstantiateWithFlags(out, graph, flags); }
int cudaGraphLaunch(void* executable, StreamHandle s) {
  settle();
  host_worked();
  pace_called(&HostRate::graph_s);
  graph_entry(GraphDone::launch, stream_of(s), static_cast<GraphOf*>(executable)->number);
  return ok;
}
int cudaGraphUpload(void*, StreamHandle) { return ok; }
int cudaGraphDestroy(void* graph) {
  delete static_cast<GraphOf*>(graph);
  return ok;
}
int cudaGraphExecDestroy(void* executable) {
  const auto* const one = static_cast<GraphOf*>(executable);
  if (one) takes_beside(Beside::graph_node, one->device, -std::int64_t(one->nodes));
  delete one;
  return ok;
}
int cudaGraphDebugDotPrint(void*, const char*, unsigned) { return ok; }
int cudaGraphRetainUserObject(void*, void*, unsigned, unsigned) { return ok; }
int cudaUserObjectCreate(void** out, void* data, void (*)(void*), unsigned, unsigned) {
  *out = data;
  return ok;
}
int cudaUserObjectRelease(void*, unsigned) { return ok; }
}
