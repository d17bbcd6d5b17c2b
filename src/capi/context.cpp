#include <algorithm>
#include <cstring>

#include "capi/edge.h"
#include "gpu/caller.h"
#include "gpu/device.h"

namespace headroom::capi {

namespace {
thread_local char last_error[1024] = "";
}

void remember(const char* text) noexcept {
  const std::size_t all = std::strlen(text);
  std::size_t kept = std::min(all, sizeof last_error - 1);
  if (kept < all)
    while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xC0) == 0x80) --kept;  // a letter of UTF-8 goes on here
  std::memcpy(last_error, text, kept);
  last_error[kept] = '\0';
}

}  // namespace headroom::capi

using namespace headroom;
using namespace headroom::capi;

const char* headroom_version(void) { return HEADROOM_VERSION; }

const char* headroom_last_error(void) { return last_error; }

const char* headroom_status_name(headroom_status status) {
  switch (status) {
    case HEADROOM_OK: return "ok";
    case HEADROOM_BAD_ARGUMENT: return "bad_argument";
    case HEADROOM_UNSUPPORTED: return "unsupported";
    case HEADROOM_OUT_OF_MEMORY: return "out_of_memory";
    case HEADROOM_CUDA_ERROR: return "cuda_error";
    case HEADROOM_NCCL_ERROR: return "nccl_error";
    case HEADROOM_IO_ERROR: return "io_error";
    case HEADROOM_INTERRUPTED: return "interrupted";
    case HEADROOM_BUG: return "bug";
  }
  return "unknown";
}

headroom_status headroom_context_create(const headroom_context_settings* settings, headroom_context** out) {
  return guard([&] {
    given(out, "out") = nullptr;
    const auto s = read_struct(settings, "settings");
    const auto kind = one_of<DeviceKind>(s.device, 2, "settings.device");
    if (kind == DeviceKind::cuda) {
      *out = new headroom_context(cuda_device(s.device_index), 1);
      noted_cuda_use();
      return;
    }
    check(s.device_index == 0, Code::bad_argument, "settings.device_index is {}, there is one CPU: 0", s.device_index);
    constexpr int most = 4096;
    check(s.threads >= 0 && s.threads <= most, Code::bad_argument, "settings.threads is {}, it must be 0 (every core) to {}", s.threads,
          most);
    *out = new headroom_context(cpu_device(), s.threads);
  });
}

void headroom_context_destroy(headroom_context* context) { delete context; }

int headroom_context_threads(const headroom_context* context) { return context ? context->threads.count() : 0; }
