#include "ops/rope/rope.h"

#include <cmath>

#include "gpu/beside.h"
#include "ops/rope/impl.h"

namespace headroom::rope {

Support supports(std::int64_t dim) {
  return dim % 2 == 0 ? Support() : Support::no(fmt::format("elements turn in pairs, and {} are an odd number of them", dim));
}

void fill(const Tensor& table, double theta, Context& ctx, std::int64_t first) {
  check(table.dtype == DType::f32 && table.shape.rank == 2 && table.shape[1] % 2 == 0 && table.contiguous(), Code::bad_argument,
        "rope: the table must be fp32 [positions, dim], dim even; it is {} [{}, {}]", name_of(table.dtype), table.shape[0], table.shape[1]);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<fill_cuda>(table, theta, first, ctx) : fill_cpu(table, theta, first);
}

std::vector<float> table_of(const Frequencies& f, std::int64_t len) {
  const auto half = std::int64_t(f.of_pair.size());
  std::vector<float> table(std::size_t(len * 2 * half));
  for (std::int64_t position = 0; position < len; ++position)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = double(position) * f.of_pair[std::size_t(i)];
      table[std::size_t(position * 2 * half + i)] = float(f.magnitude * std::cos(angle));
      table[std::size_t(position * 2 * half + half + i)] = float(f.magnitude * std::sin(angle));
    }
  return table;
}

void rotate(const Tensor& x, const Tensor& table, Turn turn, Context& ctx, const Tensor& positions) {
  check(x.shape.rank == 4 && x.stride[3] == 1, Code::bad_argument,
        "rope: x must be [batch, len, heads, dim], dim of stride 1; its stride is {}", x.stride[3]);
  const Support support = supports(x.shape[3]);
  check(ctx.dry() || support, Code::unsupported, "rope: {}", support.why);
  check(!positions || (positions.dtype == DType::i32 && positions.count() == x.shape[0] * x.shape[1] && positions.contiguous()),
        Code::bad_argument, "rope: positions must be contiguous int32 [{}, {}]", x.shape[0], x.shape[1]);
  check((positions || table.shape[0] >= x.shape[1]) && table.shape[1] == x.shape[3], Code::bad_argument,
        "rope: the table holds {} positions of dim {}, x has {} of {}", table.shape[0], table.shape[1], x.shape[1], x.shape[3]);
  const auto op =
      ctx.note("rope", {DType::f32}, {3 * double(x.count()), double(2 * x.bytes()) + 4 * double(x.shape[1] * x.shape[3])}, Work::rotary);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<rotate_cuda>(x, table, turn, positions, ctx) : rotate_cpu(x, table, turn, positions, ctx);
}

}  // namespace headroom::rope
