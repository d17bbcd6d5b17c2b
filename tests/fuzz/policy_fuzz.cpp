// A table that overrides the precision policy: taken whole or not at all, and every op still has its rule.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  const Policy before = headroom_policy();
  Policy p = before;
  try {
    p.override_with({reinterpret_cast<const char*>(data), size}, "fuzzed");
    if (p.ops.size() < before.ops.size()) std::abort();
  } catch (const Error& e) {
    if (e.at.code != Code::bad_argument || !*e.what()) std::abort();
    for (const auto& rule : p.ops)
      if (rule.source == "fuzzed") std::abort();
  }
  constexpr std::array inputs{DType::bf16, DType::f16};
  for (const auto* tensor : {"parameters", "weight_copy", "gradients", "optimizer"}) dtype_of(p.tensor(tensor).dtype, DType::bf16, {});
  for (const auto* op : {"linear", "loss", "not_in_any_table"}) dtype_of(p.rule_for(op).inputs, DType::bf16, inputs);
  return 0;
}
