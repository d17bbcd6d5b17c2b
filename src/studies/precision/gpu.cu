#include "studies/precision/gpu.h"

#include <algorithm>

#include "base/divide.h"
#include "gpu/launch.cuh"
#include "studies/precision/arithmetic.h"

namespace headroom::studies::precision {

namespace {

template <class Sum>
struct SumArgs {
  Sum sum;
  float x;
  std::int64_t count;
  float* result;
};

// precision_sum — one thread adds one number after the other, as the CPU does.
template <class Sum>
__global__ void precision_sum(const __grid_constant__ SumArgs<Sum> a) {
  *a.result = total(a.sum, a.x, a.count);
}

struct NormArgs {
  const float* x;
  float* y;
  std::int64_t width;
  bool centred;
  double eps;
};

// precision_norm — one thread, one running sum.
template <class T, class S>
__global__ void precision_norm(const __grid_constant__ NormArgs a) {
  const Statistics<S> s(a.x, a.width, a.centred, a.eps);
  for (std::int64_t i = 0; i < a.width; ++i) a.y[i] = rounded<T>(s.output(a.x[i]));
}

template <class Trip>
struct TripArgs {
  Trip trip;
  const float* x;
  float* y;
  std::int64_t count;
};

// precision_round_trip — a thread per block of values.
template <class Trip>
__global__ void precision_round_trip(const __grid_constant__ TripArgs<Trip> a) {
  const std::int64_t first = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * Trip::block;
  if (first < a.count) a.trip(a.x + first, a.y + first, int(a.count - first < Trip::block ? a.count - first : Trip::block));
}

// work(x there, y there), and y back here.
template <class Work>
std::vector<float> there_and_back(const Place& place, const std::vector<float>& x, Work&& work) {
  const PlaceMemory in = place.take(x.size() * 4), out = place.take(x.size() * 4);
  place.copy_in(in.data(), x.data(), x.size() * 4);
  work(static_cast<const float*>(in.data()), static_cast<float*>(out.data()));
  std::vector<float> y(x.size());
  place.copy_out(y.data(), out.data(), y.size() * 4);
  return y;
}

}  // namespace

float sum_on(const Place& place, const SumAsked& s) {
  const PlaceMemory result = place.take(4);
  with_format(s.dtype, [&]<class T>() {
    with_method<T>(s.method, s.block, s.random, [&](auto sum) {
      using Sum = decltype(sum);
      launch(cuda_stream(place.stream()), precision_sum<Sum>, {dim3(1), dim3(1)},
             SumArgs<Sum>{sum, s.addend, s.count, static_cast<float*>(result.data())});
    });
  });
  float x = 0;
  place.copy_out(&x, result.data(), 4);
  return x;
}

std::vector<float> normalised_on(const Place& place, const NormAsked& n, const std::vector<float>& x) {
  return there_and_back(place, x, [&](const float* in, float* out) {
    const NormArgs args{in, out, std::int64_t(x.size()), n.centred, n.eps};
    with_format(n.dtype, [&]<class T>() {
      launch(cuda_stream(place.stream()), n.statistics == n.dtype ? precision_norm<T, T> : precision_norm<T, float>, {dim3(1), dim3(1)},
             args);
    });
  });
}

std::vector<float> round_trip_on(const Place& place, const std::string& format, const std::vector<float>& x) {
  return there_and_back(place, x, [&](const float* in, float* out) {
    with_trip(format, largest_magnitude(x.data(), int(x.size())), [&](auto trip) {
      using Trip = decltype(trip);
      const std::int64_t count = std::int64_t(x.size()), per_block = 256 * Trip::block;
      launch(cuda_stream(place.stream()), precision_round_trip<Trip>, {dim3(unsigned(ceil_div(count, per_block))), dim3(256)},
             TripArgs<Trip>{trip, in, out, count});
    });
  });
}

}  // namespace headroom::studies::precision
