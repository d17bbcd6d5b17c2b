// DLPack's exchange interface, version 1: how a library of tensors lends a tensor of Python's to C without a call in Python.
// https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h has the same structs under their own names.
#pragma once
#include <cstdint>

namespace headroom::capi::dlpack {

constexpr std::uint32_t major_version = 1;
constexpr std::int32_t cpu = 1, cuda = 2;

struct Device {
  std::int32_t type, index;
  bool operator==(const Device&) const = default;
};

struct Type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
  bool operator==(const Type&) const = default;
};
constexpr Type bytes{1, 8, 1}, int64{0, 64, 1};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  Type type;
  std::int64_t* shape;
  std::int64_t* stride;  // in elements
  std::uint64_t byte_offset;

  void* begin() const { return static_cast<char*>(data) + byte_offset; }
};

struct Managed {
  std::uint32_t major, minor;
  void* owner;
  void (*deleter)(Managed*);
  std::uint64_t flags;
  Tensor tensor;
};

struct Exchange {
  std::uint32_t major, minor;
  Exchange* older;
  int (*allocate)(Tensor* prototype, Managed** out, void* context, void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, Managed** out);
  int (*object_of)(Managed*, void** object);
  int (*lend)(void* object, Tensor* out);  // what out points to lives as long as the object does; NULL where there is no such function
  int (*current_stream)(std::int32_t device_type, std::int32_t index, void** stream);
};

}  // namespace headroom::capi::dlpack
