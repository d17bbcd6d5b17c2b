#include "ops/matmul/matmul.h"

#include <algorithm>

#include "base/element.h"
#include "gpu/beside.h"
#include "gpu/blas.h"
#include "ops/copy/copy.h"
#include "ops/matmul/impl.h"

namespace headroom::matmul {

namespace {

constexpr unsigned bit_of(DType t) { return 1u << unsigned(t); }
template <class... Types>
constexpr unsigned any_of(Types... types) {
  return (bit_of(types) | ...);
}

enum class Scales : std::uint8_t { none, any };
struct Combination {  // dtypes that a device multiplies: any of `a` with any of `b` into any of `c`
  DeviceKind device;
  unsigned a, b, c;
  Scales scales;
};

using enum DType;
constexpr unsigned for_cpu = any_of(f32, bf16, f16, e4m3, e5m2), eight_bits = any_of(e4m3, e5m2);
constexpr Combination combinations[] = {
    {DeviceKind::cpu, for_cpu, for_cpu, any_of(f32, bf16, f16), Scales::any},
    {DeviceKind::cuda, any_of(f32), any_of(f32), any_of(f32), Scales::none},
    {DeviceKind::cuda, any_of(bf16), any_of(bf16), any_of(bf16, f32), Scales::none},
    {DeviceKind::cuda, any_of(f16), any_of(f16), any_of(f16, f32), Scales::none},
    {DeviceKind::cuda, eight_bits, eight_bits, any_of(bf16, f32), Scales::any},
};

const Combination* serving(const Product& p, const Device& device) {
  const bool scaled = p.a.scale || p.b.scale;
  for (const Combination& row : combinations)
    if (row.device == device.kind && (row.a & bit_of(p.a.values.dtype)) && (row.b & bit_of(p.b.values.dtype)) &&
        (row.c & bit_of(p.c.dtype)) && (row.scales == Scales::any || !scaled))
      return &row;
  return nullptr;
}

// What cuBLASLt asks of 8-bit operands beyond their types.
Support eight_bits_on_gpu(const Product& p, const Device& device) {
  using enum ScaleKind;
  constexpr std::int64_t multiple = 16;
  const Tensor &a = p.a.values, &b = p.b.values;
  if (device.sm < 89) return Support::no(fmt::format("{} (sm_{}) multiplies no fp8; sm_89 and later do", device.name, device.sm));
  if (a.dtype == e5m2 && b.dtype == e5m2) return Support::no("a GPU multiplies e5m2 by fp8 (e4m3), not by e5m2");
  const ScaleKind ka = p.a.kind, kb = p.b.kind;
  if (ka != one || kb != one) {
    const bool known = (ka == row && kb == row) || (ka == run && kb == run) || (ka == run && kb == block) || (ka == block && kb == run);
    if (!known)
      return Support::no(
          fmt::format("a GPU does not multiply scales by {} with scales by {}; tensor with tensor, row with row, 1x128 with 1x128 "
                      "or 128x128 it does",
                      name_of(ka), name_of(kb)));
    if (device.sm / 10 != 9)
      return Support::no(fmt::format("{} (sm_{}) multiplies fp8 with one scale a tensor; scales by {} are Hopper's (sm_90)", device.name,
                                     device.sm, name_of(ka)));
  }
  const int last = p.c.shape.rank - 1;
  const auto m = p.c.shape[last - 1], n = p.c.shape[last], k = a.shape[last];
  if (m % multiple || n % multiple || k % multiple)
    return Support::no(fmt::format("a GPU multiplies fp8 where {} divides every side; {}x{} times {}x{} was asked", multiple, m, k, k, n));
  if (a.stride[std::size_t(last)] != 1 || b.stride[std::size_t(last - 1)] != 1)
    return Support::no("a GPU multiplies fp8 whose summed dimension is contiguous, in a and in b");
  return {};
}

void check_scale(const Scaled& x, std::int64_t lines, std::int64_t k, const char* of) {
  if (!x.scale) return;
  check(x.scale.dtype == DType::f32 && (x.scale.count() == scale_shape(x.kind, lines, k).count()) && x.scale.contiguous(),
        Code::bad_argument, "matmul: the scales of {} ({}) must be {} fp32 values; there are {} of {}", of, name_of(x.kind),
        scale_shape(x.kind, lines, k).count(), x.scale.count(), name_of(x.scale.dtype));
  check(x.kind == ScaleKind::one || x.values.shape.rank == 2, Code::unsupported,
        "matmul: {} has scales by {} and {} dimensions; a batch may have one scale", of, name_of(x.kind), x.values.shape.rank);
}

void check_product(const Product& p) {
  const Tensor &a = p.a.values, &b = p.b.values;
  const int rank = p.c.shape.rank, last = rank - 1;
  check(rank >= 2 && a.shape.rank == rank && b.shape.rank == rank, Code::bad_argument,
        "matmul: ranks {}, {} and {}; all three must be equal, 2 to 4", a.shape.rank, b.shape.rank, rank);
  for (int d = 0; d < last - 1; ++d)
    check(a.shape[d] == p.c.shape[d] && b.shape[d] == p.c.shape[d], Code::bad_argument, "matmul: batch sizes {}, {} and {} differ",
          a.shape[d], b.shape[d], p.c.shape[d]);
  const auto m = p.c.shape[last - 1], n = p.c.shape[last], k = a.shape[last];
  check(a.shape[last - 1] == m && b.shape[last - 1] == k && b.shape[last] == n, Code::bad_argument,
        "matmul: {}x{} times {}x{} does not give {}x{}", a.shape[last - 1], k, b.shape[last - 1], b.shape[last], m, n);
  check_scale(p.a, m, k, "a");
  check_scale(p.b, n, k, "b");
  check(p.sums == Sums::two_level || !(along_k(p.a.kind) || along_k(p.b.kind)), Code::bad_argument,
        "matmul: scales that differ along k ({}, {}) need two-level sums", name_of(p.a.kind), name_of(p.b.kind));
  const auto one_of_two = [&](const Tensor& t) {
    return t.stride[std::size_t(last)] == 1 || t.stride[std::size_t(last - 1)] == 1 || t.shape[last] <= 1 || t.shape[last - 1] <= 1;
  };
  check(one_of_two(a) && one_of_two(b) && (n <= 1 || p.c.stride[std::size_t(last)] == 1), Code::bad_argument,
        "matmul: a and b need stride 1 in one of their last two dimensions, c in its last");
  check(!p.add || (p.add.shape == p.c.shape && p.add.dtype == p.c.dtype && p.add.stride == p.c.stride && p.add.contiguous()),
        Code::bad_argument, "matmul: what is added must have the shape, type and strides of the product, both contiguous");
}

}  // namespace

namespace {
Support multiplies(const Product& p, const Device& device) {
  const bool scaled = p.a.scale || p.b.scale;
  const auto* row = serving(p, device);
  const auto product = [&] {
    return fmt::format("multiply {} by {} into {}{}", name_of(p.a.values.dtype), name_of(p.b.values.dtype), name_of(p.c.dtype),
                       scaled ? " with scales" : "");
  };
  if (!row) return Support::no(fmt::format("{} does not {}", device.kind == DeviceKind::cpu ? "the CPU" : "a GPU", product()));
  if (p.adder == Adder::hopper && (device.kind != DeviceKind::cpu || size_of(p.a.values.dtype) != 1 || size_of(p.b.values.dtype) != 1))
    return Support::no("Hopper's adder is emulated on a CPU, of two fp8 operands");
  if (device.kind == DeviceKind::cuda && size_of(p.a.values.dtype) == 1) return eight_bits_on_gpu(p, device);
  return {};
}
}  // namespace

Support supports(const Product& p, const Device& device) {
  if (p.more_bytes != 0)
    return Support::no("products with the weights of several experts, or with weights in fewer bits, are counted, not computed");
  return multiplies(p, device);
}

Tensor transposed(Tensor t) {
  if (!t) return t;
  const auto last = std::size_t(t.shape.rank - 1);
  std::swap(t.shape.dim[last], t.shape.dim[last - 1]);
  std::swap(t.stride[last], t.stride[last - 1]);
  return t;
}

Scaled transposed(const Scaled& t) { return {transposed(t.values), t.scale, t.kind}; }

Tensor part(Tensor t, int dimension, std::int64_t begin, std::int64_t end) {
  t.data = element_of(t, begin * t.stride[std::size_t(dimension)]);
  t.shape.dim[std::size_t(dimension)] = end - begin;
  return t;
}

double flops(const Product& p) { return 2.0 * double(p.c.count()) * double(p.a.values.shape[p.a.values.shape.rank - 1]); }

Cost cost_of(const Product& p) {
  const int last = p.c.shape.rank - 1;
  const std::int64_t m = p.c.shape[last - 1], n = p.c.shape[last], k = p.a.values.shape[last], one = std::max<std::int64_t>(1, m * n);
  return {
      flops(p), double(p.a.bytes() + p.b.bytes() + (p.beta != 0 ? 2 : 1) * p.c.bytes()) + p.more_bytes, 0, {m, n, k, p.c.count() / one}};
}

void multiply(const Product& p, Context& ctx, Name name, Making making) {
  check_product(p);
  const Support support = ctx.dry() ? multiplies(p, ctx.device) : supports(p, ctx.device);
  check(bool(support), Code::unsupported, "matmul: {}", support.why);
  const auto op = ctx.note(name, {p.a.values.dtype, p.math}, cost_of(p), Work::matmul, making);
  auto scope = ctx.arena.scope();
  if (ctx.on_gpu()) {
    const Tensor workspace = ctx.arena.make("matmul.workspace", DType::u8, {std::int64_t(blas::workspace_bytes)});
    if (!ctx.dry()) beside::call<multiply_cuda>(p, workspace, ctx);
    return;
  }
  if (p.beta != 0 && p.add) copy::copy(p.add, p.c, ctx);
  multiply_cpu(p, ctx);
}

}  // namespace headroom::matmul
