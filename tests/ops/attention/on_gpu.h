// For tests of every attention variant of this machine's GPU against the FP64 oracle.
#pragma once
#include <cstdlib>
#include <optional>

#include "tests/attention_bounds.h"
#include "tests/attention_wet.h"

namespace headroom::attention {

using namespace cases;

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    device = cuda_device(0);
    if (const char* name = std::getenv("HEADROOM_VARIANT")) only = name;
    stream = std::make_unique<Stream>(0);
  }

  bool serves(const Variant& v, const Problem& p, Pass pass) const {
    return (only.empty() || only == v.name) && v.supports(p, device, pass).ok;
  }

  bool run(const Variant& v, const Case& c, Tensors& x) {  // whether there was a backward too
    const bool backward_too = c.last == Pass::backward && serves(v, c.problem, Pass::backward);
    Wet wet(v, c, x, device, *stream);
    wet.forward();
    if (backward_too) wet.backward();
    wet.t.back();
    return backward_too;
  }

  int check_case(const Case& c) {
    const int before = checked;
    std::optional<Expected> expected;
    std::optional<Tensors> inputs;
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem, Pass::forward)) continue;
      SCOPED_TRACE(v.name);
      if (!inputs) expected = expected_of(c, inputs.emplace(tensors_of(c)), true);
      Tensors x = *inputs;
      try {
        const bool gradients = run(v, c, x);
        judge(c, x, *expected, gradients);
        ++checked;
      } catch (const Error& e) {  // strides that a kernel cannot reach are refused with a sentence, and nothing else is
        EXPECT_TRUE(e.at.code == Code::unsupported && c.layout == Layout::padded) << e.what() << "\n" << in_words(c);
      }
    }
    return checked - before;
  }

  Device device;
  std::string only;  // HEADROOM_VARIANT=<name>: that one alone, say under a sanitizer
  std::unique_ptr<Stream> stream;
  int checked = 0;

  // While another stream keeps the card busy with the same variant on other data; then in a graph.
  void expect_same_bits(const Variant& v, const Case& c, Tensors x, int runs) {
    SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
    Tensors other = x;
    std::swap(other.k, other.v);
    const Stream beside(0);
    Wet wet(v, c, x, device, *stream), load(v, c, other, device, beside);
    wet.forward();
    wet.t.back();
    const auto o = x.o.bytes(), lse = x.lse.bytes();
    for (int i = 0; i < runs; ++i) {
      if (i % 2) load.forward();
      wet.forward();
      if (i % 50 && i != 1) continue;  // the work in between is not slowed by copies
      wet.t.back();
      ASSERT_TRUE(o == x.o.bytes() && lse == x.lse.bytes()) << "run " << i;
    }
    beside.wait();
    const Graph graph(*stream, [&] { wet.forward(); });
    for (int i = 0; i < 20; ++i) {
      fill_bytes(wet.t(x.o).data, 0xff, std::size_t(wet.t(x.o).bytes()), *stream);
      graph.launch(*stream);
    }
    wet.t.back();
    EXPECT_TRUE(o == x.o.bytes() && lse == x.lse.bytes()) << "the graph gives other bits";
  }
};

inline Problem problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask = {},
                       Precision precision = {DType::bf16}) {
  Problem p;
  p.batch = 2, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim, p.mask = mask;
  p.precision = precision;
  return p;
}

inline constexpr Precision precisions[] = {{DType::bf16}, {DType::f16}, {DType::f32}, {DType::f32, Math::tf32}};

}  // namespace headroom::attention
