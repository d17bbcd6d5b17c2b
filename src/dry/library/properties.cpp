#include "dry/library/properties.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "dry/library/world.h"

namespace headroom::dry {

namespace {

constexpr int shared_bytes_by_default = 49152, registers = 65536, own_shared_bytes = 1024, warp = 32, block_threads = 1024;
constexpr int grid_x = 2147483647, grid_yz = 65535, block_z = 64, most_pitch = 2147483647, const_bytes = 65536;
constexpr int texture_alignment = 512, clock_khz = 1980000, memory_clock_khz = 3201000, bus_width = 6144;
constexpr int persisting_l2_bytes = 39321600, window_bytes = 134217728;

class Fields {  // one after the other, each where its type may begin
 public:
  explicit Fields(char* out) : begin_(out), at_(out) {}
  void text(std::string_view value, std::size_t room) {
    std::memset(at_, 0, room);
    std::memcpy(at_, value.data(), value.size() < room ? value.size() : room - 1);
    at_ += room;
  }
  void number(std::int64_t value) { put(std::int32_t(value)); }
  void size(std::uint64_t value) { put(value); }
  void numbers(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t v : values) number(v);
  }
  void zeros(int count) {
    for (int i = 0; i < count; ++i) number(0);
  }
  std::size_t bytes() const { return std::size_t(at_ - begin_); }

 private:
  template <class T>
  void put(T value) {
    at_ += std::size_t(begin_ - at_) % sizeof(T);
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  char *begin_, *at_;
};

}  // namespace

std::size_t fill_properties(void* out, PropertiesOf version, int device) {
  const bool twelve = version == PropertiesOf::cuda_12;
  const Card& c = card();
  Fields f(static_cast<char*>(out));
  const auto only_12 = [&](std::int64_t value) {
    if (twelve) f.number(value);
  };
  f.text(c.name, 256);
  f.text("headroom dry " + std::to_string(physical(device)), 16);  // uuid
  f.text("", 8);                                                   // luid
  f.number(0);                                                     // luidDeviceNodeMask
  f.size(c.memory_bytes);
  f.size(shared_bytes_by_default);
  f.numbers({registers, warp});
  f.size(most_pitch);
  f.number(block_threads);
  f.numbers({block_threads, block_threads, block_z});
  f.numbers({grid_x, grid_yz, grid_yz});
  only_12(clock_khz);
  f.size(const_bytes);
  f.numbers({std::int64_t(c.sm / 10), std::int64_t(c.sm % 10)});
  f.size(texture_alignment);
  f.size(warp);  // texturePitchAlignment
  only_12(1);    // deviceOverlap
  f.number(std::int64_t(c.units));
  only_12(0);                                      // kernelExecTimeoutEnabled
  f.numbers({0, 1});                               // integrated, canMapHostMemory
  only_12(0);                                      // computeMode
  f.zeros(2);                                      // maxTexture1D, maxTexture1DMipmap
  only_12(0);                                      // maxTexture1DLinear
  f.zeros(2 + 2 + 3 + 2 + 3 + 3 + 1 + 2 + 3 + 2);  // the other textures
  f.zeros(1 + 2 + 3 + 2 + 3 + 1 + 2);              // surfaces
  f.size(texture_alignment);                       // surfaceAlignment
  f.numbers(
      {1, 1, 1 + physical(device), 0, 0, 0, 3, 1});  // concurrentKernels, ECC, PCI bus, device, domain, TCC, engines, unifiedAddressing
  only_12(memory_clock_khz);
  f.numbers({bus_width, std::int64_t(c.l2_bytes), persisting_l2_bytes, threads_of_unit(), 1, 1, 1});
  f.size(c.shared_bytes + own_shared_bytes);
  f.numbers({registers, 1, 0, 0, 0});  // managedMemory, isMultiGpuBoard, its group, hostNativeAtomicSupported
  only_12(2);                          // singleToDoublePrecisionPerfRatio
  f.numbers({0, 1, 1, 1, 1});          // pageableMemoryAccess, concurrentManaged, preemption, registered pointers, cooperativeLaunch
  only_12(0);                          // cooperativeMultiDeviceLaunch
  f.size(c.shared_bytes);
  f.numbers({0, 0, blocks_of_unit(), window_bytes});  // host page tables, direct managed access, blocks, window
  f.size(own_shared_bytes);
  f.numbers({1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, c.sm >= 90, 0});  // hostRegister … ipcEvent, clusterLaunch, unifiedFunctionPointers
  f.zeros(twelve ? 2 + 1 + 60 : 7 + 56);
  return (f.bytes() + alignof(std::uint64_t) - 1) / alignof(std::uint64_t) * alignof(std::uint64_t);  // the struct's end is aligned
}

int attribute_of(int attribute, int device) {
  const Card& c = card();
  switch (attribute) {
    case 1: return block_threads;
    case 2:
    case 3: return block_threads;
    case 4: return block_z;
    case 5: return grid_x;
    case 6:
    case 7: return grid_yz;
    case 8: return shared_bytes_by_default;
    case 9: return const_bytes;
    case 10: return warp;
    case 11: return most_pitch;
    case 12:
    case 82: return registers;
    case 13: return clock_khz;
    case 14: return texture_alignment;
    case 16: return int(c.units);
    case 33: return 1 + physical(device);
    case 36: return memory_clock_khz;
    case 37: return bus_width;
    case 38: return int(c.l2_bytes);
    case 39: return threads_of_unit();
    case 40: return 3;  // copy engines
    case 75: return int(c.sm / 10);
    case 76: return int(c.sm % 10);
    case 81: return int(c.shared_bytes) + own_shared_bytes;
    case 87: return 2;  // single to double precision
    case 97: return int(c.shared_bytes);
    case 106: return blocks_of_unit();
    case 108: return persisting_l2_bytes;
    case 109: return window_bytes;
    case 111: return own_shared_bytes;
    case 120:
      return c.sm >= 90;  // clusters
    // What every such card can: overlap, host memory, concurrent kernels, ECC, unified addresses, priorities, L1, managed memory, preemption,
    // cooperative launch, virtual memory, pools, IPC events.
    case 15:
    case 19:
    case 31:
    case 32:
    case 41:
    case 78:
    case 79:
    case 80:
    case 83:
    case 89:
    case 90:
    case 91:
    case 95:
    case 99:
    case 102:
    case 115:
    case 125: return 1;
    default: return 0;
  }
}

}  // namespace headroom::dry
