// One pass of attention over tensors whose shapes were checked: what the C interface runs, once or often.
#pragma once
#include <array>
#include <span>

#include "capi/edge.h"
#include "ops/attention/attention.h"

namespace headroom::capi {

// What the arguments of a pass consist of, in their order, which is the order of headroom_attention_call_run's pointers too.
enum class Use : std::uint8_t { read, written, lent };
struct Part {
  const char* name;
  std::size_t at;  // offset of its headroom_tensor or headroom_memory in the struct
  Use use;
};
enum class QuantiseTo : std::uint8_t { nothing, fp8 };  // a headroom_quantise
constexpr std::size_t most_parts = 18;
using Pointers = std::array<void*, most_parts>;

}  // namespace headroom::capi

struct headroom_attention_call {
  headroom_context& context;
  headroom::attention::Problem problem;  // describes the caller's tensors
  headroom::capi::QuantiseTo quantise;
  const headroom::attention::Variant& how;
  headroom::attention::Pass pass;
  std::uint32_t flags;
  std::span<const headroom::capi::Part> parts;
  std::array<headroom::Tensor, headroom::capi::most_parts> tensors;  // without data; empty for lent memory
  std::array<std::size_t, headroom::capi::most_parts> reach;         // bytes from a tensor's data to behind its furthest element
  std::array<std::size_t, headroom::capi::most_parts> lent_bytes;
  std::uint64_t seed, offset;  // dropout's, if no tensor has them
};

namespace headroom::capi {

// Everything that does not depend on where the tensors are is checked; `at` becomes where the arguments say they are.
headroom_attention_call checked(headroom_context&, const attention::Problem&, QuantiseTo, const attention::Variant&,
                                const headroom_attention_forward_arguments&, Pointers& at);
headroom_attention_call checked(headroom_context&, const attention::Problem&, QuantiseTo, const attention::Variant&,
                                const headroom_attention_backward_arguments&, Pointers& at);

void check_dry(const headroom_attention_call&);  // throws what running it would refuse for any pointers
void run(const headroom_attention_call&, const Pointers& at, void* stream);

DType dtype_of(std::int32_t value, const char* name);          // a headroom_dtype
DType dtype_of_problem(std::int32_t value, const char* name);  // one that attention computes in

}  // namespace headroom::capi
