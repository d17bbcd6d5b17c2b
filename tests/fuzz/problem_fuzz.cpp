// The C interface reads a struct of anything: a status comes back, never a crash, and what is refused is explained.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "headroom/headroom.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static headroom_context* context = [] {
    headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
    settings.threads = 1;
    headroom_context* made = nullptr;
    if (headroom_context_create(&settings, &made) != HEADROOM_OK) std::abort();
    return made;
  }();
  headroom_attention_problem problem = HEADROOM_ATTENTION_PROBLEM_INIT;
  if (size > 0) std::memcpy(&problem, data, std::min(size, offsetof(headroom_attention_problem, variant)));  // a pointer cannot be anything
  problem.struct_size = std::min<std::uint32_t>(problem.struct_size, sizeof problem);
  std::size_t bytes = 0, needed = 0;
  char text[64] = "";
  for (const auto status : {headroom_attention_saved_bytes(context, &problem, &bytes),
                            headroom_attention_workspace_bytes(context, &problem, HEADROOM_FORWARD, &bytes),
                            headroom_attention_workspace_bytes(context, &problem, HEADROOM_BACKWARD, &bytes),
                            headroom_attention_explain(context, &problem, text, sizeof text, &needed)}) {
    if (status == HEADROOM_BUG) std::abort();
    if (status != HEADROOM_OK && !*headroom_last_error()) std::abort();
  }
  return 0;
}
