#include "base/convert.h"
#include "gpu/beside.h"
#include "ops/quantise/impl.h"

namespace headroom::quantise {

namespace {

void dequantise_cpu(const Scaled& from, const Tensor& to, Context& ctx) {
  const std::int64_t columns = to.shape[1];
  with_float(to.dtype, [&]<class T>() {
    const auto rows_of = [&]<class E>(E) {
      ctx.share(to.shape[0], [&](std::int64_t row, int) {
        const E* const codes = from.values.as<E>() + row * columns;
        T* const x = to.as<T>() + row * columns;
        for (std::int64_t first = 0; first < columns; first += scale_block) {
          const float scale = from.scale_at(row, first);
          for (std::int64_t i = first; i < std::min(columns, first + scale_block); ++i) x[i] = narrow<T>(widen(codes[i]) * scale);
        }
      });
    };
    from.values.dtype == DType::e4m3 ? rows_of(e4m3{}) : rows_of(e5m2{});
  });
}

}  // namespace

void dequantise(const Scaled& from, const Tensor& to, Context& ctx, Name name) {
  check(to.shape.rank == 2 && to.contiguous() && (to.dtype == DType::f32 || to.dtype == DType::bf16 || to.dtype == DType::f16),
        Code::bad_argument, "dequantise: what is written must be fp32, bf16 or fp16 [rows, columns], contiguous; it is {} of rank {}",
        name_of(to.dtype), to.shape.rank);
  check_copy(from, to.shape[0], to.shape[1], "dequantise", "that is read");
  const auto op = ctx.note(name, {DType::f32}, {double(to.count()), double(from.bytes() + to.bytes())});
  if (ctx.dry() || to.count() == 0) return;
  ctx.on_gpu() ? beside::call<dequantise_cuda>(from, to, ctx) : dequantise_cpu(from, to, ctx);
}

}  // namespace headroom::quantise
