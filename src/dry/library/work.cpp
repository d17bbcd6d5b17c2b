#include "dry/library/work.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "dry/cuda_types.h"
#include "dry/library/beside.h"
#include "dry/library/host.h"
#include "dry/library/memory.h"
#include "dry/library/pace.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/library/values.h"
#include "dry/library/watchdog.h"
#include "dry/library/world.h"

namespace headroom::dry {

namespace {

struct Streams {
  std::mutex mutex;
  std::vector<Stream*> all;  // never freed: PyTorch keeps its own to the end
  std::vector<Stream> own = std::vector<Stream>(std::size_t(std::max(devices(), 1)));
  Streams() {
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i].device = int(i);
      all.push_back(&own[i]);
    }
  }
};

Streams& streams() {
  static Streams& one = *new Streams;
  return one;
}

std::atomic<std::uint64_t> given = 0, captured = 0;
thread_local std::uint32_t launched_into = 0;

std::uint32_t index_of(int device) { return std::uint32_t(device); }

// The stream is busy for so long from when it is free; 0 of work that is captured into a graph.
void occupy(Stream& stream, double seconds) {
  launched_into = stream.number;
  ++given;
  if (stream.capture) {
    ++captured;
    return;
  }
  const auto takes = std::uint64_t((seconds + card().launch_s) * 1e9);
  stream.paced_ns = std::max<std::uint64_t>(stream.paced_ns, paced_ns()) + takes;
}

void host_waits(WaitsFor what, std::uint32_t number, std::uint64_t until_ns) {
  host_worked();
  pace_waited(until_ns);
  pace_called(&HostRate::wait_s);
  Recorder::get().add(Wait{what, index_of(device()), number, 0, until_ns});
  let_watchdogs_look();
}

}  // namespace

std::uint64_t work_given() { return given; }
std::uint64_t work_captured() { return captured; }

Stream& stream_of(StreamHandle handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) < 16) return streams().own[std::size_t(std::min(device(), int(streams().own.size()) - 1))];
  return *static_cast<Stream*>(handle);
}

Stream* make_stream(int priority) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  auto* const stream = new Stream;
  stream->number = std::uint32_t(s.all.size() - s.own.size() + 1);
  stream->device = device();
  stream->priority = priority;
  s.all.push_back(stream);
  return stream;
}

std::uint32_t last_stream() { return launched_into; }

Event* make_event() {
  static std::atomic<std::uint32_t> number = 0;
  auto* const event = new Event;
  event->number = ++number;
  return event;
}

void host_waits(const Stream& stream) { host_waits(WaitsFor::stream, stream.number, stream.paced_ns); }

void host_waits(const Event& event) { host_waits(WaitsFor::event, event.number, event.paced_ns); }

void host_waits_for_device(int device) {
  std::uint64_t done = 0;
  {
    const std::lock_guard lock(streams().mutex);
    for (const Stream* s : streams().all) {
      if (s->device != device) continue;
      done = std::max<std::uint64_t>(done, s->paced_ns);
    }
  }
  host_waits(WaitsFor::device, index_of(device), done);
}

KernelName::KernelName(std::string name)
    : text(std::move(name)),
      asks_all(text.find("reduce_kernel") != text.npos && text.find("and_kernel_cuda") != text.npos),
      joins(text.find("CatArrayBatchedCopy") != text.npos),
      of_torch(text.find("2at6native") != text.npos || text.find("at::native") != text.npos),
      attends(text.find("flash_fwd") != text.npos || text.find("flash_bwd") != text.npos),
      holds(holds_of(text)),
      lists(lists_of(text)),
      written(written_by(text)),
      block_elements(block_elements_of(text)) {}

std::uint32_t number_of(KernelName& name) {
  Recorder& record = Recorder::get();
  const std::uint64_t seen = name.number;
  if (seen >> 32 == record.generation()) return std::uint32_t(seen);
  const std::uint32_t number = record.name(name.text);
  name.number = std::uint64_t(record.generation()) << 32 | number;
  return number;
}

void launched(KernelName& name, Dim grid, Dim block, std::size_t shared_bytes, StreamHandle handle, std::uint64_t reached_bytes,
              const Touched& touched) {
  settle();
  host_worked();
  Stream& stream = stream_of(handle);
  stream.asks_all = name.asks_all;
  const double threads = double(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  if (name.of_torch) takes_beside(Beside::kernels, stream.device);
  if (!name.used.exchange(true)) {
    pace_first_use();
    if (name.attends) takes_beside(Beside::dnn_or_attention, stream.device);
  }
  pace_kernel(name.text);
  occupy(stream, std::min(double(reached_bytes), threads * 1024) / card().bytes_per_s);
  let_watchdogs_look();
  Recorder& record = Recorder::get();
  if (!record.on()) return;
  record.add(Launch{.device = index_of(stream.device),
                    .stream = stream.number,
                    .name = number_of(name),
                    .scope = scope(),
                    .grid = {grid.x, grid.y, grid.z},
                    .block = {block.x, block.y, block.z},
                    .shared_bytes = std::uint32_t(shared_bytes),
                    .graph = stream.capture,
                    .reached_bytes = reached_bytes,
                    .touched = touched});
}

namespace {

void mark_workspace(const void* p, const char* what, const std::string& text) {
  settle();
  Recorder& record = Recorder::get();
  record.add(Mark{record.name(what), text.empty() ? 0 : record.name(text), std::int64_t(reinterpret_cast<std::intptr_t>(p))});
}

}  // namespace

void occupied(StreamHandle handle, double seconds) { occupy(stream_of(handle), seconds); }

void tell_workspace(const void* p) { mark_workspace(p, "workspace", ""); }

void tell_workspace(const void* p, const WorkspaceRange& on_card, std::uint64_t seldom_less) {
  std::string text = std::to_string(on_card.least) + " " + std::to_string(on_card.most);
  if (seldom_less != on_card.least) text += " " + std::to_string(seldom_less);
  mark_workspace(p, "workspace on a card", text);
}

void tell_tries_are_known() {
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) mark_workspace(nullptr, "tries are known", "");
}

namespace {

// Libraries have a kernel for each combination of types and transpositions, and more for shapes, which are not counted.
bool first_of_its_kind(std::string_view name, const ProductShape& s) {
  static std::mutex mutex;
  static auto& seen = *new std::set<std::tuple<std::string, int, int, bool, bool>>;
  const std::lock_guard lock(mutex);
  return seen.emplace(name, s.type_a, s.compute, s.left_transposed, s.right_transposed).second;
}

}  // namespace

void multiplied(const char* name, StreamHandle handle, const ProductShape& s) {
  settle();
  host_worked();
  Stream& stream = stream_of(handle);
  const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k) * double(s.batch);
  const bool single = s.type_a == cuda_type::single || s.type_a == cuda_type::twice;
  if (first_of_its_kind(name, s)) pace_first_use();
  pace_product(name);
  occupy(stream, flops / (single ? card().single_flops : card().half_flops));
  let_watchdogs_look();
  Recorder& record = Recorder::get();
  record.add(Product{.device = index_of(stream.device),
                     .stream = stream.number,
                     .name = record.name(name),
                     .scope = scope(),
                     .m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .batch = s.batch,
                     .type_a = s.type_a,
                     .type_b = s.type_b,
                     .type_c = s.type_c,
                     .compute = s.compute,
                     .graph = stream.capture,
                     .transposed = std::uint32_t(s.left_transposed) + 2 * std::uint32_t(s.right_transposed)});
}

void attended(const char* name, StreamHandle handle, const AttentionShape& s, std::int64_t workspace_bytes) {
  settle();
  host_worked();
  Stream& stream = stream_of(handle);
  const double flops = (s.backward ? 10.0 : 4.0) * double(s.batch * s.heads * s.len_q) * double(s.len_k * s.head_dim);
  pace_called(&HostRate::attention_s);
  occupy(stream, flops / card().half_flops);
  let_watchdogs_look();
  Recorder& record = Recorder::get();
  record.add(Attention{.device = index_of(stream.device),
                       .stream = stream.number,
                       .name = record.name(name),
                       .scope = scope(),
                       .batch = s.batch,
                       .heads = s.heads,
                       .len_q = s.len_q,
                       .len_k = s.len_k,
                       .head_dim = s.head_dim,
                       .kv_heads = s.kv_heads,
                       .workspace_bytes = workspace_bytes,
                       .type = s.type,
                       .backward = s.backward,
                       .graph = stream.capture,
                       .masked = s.masked});
}

void copied(Way way, std::uint64_t bytes, StreamHandle handle) {
  settle();
  host_worked();
  Stream& stream = stream_of(handle);
  const bool over_link = way == Way::to_device || way == Way::to_host || way == Way::between_devices;
  constexpr double host_bytes_per_s = 5e10;
  const double rate = way == Way::between_devices ? card().link_bytes_per_s : over_link ? host_bytes_per_s : card().bytes_per_s / 2;
  if (way != Way::on_host) pace_called(&HostRate::copy_s);
  occupy(stream, double(bytes) / rate);
  let_watchdogs_look();
  if (way == Way::to_host || way == Way::on_host) --given;  // it changes nothing on the card
  Recorder::get().add(Copy{index_of(stream.device), stream.number, way, stream.capture, bytes});
}

void copy(void* to, const void* from, std::size_t bytes, StreamHandle handle) {
  if (!bytes) return;
  int from_device = -1, to_device = -1;
  const bool in = on_device(from, &from_device), out = on_device(to, &to_device);
  const Way way = in && out ? from_device == to_device ? Way::on_device : Way::between_devices
                  : in      ? Way::to_host
                  : out     ? Way::to_device
                            : Way::on_host;
  copied(way, bytes, handle);
  if (way == Way::on_host)
    std::memmove(to, from, bytes);
  else if (way == Way::to_host)
    read_device(to, from, bytes, stream_of(handle).asks_all);
  else if (way == Way::to_device && (bytes <= most_known_bytes || is_object(from, bytes)))
    know(to, bytes, from);
  else if (way == Way::to_device)
    forget(to, bytes);
  else
    copy_known(to, from, bytes);
}

void exchanged(const char* name, StreamHandle handle, const Exchange& e) {
  settle();
  host_worked();
  Stream& stream = stream_of(handle);
  pace_kernel(name);
  occupy(stream, double(e.bytes) / card().link_bytes_per_s);
  collective_given(std::string_view(name) == "ncclAllReduce" && e.bytes > (1 << 20));
  Recorder& record = Recorder::get();
  record.add(Collective{.device = index_of(stream.device),
                        .stream = stream.number,
                        .name = record.name(name),
                        .scope = scope(),
                        .communicator = e.communicator,
                        .ranks = e.ranks,
                        .peer = e.peer,
                        .moved = e.moved,
                        .bytes = e.bytes,
                        .type = e.type,
                        .graph = stream.capture});
}

}  // namespace headroom::dry
