// The edge between C++ and C: no exception crosses it, and structs of older and newer callers are read by their size.
#pragma once
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "headroom/headroom.h"
#include "memory/arena.h"
#include "ops/op.h"

struct headroom_context {
  headroom_context(headroom::Device d, int thread_count) : device(std::move(d)), threads(thread_count) {}
  bool on_gpu() const { return device.kind == headroom::DeviceKind::cuda; }
  headroom::Device device;
  headroom::Threads threads;
  std::uint64_t made_at_fork = headroom::fork_count();
};

namespace headroom::capi {

void remember(const char* text) noexcept;  // keeps text for headroom_last_error; allocates nothing, cuts long text between two letters

static_assert(int(Code::bad_argument) == HEADROOM_BAD_ARGUMENT && int(Code::unsupported) == HEADROOM_UNSUPPORTED &&
              int(Code::out_of_memory) == HEADROOM_OUT_OF_MEMORY && int(Code::cuda) == HEADROOM_CUDA_ERROR &&
              int(Code::nccl) == HEADROOM_NCCL_ERROR && int(Code::io) == HEADROOM_IO_ERROR &&
              int(Code::interrupted) == HEADROOM_INTERRUPTED);

template <class Body>
headroom_status guard(Body&& body) noexcept {
  try {
    body();
    return HEADROOM_OK;
  } catch (const Error& e) {
    remember(e.what());
    return headroom_status(e.at.code);
  } catch (const std::bad_alloc&) {
    remember("out of memory: the system refused an allocation");
    return HEADROOM_OUT_OF_MEMORY;
  } catch (const std::exception& e) { remember(e.what()); } catch (...) {
    remember("an exception of an unknown type reached the C interface");
  }
  return HEADROOM_BUG;
}

template <class T>
T& given(T* pointer, const char* name) {
  check(pointer != nullptr, Code::bad_argument, "{} is NULL", name);
  return *pointer;
}

inline headroom_context& usable(headroom_context* context) {
  auto& c = given(context, "context");
  check(!c.on_gpu() || c.made_at_fork == fork_count(), Code::unsupported,
        "this process was forked after the context of cuda:{} was made, and CUDA does not survive a fork: make the context in the child, "
        "in a process that was spawned, not forked",
        c.device.index);
  return c;
}

// The caller's struct at this library's size: fields that an older caller does not know are zero; a newer caller may set
// none that this library does not know. A size that no version of a struct can have is a struct that was not started from its _INIT.
template <class T>
T read_struct(const T* from, const char* name, std::size_t least = sizeof(std::uint32_t)) {
  constexpr std::size_t most = sizeof(T) + 1024;  // a larger struct means that the caller must build again
  T out{};
  const std::uint32_t size = given(from, name).struct_size;
  check(size >= least && size <= most, Code::bad_argument,
        "{}.struct_size is {}, it must be {} to {}: start the struct from its _INIT value, with the headroom.h of this library ({})", name,
        size, least, most, headroom_version());
  std::memcpy(&out, from, size < sizeof out ? size : sizeof out);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof out; i < size; ++i)
    check(bytes[i] == 0, Code::unsupported, "{} sets a field that this library ({}) does not know: update the library", name,
          headroom_version());
  return out;
}

template <class Enum>
Enum one_of(std::int32_t value, std::int32_t count, const char* name) {
  check(value >= 0 && value < count, Code::bad_argument, "{} is {}, it must be 0 to {}", name, value, count - 1);
  return Enum(value);
}

// The caller's memory as a wet arena. No memory gives an arena without room, because an arena without a base would be dry.
class Lent {
 public:
  Lent(const headroom_memory& m, const char* name) : arena_(base(m, name), m.data ? m.bytes : 0) {}
  Arena& arena() { return arena_; }

 private:
  static void* base(const headroom_memory& m, const char* name) {
    static_assert(HEADROOM_ALIGNMENT == Arena::alignment);
    check(m.data || m.bytes == 0, Code::bad_argument, "{} has {} bytes at NULL", name, m.bytes);
    check(reinterpret_cast<std::uintptr_t>(m.data) % Arena::alignment == 0, Code::bad_argument, "{} must be aligned to {} bytes", name,
          Arena::alignment);
    return m.data ? m.data : nowhere;
  }
  alignas(Arena::alignment) static inline char nowhere[1];
  Arena arena_;
};

}  // namespace headroom::capi
