// Attention in fp8 on any device, from numbers of 16 or 32 bits to O: made by to_fp8, run by a variant into poisoned memory with guard bands, held to FP64.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "gpu/place.h"
#include "ops/attention/fp8/fp8.h"
#include "ops/attention/reference.h"

namespace headroom::attention::fp8_cases {

struct Fp8Case {
  Problem problem;
  float size = 1;            // factor of normal Q and K; V is normal
  DType from = DType::bf16;  // what is quantised
  bool padded = false;       // rows lie apart
  std::uint64_t seed = 1;
};

inline Problem fp8_problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim,
                           Mask mask = {}, std::int64_t batch = 2) {
  Problem p;
  p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim, p.mask = mask;
  p.precision = {DType::e4m3};
  return p;
}

inline std::string in_words(const Fp8Case& c) {
  const Problem& p = c.problem;
  return fmt::format("batch {} heads {}/{} len {}x{} dim {}/{} {} size {} from {}{}", p.batch, p.heads, p.kv_heads, p.len_q, p.len_k,
                     p.head_dim, p.value_dim(), name_of(p.mask), c.size, name_of(c.from), c.padded ? " padded" : "");
}

struct Fp8Inputs {  // on the host
  std::vector<float> q, k, v;
};
inline Fp8Inputs inputs_of(const Fp8Case& c) {
  const Problem p = in_16_bits(c.problem);
  const auto normal = [&](const Shape& shape, std::uint64_t stream, float size) {
    std::vector<float> x(std::size_t(shape.count()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = size * Random{c.seed}.stream(stream).normal(i);
    return x;
  };
  return {normal(p.q_shape(), 1, c.size), normal(p.k_shape(), 2, c.size), normal(p.v_shape(), 3, 1)};
}

struct Fp8Result {  // on the host
  std::vector<std::uint8_t> q8, k8, v8;
  std::vector<float> q_scale, k_scale, v_scale, lse;
  std::vector<std::uint16_t> o;
  bool guards = true;

  std::vector<double> values() const {
    std::vector<double> all;
    for (const std::uint16_t bits : o) all.push_back(widen(bf16{bits}));
    return all;
  }
};

inline Fp8Result run_fp8(const Fp8Case& c, const Fp8Inputs& in, const Variant& variant, Place& place, const Device& device) {
  const Problem& p = c.problem;
  constexpr std::int64_t gap = 24;  // elements between rows, where they lie apart
  const std::size_t bytes = (in.q.size() + in.k.size() + in.v.size()) * 16 + std::size_t(p.v_shape().count()) +
                            std::size_t(p.batch * (p.len_q * p.heads + p.len_k * p.kv_heads)) * 64 * 4 + (1u << 20);
  const PlaceMemory memory = place.take(bytes);
  const std::vector<char> poison(bytes, char(0xff));
  place.copy_in(memory.data(), poison.data(), bytes);
  Arena arena(memory.data(), bytes);
  Context ctx{.arena = arena, .device = device, .threads = place.on_gpu() ? nullptr : &place.threads(), .stream = place.stream()};
  const auto put = [&](const char* name, const std::vector<float>& x, const Shape& shape) {
    const std::int64_t row = shape[2] * shape[3] + (c.padded ? gap : 0);
    std::vector<std::byte> stored(std::size_t(shape[0] * shape[1] * row) * size_of(c.from), std::byte{0xff});
    with_float(c.from, [&]<class T>() {
      for (std::int64_t i = 0; i < std::int64_t(x.size()); ++i)
        reinterpret_cast<T*>(stored.data())[i / (shape[2] * shape[3]) * row + i % (shape[2] * shape[3])] = narrow<T>(x[std::size_t(i)]);
    });
    Tensor t = arena.make(name, c.from, {shape[0], shape[1], row, 1});
    place.copy_in(t.data, stored.data(), stored.size());
    t = Tensor(t.data, c.from, shape);
    t.stride = {shape[1] * row, row, shape[3], 1};
    return t;
  };
  const Problem wide = in_16_bits(p);
  ToFp8 made{.q = put("q", in.q, wide.q_shape()),
             .k = put("k", in.k, wide.k_shape()),
             .v = put("v", in.v, wide.v_shape()),
             .q8 = arena.make("q8", DType::e4m3, p.q_shape()),
             .k8 = arena.make("k8", DType::e4m3, p.k_shape()),
             .v8 = arena.make("v8", DType::e4m3, p.v_shape()),
             .q_scale = arena.make("q_scale", DType::f32, {p.batch, p.heads}),
             .k_scale = arena.make("k_scale", DType::f32, {p.batch, p.kv_heads}),
             .v_scale = arena.make("v_scale", DType::f32, {p.batch, p.kv_heads})};
  to_fp8(p, made, ctx);
  const Shape o_shape = p.o_shape();
  const std::int64_t o_row = o_shape[2] * o_shape[3] + (c.padded ? gap : 0), o_room = o_shape[0] * o_shape[1] * o_row;
  const Tensor o_memory = arena.make("o", DType::bf16, {o_room + 256});
  Tensor o(o_memory.as<bf16>() + 128, DType::bf16, o_shape);
  o.stride = {o_shape[1] * o_row, o_row, o_shape[3], 1};
  const Tensor lse_memory = arena.make("lse", DType::f32, {p.lse_shape().count() + 64});
  const Tensor lse(lse_memory.as<float>() + 32, DType::f32, p.lse_shape());
  for (const Tensor* t : {&o_memory, &lse_memory}) place.copy_in(t->data, poison.data(), t->bytes());  // where to_fp8 had its scratch
  const Extras with{.q_scale = made.q_scale, .k_scale = made.k_scale, .v_scale = made.v_scale};
  attention::forward(variant, p, {.q = made.q8, .k = made.k8, .v = made.v8, .o = o, .lse = lse, .saved = {}, .with = with}, ctx);

  Fp8Result r;
  const auto back = [&](auto& to, const Tensor& t) {
    to.resize(std::size_t(t.count()));
    place.copy_out(to.data(), t.data, t.bytes());
  };
  back(r.q8, made.q8), back(r.k8, made.k8), back(r.v8, made.v8);
  back(r.q_scale, made.q_scale), back(r.k_scale, made.k_scale), back(r.v_scale, made.v_scale);
  std::vector<std::uint16_t> all_o;
  std::vector<float> all_lse;
  back(all_o, o_memory), back(all_lse, lse_memory);
  for (std::int64_t i = 0; i < std::int64_t(all_o.size()); ++i) {
    const std::int64_t at = i - 128, within = at % o_row;
    if (at >= 0 && at < o_room && within < o_shape[2] * o_shape[3])
      r.o.push_back(all_o[std::size_t(i)]);
    else
      r.guards = r.guards && all_o[std::size_t(i)] == 0xffff;
  }
  for (std::size_t i = 0; i < all_lse.size(); ++i) {
    if (i >= 32 && i < all_lse.size() - 32)
      r.lse.push_back(all_lse[i]);
    else
      r.guards = r.guards && std::isnan(all_lse[i]);
  }
  return r;
}

inline Reference exact_of(const Fp8Case& c, Fp8Result& r) {  // FP64, of the numbers as they are stored
  const Problem& p = c.problem;
  const Extras with{.q_scale = Tensor(r.q_scale.data(), DType::f32, {p.batch, p.heads}),
                    .k_scale = Tensor(r.k_scale.data(), DType::f32, {p.batch, p.kv_heads}),
                    .v_scale = Tensor(r.v_scale.data(), DType::f32, {p.batch, p.kv_heads})};
  return reference(p, Tensor(r.q8.data(), DType::e4m3, p.q_shape()), Tensor(r.k8.data(), DType::e4m3, p.k_shape()),
                   Tensor(r.v8.data(), DType::e4m3, p.v_shape()), {}, {}, with);
}

inline double rms_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum / double(std::max<std::size_t>(x.size(), 1)));
}

// Numbers held to a bound, in one line: how many are outside it, the first of them, and the one farthest from what it should be. An infinity must be equal.
struct Worst {
  const char* name;
  std::size_t seen = 0, outside = 0, first = 0, farthest = 0;
  double by = 0, bound = 0, got = 0, exact = 0;

  void see(std::size_t i, double x, double should, double allowed) {
    const double off = x == should ? 0 : std::abs(x - should), known = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
    ++seen;
    bound = allowed;
    if (known > allowed && outside++ == 0) first = i;
    if (known > by) by = known, farthest = i, got = x, exact = should;
  }
  bool fine() const { return outside == 0; }
  std::string in_words() const {
    return fmt::format("{} of {} numbers of {} are off by more than {:.3g}, the first is {}; number {} is {:.6g}, not {:.6g}", outside,
                       seen, name, bound, first, farthest, got, exact);
  }
};

// What rounding explains. O: a weight is rounded to 3 bits of mantissa, at most 2⁻⁴ of it, so no number is off by more than that of the largest |v|, or of
// what V has in a head; and roundings do not agree with each other, so all of O is off by less than 4 % of its size. LSE: scores as Hopper adds them.
inline void judge_fp8(const Fp8Case& c, Fp8Result& r) {
  const Problem& p = c.problem;
  const Reference exact = exact_of(c, r);
  const std::vector<double> got = r.values();
  ASSERT_EQ(got.size(), exact.o.size());
  double top = 0, largest_score = 1;
  for (std::size_t i = 0; i < r.v8.size(); ++i) {
    const std::size_t head = i / std::size_t(p.v_shape()[2] * p.v_shape()[3]);
    top = std::max(top, std::abs(double(widen(e4m3{r.v8[i]})) * double(r.v_scale[head])));
  }
  std::vector<double> error(got.size());
  Worst o{"o"}, lse{"lse"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    error[i] = got[i] - exact.o[i];
    o.see(i, got[i], exact.o[i], 0x1.2p-4 * top);
  }
  EXPECT_TRUE(o.fine()) << o.in_words() << ", " << in_words(c);
  EXPECT_LE(rms_of(error), 0.04 * rms_of(exact.o)) << in_words(c);
  for (const double one : exact.lse)
    if (std::isfinite(one)) largest_score = std::max(largest_score, std::abs(one));
  for (std::size_t i = 0; i < r.lse.size(); ++i) lse.see(i, double(r.lse[i]), exact.lse[i], 0x1p-10 * largest_score);
  EXPECT_TRUE(lse.fine()) << lse.in_words() << ", " << in_words(c);
  EXPECT_TRUE(r.guards) << "a guard band was written: " << in_words(c);
}

// What every device is asked; `dims` are what it serves.
inline std::vector<Fp8Case> every_fp8_case(std::vector<std::int64_t> dims) {
  std::vector<Fp8Case> all;
  std::uint64_t seed = 1;
  const auto add = [&](Fp8Case c) {
    c.seed = seed++;
    all.push_back(c);
  };
  for (const std::int64_t dim : dims)
    for (const Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(20), Mask::sliding(9, Align::top_left, 30)})
      add({.problem = fp8_problem(4, 2, 45, 133, dim, mask, 1)});
  const std::int64_t dim = dims.front();
  for (const auto& [len_q, len_k] : {std::pair{1, 1}, {1, 200}, {5, 17}, {130, 40}, {97, 97}, {64, 96}, {65, 193}})
    add({.problem = fp8_problem(2, 1, len_q, len_k, dim, Mask::causal())});
  add({.problem = fp8_problem(3, 3, 40, 50, dim), .size = 6});  // scores of ±100 and more
  add({.problem = fp8_problem(2, 2, 40, 50, dim), .size = 1e-3f, .from = DType::f32});
  add({.problem = fp8_problem(2, 1, 33, 70, dim, Mask::causal()), .from = DType::f16, .padded = true});
  Problem values_of_their_own = fp8_problem(2, 1, 50, 60, 64);
  values_of_their_own.dim_v = 32;
  add({.problem = values_of_their_own});
  Problem scaled = fp8_problem(1, 1, 50, 60, dim);
  scaled.scale = 0.7f;
  add({.problem = scaled});
  return all;
}

}  // namespace headroom::attention::fp8_cases
