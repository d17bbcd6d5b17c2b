// A model given as a list of ops (headroom precision autocast --model FILE): each op gets its dtypes, or one line says why not.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "studies/precision/autocast.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  static const Policy policy = headroom_policy();
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto model = studies::precision::op_model_from_json(text, "fuzzed");
    for (const DType low : {DType::bf16, DType::f16}) {
      const auto a = studies::precision::autocast(model, policy, low);
      if (a.ops.size() != model.ops.size() || a.ops.empty()) std::abort();
      a.logits();
    }
  } catch (const Error& e) {
    const auto has = [](std::string_view where) { return where.find("[json.") != std::string_view::npos; };
    if ((has(e.what()) && !has(text)) || !*e.what()) std::abort();
  }
  return 0;
}
