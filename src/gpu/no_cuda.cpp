// Replaces this room in a build without CUDA: there is no device, and every other call throws.
#include "base/error.h"
#include "gpu/blas.h"
#include "gpu/buffer.h"
#include "gpu/caller.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/fill.h"
#include "gpu/peer.h"
#include "gpu/probe.h"
#include "gpu/range.h"
#include "gpu/staging.h"
#include "gpu/stream.h"
#include "gpu/urgent_stream.h"

namespace headroom {

namespace {
[[noreturn]] void refuse() {
  throw Error(Code::unsupported, "a CUDA device cannot be had: this build has no GPU kernels; 'make build' builds them where nvcc is");
}
}  // namespace

int cuda_device_count() { return 0; }
Device cuda_device(int) { refuse(); }
std::uint64_t free_memory_bytes(const Device&) { refuse(); }

Stream::Stream(int) { refuse(); }
Stream::~Stream() = default;
void Stream::wait() const { refuse(); }
Graph::Graph(void*, const std::function<void()>&) { refuse(); }
Graph::~Graph() = default;
void Graph::launch(void*) const { refuse(); }
Nodes run_and_count(void*, const std::function<void()>&) { refuse(); }
bool being_recorded(void*) { refuse(); }
void use_cuda_device(int) { refuse(); }
Event::Event() { refuse(); }
Event::~Event() = default;
void Event::record(void*) const { refuse(); }
void Event::hold_up(void*) const { refuse(); }
bool Event::passed() const { refuse(); }
SharedMemory::SharedMemory(int, std::size_t) { refuse(); }
SharedMemory::SharedMemory(int, std::size_t, int) { refuse(); }
SharedMemory::~SharedMemory() = default;
void SharedMemory::map(int) { refuse(); }
int SharedMemory::descriptor() const { refuse(); }
std::string name_of_allocation(const void*) { refuse(); }
PeerView::PeerView(const std::string&) { refuse(); }
PeerView::~PeerView() = default;
void put_signals(const std::vector<Signal>&, void*) { refuse(); }
void copy_by_engine(void*, const void*, std::size_t, void*) { refuse(); }
SeenByGpu::SeenByGpu(void*, std::size_t) { refuse(); }
SeenByGpu::~SeenByGpu() = default;
UrgentStream::UrgentStream(int) { refuse(); }
UrgentStream::~UrgentStream() = default;
Stopwatch::Stopwatch() { refuse(); }
Stopwatch::~Stopwatch() = default;
void Stopwatch::start(const Stream&) { refuse(); }
void Stopwatch::stop(const Stream&) { refuse(); }
float Stopwatch::elapsed_ms() const { refuse(); }

void* card_bytes(std::size_t) { refuse(); }
void give_back_card_bytes(void*, std::size_t) {}
void copy_to_device(void*, const void*, std::size_t, const Stream&) { refuse(); }
void copy_to_host(void*, const void*, std::size_t, const Stream&) { refuse(); }
void copy_rows_to_host(void*, const void*, std::size_t, std::size_t, std::size_t, const Stream&) { refuse(); }
void copy_on_device(void*, const void*, std::size_t, const Stream&) { refuse(); }
void fill_bytes(void*, int, std::size_t, const Stream&) { refuse(); }
void fill_normal(const Tensor&, Random, const Stream&, float) { refuse(); }
DeviceMemory device_memory() { refuse(); }
void blas::multiply(const Gemm&, void*, void*) { refuse(); }

OnDevice::OnDevice(const Device&) {}
OnDevice::~OnDevice() = default;
void check_reachable(const void*, const Device&, const char*) { refuse(); }
void check_host_memory(const void*, const char*) {}
void noted_cuda_use() { refuse(); }

void push_range(const char*) {}
void pop_range() {}

void read_from_device(void*, const void*, std::size_t, void*) { refuse(); }
void write_to_device(void*, const void*, std::size_t, void*) { refuse(); }

blas::Measuring::Measuring() { refuse(); }
blas::Measuring::~Measuring() = default;

void copy_across(void*, const void*, std::size_t, void*) { refuse(); }
Pinned::Pinned(std::size_t) { refuse(); }
Pinned::~Pinned() = default;

Staging::Staging(std::size_t, int) { refuse(); }
Staging::~Staging() = default;
void* Staging::next() { refuse(); }
void Staging::send(void*, std::size_t, std::size_t, void*) { refuse(); }
void Staging::sent(void*) { refuse(); }

}  // namespace headroom
