#include "engine/model/tensor_parallel.h"

#include <algorithm>
#include <vector>

#include "base/divide.h"
#include "base/error.h"
#include "base/text.h"

namespace headroom::engine {

std::string why_no_shares(const Decoder& whole, int gpus, KeyHeads key_heads) {
  for (const auto& [a, f] : whole.layers) {
    const bool whole_heads = key_heads == KeyHeads::whole;
    const std::pair<const char*, std::int64_t> divided[] = {
        {"query heads", whole_heads ? 0 : a.heads}, {"feed-forward columns", f.width}, {"the shared expert's columns", f.shared_width}};
    for (const auto& [what, n] : divided)
      if (n % gpus != 0) return fmt::format("{} of this model, {}, do not divide by {} for tensor parallelism", what, n, gpus);
    if (whole_heads || a.latent() || a.kv_heads % gpus == 0) continue;
    if (key_heads == KeyHeads::divided)
      return fmt::format("key heads of this model, {}, do not divide by {}: gradients of a head on several GPUs would have to be added up",
                         a.kv_heads, gpus);
    if (gpus % a.kv_heads != 0) return fmt::format("{} key heads are neither a multiple nor a divisor of {}", a.kv_heads, gpus);
  }
  return "";
}

Decoder share_of(const Decoder& whole, int gpus, KeyHeads key_heads) {
  Decoder d = whole;
  if (gpus == 1) return d;
  if (const std::string why_not = why_no_shares(whole, gpus, key_heads); !why_not.empty()) {
    std::vector<std::string> those;
    for (int n = 2; n <= 256 && those.size() < 8; ++n)
      if (why_no_shares(whole, n, key_heads).empty()) those.push_back(std::to_string(n));
    throw Error(Code::bad_argument, fmt::format("--gpus {}: {}; {}", gpus, why_not,
                                                those.empty() ? "it has no other number either" : "--gpus " + joined(those, ", ") + " do"));
  }
  for (auto& [a, f] : d.layers) {
    if (key_heads != KeyHeads::whole) {
      a.heads /= gpus;
      a.kv_heads = a.latent() ? a.heads : std::max<std::int64_t>(1, a.kv_heads / gpus);
    }
    f.width /= gpus, f.shared_width /= gpus;
  }
  d.vocab = ceil_div(d.vocab, std::int64_t(gpus));
  return d;
}

}  // namespace headroom::engine
