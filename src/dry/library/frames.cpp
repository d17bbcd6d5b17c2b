#include "dry/library/frames.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "dry/library/casts.h"
#include "dry/library/running.h"

namespace headroom::dry {

namespace {

std::atomic<const headroom_dry_layout*> layout = nullptr;  // told once, never freed

template <class T>
T at(const void* base, std::int32_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

const void* untagged(const void* p) { return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) & ~std::uintptr_t(7)); }

template <class F>
F* function(const char* name, const char* library = nullptr) {  // a loaded library's: Python loads PyTorch's for itself alone
  void* const from = library ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : RTLD_DEFAULT;
  return library && !from ? nullptr : reinterpret_cast<F*>(dlsym(from, name));
}

std::string_view text_of(const headroom_dry_layout& l, const void* text) {
  if (!text || !(at<std::uint32_t>(text, l.text_state) & std::uint32_t(l.text_ascii_mask))) return {};
  return {static_cast<const char*>(text) + l.text_begin, std::size_t(at<std::int64_t>(text, l.text_length))};
}

}  // namespace

bool frames_are_known() { return layout.load(std::memory_order_acquire) != nullptr; }

std::size_t python_frames(PythonFrame* out, std::size_t most) {
  const headroom_dry_layout* const l = layout.load(std::memory_order_acquire);
  if (!l) return 0;
  static const auto this_thread = function<const void*()>("PyGILState_GetThisThreadState");
  const void* const thread = this_thread ? this_thread() : nullptr;
  if (!thread) return 0;
  const void* frame = nullptr;
  if (l->thread_frame >= 0)
    frame = at<const void*>(thread, l->thread_frame);
  else if (const void* const entry = at<const void*>(thread, l->thread_entry))
    frame = at<const void*>(entry, l->entry_frame);
  std::size_t n = 0;
  for (; frame && n < most; frame = at<const void*>(frame, l->frame_back)) {
    const void* const code = untagged(at<const void*>(frame, l->frame_code));
    if (!code || at<const void*>(code, sizeof(void*)) != l->code_type) continue;  // the interpreter's own frames between
    PythonFrame& f = out[n++];
    f.code = code;
    f.instruction = l->instruction_is_index
                        ? at<std::int32_t>(frame, l->frame_instruction) * l->instruction_unit
                        : std::int32_t(at<const char*>(frame, l->frame_instruction) - static_cast<const char*>(code) - l->code_begin);
    const bool calls = std::find(std::begin(l->module_codes), std::end(l->module_codes), code) != std::end(l->module_codes);
    f.object = calls ? untagged(at<const void*>(frame, l->frame_first)) : nullptr;
  }
  return n;
}

PythonCode code_of(const PythonFrame& f) {
  const headroom_dry_layout* const l = layout.load(std::memory_order_acquire);
  if (!l) return {};
  return {text_of(*l, at<const void*>(f.code, l->code_file)), text_of(*l, at<const void*>(f.code, l->code_function))};
}

int line_of(const PythonFrame& f) {
  static const auto line_at = function<int(const void*, int)>("PyCode_Addr2Line");  // reads the code's table, nothing else
  return line_at ? line_at(f.code, f.instruction) : 0;
}

Autograd autograd_now() {
  // PyTorch's exported functions, by their mangled names.
  static const auto enabled = function<bool()>("_ZN3c108GradMode10is_enabledEv", "libc10.so");
  static const auto next = function<std::uint64_t()>("_ZN2at15sequence_number4peekEv", "libtorch_cpu.so");
  static const auto running = function<Running()>("_ZN5torch8autograd16get_current_nodeEv", "libtorch_cpu.so");
  Autograd now;
  if (const auto before = gradients_before_cast())
    now.enabled = *before;
  else if (enabled)
    now.enabled = enabled();
  if (running)
    if (const std::uint64_t number = number_of_running(running); number != 0) {
      now.backward = true;
      now.sequence = number - 1;
      return now;
    }
  if (next) now.sequence = next();
  return now;
}

}  // namespace headroom::dry

extern "C" __attribute__((visibility("default"))) void headroom_dry_python(const headroom_dry_layout* told) {
  using namespace headroom::dry;
  if (!layout.load(std::memory_order_acquire)) layout.store(new headroom_dry_layout(*told), std::memory_order_release);
}
