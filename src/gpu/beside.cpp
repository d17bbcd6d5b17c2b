// This room, as the program has it: CUDA's calls are in src/gpu/cuda, in libheadroom_cuda.so.
#include "gpu/beside.h"

#include <atomic>

#include "base/device_names.h"
#include "gpu/across.h"

namespace headroom {

using beside::call, beside::construct, beside::destroy;

int cuda_device_count() { return beside::here() ? call<cuda_device_count>() : 0; }
bool cuda_by_default() {
  check(!beside::refused(), Code::unsupported, "{}; build it again, remove it, or name the device cpu", beside::why_absent());
  return cuda_device_count() > 0;
}
Device cuda_device(int index) {
  check(beside::here(), Code::unsupported, "cuda:{} cannot be had: {}", index, beside::why_absent());
  Device d = call<cuda_device>(index);
  if (const Device* known = known_as(d.name)) d.ceilings = known->ceilings;
  return d;
}
std::uint64_t free_memory_bytes(const Device& d) { return call<free_memory_bytes>(d); }
void use_cuda_device(int index) { call<use_cuda_device>(index); }

Stream::Stream(int device) { call<construct<Stream, int>>(this, device); }
Stream::~Stream() {
  if (raw_) call<destroy<Stream>>(this);
}
void Stream::wait() const { call<&Stream::wait>(this); }
UrgentStream::UrgentStream(int device) { call<construct<UrgentStream, int>>(this, device); }
UrgentStream::~UrgentStream() { call<destroy<UrgentStream>>(this); }
int priority_of(void* stream) { return call<priority_of>(stream); }

Graph::Graph(void* stream, const std::function<void()>& work) { call<construct<Graph, void*, across::Work>>(this, stream, work); }
Graph::~Graph() { call<destroy<Graph>>(this); }
void Graph::launch(void* stream) const { call<across::launch_graph>(this, stream); }
Nodes run_and_count(void* stream, const std::function<void()>& work) { return call<run_and_count>(stream, work); }
bool being_recorded(void* stream) { return call<being_recorded>(stream); }

Event::Event() { call<construct<Event>>(this); }
Event::~Event() {
  if (raw_) call<destroy<Event>>(this);
}
void Event::record(void* stream) const { call<&Event::record>(this, stream); }
void Event::hold_up(void* stream) const { call<&Event::hold_up>(this, stream); }
bool Event::passed() const { return call<&Event::passed>(this); }
void Event::wait() const { call<&Event::wait>(this); }

Stopwatch::Stopwatch() { call<construct<Stopwatch>>(this); }
Stopwatch::~Stopwatch() { call<destroy<Stopwatch>>(this); }
void Stopwatch::start(const Stream& s) { call<&Stopwatch::start>(this, s); }
void Stopwatch::stop(const Stream& s) { call<&Stopwatch::stop>(this, s); }
float Stopwatch::elapsed_ms() const { return call<&Stopwatch::elapsed_ms>(this); }

SharedMemory::SharedMemory(int device, std::size_t bytes) { call<construct<SharedMemory, int, std::size_t>>(this, device, bytes); }
SharedMemory::SharedMemory(int device, std::size_t bytes, int descriptor) {
  call<construct<SharedMemory, int, std::size_t, int>>(this, device, bytes, descriptor);
}
SharedMemory::~SharedMemory() { call<destroy<SharedMemory>>(this); }
int SharedMemory::descriptor() const { return call<&SharedMemory::descriptor>(this); }
std::string name_of_allocation(const void* data) { return call<name_of_allocation>(data); }
PeerView::PeerView(const std::string& name) { call<construct<PeerView, const std::string&>>(this, name); }
PeerView::~PeerView() { call<destroy<PeerView>>(this); }
void put_signals(const std::vector<Signal>& signals, void* stream) { call<put_signals>(signals, stream); }
void copy_by_engine(void* to, const void* from, std::size_t bytes, void* stream) { call<copy_by_engine>(to, from, bytes, stream); }
SeenByGpu::SeenByGpu(void* data, std::size_t bytes) { call<construct<SeenByGpu, void*, std::size_t>>(this, data, bytes); }
SeenByGpu::~SeenByGpu() { call<destroy<SeenByGpu>>(this); }

void* card_bytes(std::size_t bytes) { return call<card_bytes>(bytes); }
void give_back_card_bytes(void* data, std::size_t bytes) { call<give_back_card_bytes>(data, bytes); }
void copy_to_device(void* to, const void* from, std::size_t bytes, const Stream& s) { call<copy_to_device>(to, from, bytes, s); }
void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream& s) { call<copy_to_host>(to, from, bytes, s); }
void copy_rows_to_host(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every, const Stream& s) {
  call<copy_rows_to_host>(to, from, row_bytes, rows, every, s);
}
void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream& s) { call<copy_on_device>(to, from, bytes, s); }
void set_bytes(void* at, int byte, std::size_t bytes, void* stream) { call<set_bytes>(at, byte, bytes, stream); }
void set_rows(void* at, std::size_t every, int byte, std::size_t row_bytes, std::size_t rows, void* stream) {
  call<set_rows>(at, every, byte, row_bytes, rows, stream);
}
void fill_normal(const Tensor& t, Random random, const Stream& s, float scale) { call<fill_normal>(t, random, s, scale); }
DeviceMemory device_memory() { return call<device_memory>(); }

void read_from_device(void* to, const void* from, std::size_t bytes, void* stream) { call<read_from_device>(to, from, bytes, stream); }
void write_to_device(void* to, const void* from, std::size_t bytes, void* stream) { call<write_to_device>(to, from, bytes, stream); }
void copy_across(void* to, const void* from, std::size_t bytes, void* stream) { call<copy_across>(to, from, bytes, stream); }
Pinned::Pinned(std::size_t bytes) { call<construct<Pinned, std::size_t>>(this, bytes); }
Pinned::~Pinned() { call<destroy<Pinned>>(this); }

Map make_map(const void* data, MapType type, const MapShape& s) { return call<across::make_map>(data, type, s); }
Map make_byte_map(const void* data, const MapShape& s, BoxLayout box) { return call<make_byte_map>(data, s, box); }
void blas::multiply(const Gemm& p, void* workspace, void* stream) { call<blas::multiply>(p, workspace, stream); }
blas::Measuring::Measuring() { call<construct<blas::Measuring>>(this); }
blas::Measuring::~Measuring() { call<destroy<blas::Measuring>>(this); }

// Asked on a CPU, too, where the library may be absent.
OnDevice::OnDevice(const Device& d) {
  if (d.kind == DeviceKind::cuda) call<construct<OnDevice, const Device&>>(this, d);
}
OnDevice::~OnDevice() {
  if (before_ >= 0) call<destroy<OnDevice>>(this);
}
void check_reachable(const void* data, const Device& d, const char* name) { call<check_reachable>(data, d, name); }
namespace {
std::atomic<bool> cuda_in_use{false};
}
void noted_cuda_use() { cuda_in_use.store(true, std::memory_order_relaxed); }
void check_host_memory(const void* data, const char* name) {
  if (cuda_in_use.load(std::memory_order_relaxed)) call<check_host_memory>(data, name);
}

void push_range(const char* name) { call<push_range>(name); }
void pop_range() { call<pop_range>(); }

}  // namespace headroom
