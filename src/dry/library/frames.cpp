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

void add_utf8(std::string& out, std::uint32_t c) {
  if (c >= 0xd800 && c < 0xe000) c = 0xfffd;  // a byte of a file's name that is no text
  const auto rest = [&](int shift) { out += char(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80)
    out += char(c);
  else if (c < 0x800)
    out += char(0xc0 | c >> 6), rest(0);
  else if (c < 0x10000)
    out += char(0xe0 | c >> 12), rest(6), rest(0);
  else
    out += char(0xf0 | c >> 18), rest(12), rest(6), rest(0);
}

template <class Character>
std::string utf8_of_characters(const void* first, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) add_utf8(out, at<Character>(first, std::int32_t(i * sizeof(Character))));
  return out;
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
  return {at<const void*>(f.code, l->code_file), at<const void*>(f.code, l->code_function)};
}

std::string utf8_of(const void* text) {
  const headroom_dry_layout* const l = layout.load(std::memory_order_acquire);
  if (!l || !text) return {};
  const auto state = at<std::uint32_t>(text, l->text_state);
  const auto count = std::size_t(at<std::int64_t>(text, l->text_length));
  if (state & std::uint32_t(l->text_ascii_mask)) return {static_cast<const char*>(text) + l->text_begin, count};
  if (l->text_wide_begin < 0) return {};
  const void* const first = static_cast<const char*>(text) + l->text_wide_begin;
  switch (state >> l->text_kind_bit & 7) {
    case 1: return utf8_of_characters<std::uint8_t>(first, count);
    case 2: return utf8_of_characters<std::uint16_t>(first, count);
    case 4: return utf8_of_characters<std::uint32_t>(first, count);
    default: return {};
  }
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
