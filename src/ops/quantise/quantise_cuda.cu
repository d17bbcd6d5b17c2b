// quantise on a card. A block takes a tile of 128 × 128 numbers, which stay in registers between finding the largest and rounding (tile.cuh). Scales that
// reach further than a tile come from maxima that a launch over the same tiles took before.
#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "ops/quantise/lines.cuh"

namespace headroom::quantise {

namespace {

Copy copy_of(const Scaled& y) {
  if (!y) return {};
  const bool strided = y.kind == ScaleKind::run || y.kind == ScaleKind::block;
  return {y.values.as<std::uint8_t>(), y.scale.as<float>(), y.kind, strided ? int(y.scale.stride[0]) : 0};
}

template <class F>
void with_format(const Scaled& y, F&& f) {
  if (!y) return f.template operator()<LeftOut>();
  y.values.dtype == DType::e5m2 ? f.template operator()<e5m2>() : f.template operator()<e4m3>();
}

template <class T, class Source>
void start(const Request& r, const Args<T>& a, const Tensor& maxima, cudaStream_t stream) {
  if constexpr (std::is_same_v<Source, Stored<T>>)
    if (a.whole && in_lines(r))
      return with_format(r.as_is, [&]<class A>() {
        if constexpr (eight_bits<A>)
          launch(stream, quantise_lines<T, A>, {grid_of(a.rows), dim3(line_threads), std::size_t(a.columns) * sizeof(T)}, a);
      });
  const Grid grid{grid_of(std::int64_t(a.tiles) * ceil_div(std::int64_t(a.rows), scale_block)), dim3(threads)};
  if (maxima) {
    cuda(cudaMemsetAsync(maxima.data, 0, maxima.bytes(), stream));
    launch(stream, quantise_measure<T, Source>, grid, a);
  }
  with_format(r.as_is, [&]<class A>() {
    with_format(r.transposed, [&]<class B>() {
      if constexpr (eight_bits<A> || eight_bits<B>) launch(stream, quantise_tile<T, A, B, Source>, grid, a);
    });
  });
}

bool in_pieces(const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0; }

}  // namespace

void quantise_cuda(const Request& r, const Tensor& maxima, Context& ctx) {
  const std::int64_t rows = r.rows(), columns = r.columns();
  check(rows < 1ll << 31 && columns < 1ll << 31, Code::unsupported, "quantise: {} x {}; a card takes sides below 2^31", rows, columns);
  if (rows == 0 || columns == 0) return;
  const bool whole = rows % 16 == 0 && columns % 16 == 0 && in_pieces(r.x) && in_pieces(r.dact) && in_pieces(r.weight) &&
                     in_pieces(r.as_is.values) && in_pieces(r.transposed.values);
  check(whole || r.of == Of::stored, Code::unsupported, "quantise: what is quantised as it is made must be aligned to 16 bytes");
  const CardMaxima reach = maxima_on_card(r);
  auto* const first = maxima.as<std::uint32_t>();
  const auto stream = cuda_stream(ctx.stream);
  const auto args = [&]<class T>(std::int64_t tiles) {
    return Args<T>{.x = r.x.as<T>(),
                   .dact = r.dact.as<T>(),
                   .weight = r.weight.as<float>(),
                   .rstd = r.rstd.as<float>(),
                   .rows = int(rows),
                   .columns = int(columns),
                   .tiles = unsigned(tiles),
                   .units = unsigned(ctx.device.units),
                   .whole = whole,
                   .backwards = reach.count() > 0,
                   .as_is = copy_of(r.as_is),
                   .transposed = copy_of(r.transposed),
                   .all = reach.all ? first : nullptr,
                   .of_rows = reach.rows ? first + reach.all : nullptr,
                   .of_columns = reach.columns ? first + reach.all + reach.rows : nullptr,
                   .counts = reinterpret_cast<unsigned long long*>(r.counts.data)};
  };
  const std::int64_t tiles = ceil_div(columns, scale_block);
  switch (r.of) {
    case Of::stored:
      return with_float(r.x.dtype, [&]<class T>() { start<T, Stored<T>>(r, args.template operator()<T>(tiles), maxima, stream); });
    case Of::swiglu: return start<bf16, SwigluProduct<bf16>>(r, args.template operator()<bf16>(tiles), maxima, stream);
    case Of::rmsnorm: return start<bf16, Normed<bf16>>(r, args.template operator()<bf16>(tiles), maxima, stream);
    case Of::swiglu_gradient: return start<bf16, SwigluGradient<bf16>>(r, args.template operator()<bf16>(tiles / 2), maxima, stream);
  }
}

}  // namespace headroom::quantise
