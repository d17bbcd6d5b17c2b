// A model given as a list of ops (headroom precision autocast --model FILE): each op gets its dtypes, or one line says why not.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "studies/precision_autocast.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  static const Policy policy = headroom_policy();
  try {
    const auto model = precision::op_model_from_json({reinterpret_cast<const char*>(data), size}, "fuzzed");
    for (const DType low : {DType::bf16, DType::f16}) {
      const auto a = precision::autocast(model, policy, low);
      if (a.ops.size() != model.ops.size() || a.ops.empty()) std::abort();
      a.logits();
    }
  } catch (const Error& e) {
    if (std::string(e.what()).find("[json.") != std::string::npos || !*e.what()) std::abort();
  }
  return 0;
}
