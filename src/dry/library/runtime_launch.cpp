// The CUDA runtime: what compiled CUDA code calls when it is loaded and when it launches.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "dry/library/images.h"
#include "dry/library/last_error.h"
#include "dry/library/launch.h"
#include "dry/library/memory.h"
#include "dry/library/public.h"
#include "dry/library/recorder.h"
#include "dry/library/values.h"
#include "dry/library/work.h"
#include "dry/library/world.h"
#include "dry/strides.h"

namespace headroom::dry {

namespace {

struct Symbol {
  std::size_t bytes;
  void* at = nullptr;
};

struct Registered {
  std::shared_mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Function>> functions;  // by the address of the host's stub
  std::unordered_map<const void*, Symbol> symbols;
};
Registered& registered() {
  static Registered& one = *new Registered;
  return one;
}

// What a kernel that goes by elements touches: its first parameter is their number, its second has the table. A table comes again and again.
Touched touched_by(const Function& f, const KernelCode& code, void* const* parameters) {
  if (f.name.block_elements == 0 || !parameters || code.parameter_bytes.size() < 2) return {};
  const auto strides = strides_of(parameters[1], code.parameter_bytes[1]);
  std::int32_t elements = 0;
  std::memcpy(&elements, parameters[0], sizeof elements);
  if (!strides || elements <= 0) return {};
  std::vector<std::uint32_t> key{std::uint32_t(elements), f.name.block_elements};
  key.insert(key.end(), strides->sizes.begin(), strides->sizes.end());
  for (const auto& operand : strides->operands) key.insert(key.end(), operand.begin(), operand.end());
  static thread_local std::map<std::vector<std::uint32_t>, Touched> seen;
  const auto [at, fresh] = seen.try_emplace(std::move(key));
  if (fresh) at->second = headroom::dry::touched_by(*strides, std::uint64_t(elements), f.name.block_elements);
  return at->second;
}

}  // namespace

Function& function_at(const void* host) {
  static Function& unknown = *new Function("unknown kernel", nullptr);
  std::shared_lock lock(registered().mutex);
  const auto at = registered().functions.find(host);
  return at == registered().functions.end() ? unknown : *at->second;
}

const KernelCode& Function::code() {
  std::call_once(read_, [this] {
    if (const KernelCode* const found = container_ ? code_of(container_, name.text) : nullptr) code_ = *found;
  });
  return code_;
}

void launch(Function& f, Dim grid, Dim block, std::size_t shared_bytes, StreamHandle stream, void* const* parameters) {
  const KernelCode& code = f.code();
  Recorder& record = Recorder::get();
  if (record.on() && f.recorded.exchange(record.generation()) != record.generation())
    record.add(Kernel{number_of(f.name), std::uint32_t(code.registers), std::uint32_t(code.shared_bytes),
                      std::uint32_t(code.parameter_bytes.size())},
               {reinterpret_cast<const char*>(code.parameter_bytes.data()), code.parameter_bytes.size() * sizeof(std::uint16_t)});
  // The list of what is joined has room for more than there is, and what is in it is not cleared: only the result is looked at.
  const Lists& lists = f.name.lists;
  const bool of_lists = lists.depth > 0 && parameters && !code.parameter_bytes.empty() && code.parameter_bytes[0] == lists.bytes();
  const std::uint64_t bytes = of_lists       ? reached_by_lists(lists, grid.x, parameters)
                              : f.name.joins ? 2 * reached_bytes(code, f.name.holds, parameters, 1)
                                             : reached_bytes(code, f.name.holds, parameters);
  const bool understood = parameters && f.name.written.parameters == code.parameter_bytes.size();
  for (std::uint64_t left = understood ? f.name.written.which : 0; left != 0; left &= left - 1) {
    char* const p = *static_cast<char* const*>(parameters[std::countr_zero(left)]);
    if (on_device(p)) forget(p, rest_of_block(p));
  }
  launched(f.name, grid, block, shared_bytes, stream, bytes, touched_by(f, code, parameters));
}

}  // namespace headroom::dry

using namespace headroom::dry;

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper) { return reinterpret_cast<void**>(static_cast<char*>(wrapper) + 8); }  // its images' address
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** container, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  const std::unique_lock lock(registered().mutex);
  registered().functions[host] = std::make_unique<Function>(name, *container);
}
void __cudaRegisterVar(void**, char* host, char*, const char*, int, std::size_t bytes, int, int) {
  const std::unique_lock lock(registered().mutex);
  registered().symbols[host] = {bytes};
}
void __cudaRegisterManagedVar(void**, void** host, char*, const char*, int, std::size_t bytes, int, int) {
  const std::unique_lock lock(registered().mutex);
  registered().symbols[host] = {bytes};
}
void __cudaRegisterTexture() {}
void __cudaRegisterSurface() {}

struct NextLaunch {
  Dim grid, block;
  std::size_t shared_bytes;
  StreamHandle stream;
};
static thread_local NextLaunch next_launch;
unsigned __cudaPushCallConfiguration(Dim grid, Dim block, std::size_t shared_bytes, StreamHandle stream) {
  next_launch = {grid, block, shared_bytes, stream};
  return 0;
}
int __cudaPopCallConfiguration(Dim* grid, Dim* block, std::size_t* shared_bytes, StreamHandle* stream) {
  *grid = next_launch.grid;
  *block = next_launch.block;
  *shared_bytes = next_launch.shared_bytes;
  *stream = next_launch.stream;
  return ok;
}
int __cudaGetKernel(const void** out, const void* host) {
  *out = host;
  return ok;
}
int cudaGetKernel(const void** out, const void* host) {
  *out = host;
  return ok;
}
int cudaGetFuncBySymbol(const void** out, const void* host) {
  *out = &function_at(host);
  return ok;
}

int cudaLaunchKernel(const void* host, Dim grid, Dim block, void** parameters, std::size_t shared_bytes, StreamHandle stream) {
  launch(function_at(host), grid, block, shared_bytes, stream, parameters);
  return ok;
}
int __cudaLaunchKernel(const void* host, Dim grid, Dim block, void** parameters, std::size_t shared_bytes, StreamHandle stream) {
  return cudaLaunchKernel(host, grid, block, parameters, shared_bytes, stream);
}
int __cudaLaunchKernel_ptsz(const void* host, Dim grid, Dim block, void** parameters, std::size_t shared_bytes, StreamHandle stream) {
  return cudaLaunchKernel(host, grid, block, parameters, shared_bytes, stream);
}
int cudaLaunchCooperativeKernel(const void* host, Dim grid, Dim block, void** parameters, std::size_t shared_bytes, StreamHandle stream) {
  return cudaLaunchKernel(host, grid, block, parameters, shared_bytes, stream);
}
int cudaLaunchKernelExC(const LaunchConfig* c, const void* host, void** parameters) {
  return cudaLaunchKernel(host, c->grid, c->block, parameters, c->shared_bytes, c->stream);
}

int cudaFuncGetAttributes(FunctionAttributes* out, const void* host) {
  const KernelCode& code = function_at(host).code();
  *out = {};
  out->shared_bytes = std::size_t(code.shared_bytes);
  out->max_threads = std::min(1024, 65536 / std::max((code.registers + 7) / 8 * 8, 8) / 32 * 32);
  out->registers = code.registers;
  out->ptx_version = out->binary_version = code.sm ? code.sm : int(card().sm);  // CUB has a table of the architectures it was built for
  out->max_dynamic_shared_bytes = int(card().shared_bytes);
  return ok;
}
int cudaFuncSetAttribute(const void*, int, int) { return ok; }
int cudaFuncSetCacheConfig(const void*, int) { return ok; }
int cudaFuncSetSharedMemConfig(const void*, int) { return ok; }
int cudaKernelSetAttributeForDevice(const void*, int, int, int) { return ok; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, const void* host, int threads, std::size_t shared_bytes, unsigned) {
  *out = resident_blocks(function_at(host).code(), threads, shared_bytes);
  return ok;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void* host, int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, host, threads, shared_bytes, 0);
}
int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* out, const void*, int, int) {
  *out = card().shared_bytes;
  return ok;
}
int cudaOccupancyMaxActiveClusters(int* out, const void*, const LaunchConfig*) {
  *out = int(card().units);
  return ok;
}

int cudaGetSymbolAddress(void** out, const void* host) {
  const std::unique_lock lock(registered().mutex);
  Symbol& symbol = registered().symbols[host];
  // Globals of a module are the driver's memory: addresses that are told from PyTorch's blocks.
  if (!symbol.at) symbol.at = reserve(std::max<std::size_t>(symbol.bytes, 1));
  *out = symbol.at;
  return ok;
}
int cudaGetSymbolSize(std::size_t* out, const void* host) {
  const std::shared_lock lock(registered().mutex);
  const auto at = registered().symbols.find(host);
  *out = at == registered().symbols.end() ? 0 : at->second.bytes;
  return ok;
}
int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int, StreamHandle stream) {
  void* at = nullptr;
  cudaGetSymbolAddress(&at, symbol);
  copy(static_cast<char*>(at) + offset, from, bytes, stream);
  return ok;
}
int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
}
int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes, std::size_t offset, int, StreamHandle stream) {
  void* at = nullptr;
  cudaGetSymbolAddress(&at, symbol);
  copy(to, static_cast<char*>(at) + offset, bytes, stream);
  return ok;
}
int cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset, int kind) {
  return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr);
}
}
