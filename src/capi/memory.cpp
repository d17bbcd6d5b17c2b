// Memory of a context's device for callers that have no allocator of their own.
#include "capi/edge.h"
#include "gpu/buffer.h"
#include "gpu/caller.h"
#include "gpu/staging.h"
#include "memory/block.h"

using namespace headroom;
using namespace headroom::capi;

headroom_status headroom_memory_allocate(headroom_context* context, size_t bytes, headroom_memory* out) {
  return guard([&] {
    given(out, "out") = {nullptr, 0};
    auto& c = usable(context);
    if (bytes == 0) return;
    const OnDevice current(c.device);
    out->data = c.on_gpu() ? Buffer(bytes).release() : Block(bytes).release();
    out->bytes = bytes;
  });
}

void headroom_memory_free(headroom_context* context, headroom_memory* memory) {
  if (!context || !memory || !memory->data) return;
  guard([&] {
    if (!context->on_gpu()) {
      Block::adopt(memory->data, memory->bytes);
    } else if (context->made_at_fork == fork_count()) {
      const OnDevice current(context->device);
      Buffer::adopt(memory->data, memory->bytes);
    }
  });
  *memory = {nullptr, 0};
}

headroom_status headroom_memory_write(headroom_context* context, void* to, const void* from_host, size_t bytes, void* stream) {
  return guard([&] {
    auto& c = usable(context);
    if (bytes == 0) return;
    given(static_cast<char*>(to), "to");
    given(static_cast<const char*>(from_host), "from_host");
    if (!c.on_gpu()) {
      std::memmove(to, from_host, bytes);
      return;
    }
    const OnDevice current(c.device);
    check_reachable(to, c.device, "to");
    write_to_device(to, from_host, bytes, stream);
  });
}

headroom_status headroom_memory_read(headroom_context* context, void* to_host, const void* from, size_t bytes, void* stream) {
  return guard([&] {
    auto& c = usable(context);
    if (bytes == 0) return;
    given(static_cast<char*>(to_host), "to_host");
    given(static_cast<const char*>(from), "from");
    if (!c.on_gpu()) {
      std::memmove(to_host, from, bytes);
      return;
    }
    const OnDevice current(c.device);
    check_reachable(from, c.device, "from");
    read_from_device(to_host, from, bytes, stream);
  });
}
