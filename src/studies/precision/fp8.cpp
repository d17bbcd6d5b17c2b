#include "studies/precision/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/convert.h"
#include "base/formats.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "base/threads.h"
#include "engine/data/data.h"
#include "engine/data/feed_random.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "gpu/architecture.h"
#include "gpu/place.h"
#include "memory/block.h"
#include "ops/matmul/reference.h"
#include "ops/quantise/quantise.h"
#include "studies/precision/arithmetic.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {

namespace {

using engine::Formats;
using engine::Multiplied;
using engine::Scales;
using matmul::Adder;
using matmul::Sums;

constexpr std::int64_t shown = 64;  // rows and columns of a product whose error is taken

// The first lines of an operand, with scales of the whole.
Scaled first_lines(const Scaled& x, std::int64_t lines, Context& ctx) {
  const std::int64_t k = x.values.shape[1];
  const Tensor values(x.values.data, x.values.dtype, {lines, k});
  if (!x.scale) return values;
  const Tensor scale = ctx.arena.make("scales", DType::f32, scale_shape(x.kind, lines, k));
  Scaled y{values, scale, x.kind};
  if (x.kind == ScaleKind::one || x.kind == ScaleKind::row) {
    std::copy_n(x.scale.as<float>(), scale.count(), scale.as<float>());
    return y;
  }
  for (std::int64_t i = 0; i < scale.shape[0]; ++i)
    std::copy_n(x.scale.as<float>() + i * x.scale.stride[0], scale.shape[1], scale.as<float>() + i * scale.shape[1]);
  return y;
}

double decibels(std::span<const double> exact, const float* got) {  // over finite values: an infinity has no error
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(exact[i])) continue;
    const double error = double(got[i]) - exact[i];
    signal += exact[i] * exact[i];
    noise += error * error;
  }
  if (signal == 0 && noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

std::size_t room_of(std::int64_t m, std::int64_t n, std::int64_t k, int workers) {
  return std::size_t(2 * (m + n) * (k + 512) + 4 * k * 16 + 64 * (m + n + k)) + std::size_t(shown * shown * 4 * 8) +
         std::size_t(workers) * 6 * 256 * 256 * 4 + (4u << 20);
}

struct Sides {  // the formats of a product's operands
  ScaledFormat a, b;
};
Sides sides_of(const Formats& f, Multiplied which) {
  switch (which) {
    case Multiplied::forward: return {f.activation, f.weight};
    case Multiplied::dx: return {f.gradient, f.weight};
    case Multiplied::dw: return {f.gradient_transposed, f.activation};
  }
  return {};
}

std::string words_of(ScaledFormat f) { return fmt::format("{} {}", f.dtype == DType::e4m3 ? "e4m3" : name_of(f.dtype), name_of(f.scale)); }

Value or_exact(double db) { return std::isfinite(db) ? Value(db) : Value(std::string("exact")); }

Fp8Row row_of(const ProductError& e, Scales scales, const Sides& sides) {
  Fp8Row r;
  r.scales = scales;
  r.a = words_of(sides.a);
  r.b = words_of(sides.b);
  r.snr_db = or_exact(e.snr_db), r.worst_row_db = or_exact(e.worst_row_db), r.hopper_db = or_exact(e.hopper_db),
  r.two_level_db = or_exact(e.two_level_db);
  r.clipped = e.clipped;
  r.flushed_a = e.flushed_a;
  r.flushed_b = e.flushed_b;
  return r;
}

// Every product of the step, in every format asked for, as it comes by.
class EveryProduct : public engine::ProductWatch {
 public:
  EveryProduct(const Fp8Settings& s, Context& ctx) : s_(s), ctx_(ctx) {}
  std::vector<Fp8Row> rows;

  void product(const engine::ProductSeen& p) override {
    stop_if_interrupted();
    const std::int64_t m = p.a.shape[0], k = p.a.shape[1], n = p.b.shape[1];
    std::vector<float> a = plain(p.a), b = plain(matmul::transposed(p.b));
    for (const Scales scales : s_.scales) {
      const Sides sides = sides_of(engine::formats_of({DType::e4m3}, scales), p.which);
      Fp8Row r =
          row_of(product_error({a.data(), DType::f32, {m, k}}, {b.data(), DType::f32, {n, k}}, sides.a, sides.b, ctx_), scales, sides);
      r.layer = p.name.layer;
      r.product = p.name.text;
      r.pass = p.which;
      r.k = k;
      rows.push_back(std::move(r));
    }
  }

 private:
  static std::vector<float> plain(const Tensor& x) {
    std::vector<float> all;
    all.reserve(std::size_t(x.shape.count()));
    for (std::int64_t i = 0; i < x.shape[0]; ++i)
      for (std::int64_t j = 0; j < x.shape[1]; ++j) all.push_back(float(load_element(x.data, x.dtype, i * x.stride[0] + j * x.stride[1])));
    return all;
  }
  const Fp8Settings& s_;
  Context& ctx_;
};

std::vector<Fp8Row> rows_of_a_step(const Fp8Settings& s) {
  check(s.width % s.heads == 0 && s.width / s.heads % 2 == 0, Code::bad_argument,
        "--width {} must be {} heads of an even dimension; choose others", s.width, s.heads);
  const engine::Decoder model = engine::decoder_of({.name = "fp8",
                                                    .vocab = 256,
                                                    .width = s.width,
                                                    .layers = s.layers,
                                                    .heads = s.heads,
                                                    .kv_heads = s.heads,
                                                    .head_dim = s.width / s.heads,
                                                    .ffn = 4 * s.width});
  const engine::Keeping norms_again{engine::Keep::no_cheap};  // so that backward has them at hand
  const engine::Recipe r(model, s.batch, s.len, {DType::bf16}, norms_again);
  const Device cpu;
  Place place(cpu, s.threads);
  const std::size_t needed = engine::forecast_peak(r, cpu, place.threads().count());
  const PlaceMemory memory = place.take(needed);
  Arena arena(memory.data(), needed);
  Context ctx{arena, cpu, &place.threads()};
  engine::Training t(r, ctx);
  t.initialise(s.seed);
  std::optional<engine::Data> data;
  if (!s.text.empty()) data.emplace(s.text, engine::TokenFormat::text, 256, 0.0);
  engine::Optimizer::Hyper hyper = r.hyper();
  hyper.lr = 1e-3;
  for (std::int64_t step = 0; step <= s.steps; ++step) {
    stop_if_interrupted();
    data ? data->draw(t, s.seed, step, 0) : engine::feed_random(t, s.seed + std::uint64_t(step));
    if (step < s.steps) t.step(hyper);
  }
  EveryProduct every(s, ctx);
  t.watch(&every);
  t.backward();
  return std::move(every.rows);
}

// Data on which formats differ: what each shows is its name.
struct Case {
  const char* name;
  std::int64_t k;
  Multiplied which;
  float (*a)(const Random&, std::int64_t line, std::int64_t at);
  float (*b)(const Random&, std::int64_t line, std::int64_t at);
};
std::uint64_t number(std::int64_t line, std::int64_t at) { return std::uint64_t(line) << 32 | std::uint64_t(at); }
float normal(const Random& r, std::int64_t line, std::int64_t at) { return r.normal(number(line, at)); }
float positive(const Random& r, std::int64_t line, std::int64_t at) { return std::fabs(normal(r, line, at)); }
float outlier_channels(const Random& r, std::int64_t line, std::int64_t at) { return normal(r, line, at) * (at % 64 == 5 ? 100.0f : 1.0f); }
float outlier_rows(const Random& r, std::int64_t line, std::int64_t at) { return normal(r, line, at) * (line % 64 == 5 ? 1000.0f : 1.0f); }
float wide_range(const Random& r, std::int64_t line, std::int64_t at) {  // 30 binades, as gradients have
  return normal(r, line, at) * std::ldexp(1.0f, -int(r.stream(9).below(number(line, at), 30)));
}
float tiny(const Random& r, std::int64_t line, std::int64_t at) { return normal(r, line, at) * 1e-38f; }
float huge(const Random& r, std::int64_t line, std::int64_t at) { return normal(r, line, at) * 1e30f; }
float one_infinity(const Random& r, std::int64_t line, std::int64_t at) {
  return line == 7 && at == 7 ? std::numeric_limits<float>::infinity() : normal(r, line, at);
}
float zeros(const Random&, std::int64_t, std::int64_t) { return 0; }

constexpr Case hurting[] = {
    {"normal numbers", 1024, Multiplied::forward, normal, normal},
    {"outlier channels, 100 x", 1024, Multiplied::forward, outlier_channels, normal},
    {"outlier rows, 1000 x", 1024, Multiplied::forward, outlier_rows, normal},
    {"long k, sums that grow", 16384, Multiplied::forward, positive, positive},
    {"long k, sums that cancel", 16384, Multiplied::dw, normal, normal},
    {"gradients over 30 binades", 1024, Multiplied::dx, wide_range, normal},
    {"tiny gradients, 1e-38", 1024, Multiplied::dx, tiny, normal},
    {"huge gradients, 1e30", 1024, Multiplied::dx, huge, normal},
    {"one infinity", 1024, Multiplied::dx, one_infinity, normal},
    {"zeros", 1024, Multiplied::dx, zeros, normal},
};

std::vector<Fp8CaseRow> rows_that_hurt(const Fp8Settings& s, Context& ctx) {
  std::vector<Fp8CaseRow> rows;
  for (const Case& c : hurting) {
    constexpr std::int64_t lines = 128;
    std::vector<float> a, b;
    for (std::int64_t i = 0; i < lines; ++i)
      for (std::int64_t j = 0; j < c.k; ++j)
        a.push_back(c.a(Random{s.seed}.stream(1), i, j)), b.push_back(c.b(Random{s.seed}.stream(2), i, j));
    for (const Scales scales : s.scales) {
      Sides sides = sides_of(engine::formats_of({DType::e4m3}, scales), c.which);
      const auto add = [&] {
        stop_if_interrupted();
        Fp8CaseRow r;
        r.data = c.name;
        r.k = c.k;
        r.error = row_of(product_error({a.data(), DType::f32, {lines, c.k}}, {b.data(), DType::f32, {lines, c.k}}, sides.a, sides.b, ctx),
                         scales, sides);
        rows.push_back(std::move(r));
      };
      add();
      if (c.which != Multiplied::dx) continue;
      sides.a.dtype = sides.a.dtype == DType::e4m3 ? DType::e5m2 : DType::e4m3;  // the gradient in the other format
      add();
    }
  }
  return rows;
}

// The worst and the median product of each pass, by scales.
std::vector<Fp8SummaryRow> summary_of(const std::vector<Fp8Row>& rows, const Fp8Settings& s) {
  std::vector<Fp8SummaryRow> all;
  for (const Scales scales : s.scales)
    for (const Multiplied which : {Multiplied::forward, Multiplied::dx, Multiplied::dw}) {
      std::vector<std::pair<double, const Fp8Row*>> order;
      Fp8SummaryRow r;
      r.scales = scales;
      r.pass = which;
      double hopper = std::numeric_limits<double>::infinity(), worst_row = hopper, flushed = 0;
      for (const Fp8Row& row : rows) {
        if (row.scales != scales || row.pass != which) continue;
        if (const double* db = std::get_if<double>(&row.snr_db)) order.emplace_back(*db, &row);
        if (const double* db = std::get_if<double>(&row.worst_row_db)) worst_row = std::min(worst_row, *db);
        if (const double* db = std::get_if<double>(&row.hopper_db)) hopper = std::min(hopper, *db);
        flushed = std::max({flushed, row.flushed_a, row.flushed_b});
        r.clipped += row.clipped;
      }
      if (order.empty()) continue;
      std::sort(order.begin(), order.end());
      r.least_db = order.front().first, r.median_db = order[order.size() / 2].first, r.worst_row_db = worst_row, r.least_hopper_db = hopper,
      r.most_flushed = flushed;
      r.where = fmt::format("block {} {}", order.front().second->layer, order.front().second->product);
      all.push_back(std::move(r));
    }
  return all;
}

template <class Does>
std::string cards_that(Does&& does) {
  std::vector<std::string> names;
  for (const Device& d : known_devices())
    if (architecture_of(d.sm).runs_cuda && does(d)) names.push_back(d.key);
  return names.empty() ? "none" : joined(names, ", ");
}
std::string cards_from(int sm) {
  return cards_that([&](const Device& d) { return d.sm >= sm; });
}

// Where all three products of a block's weight are multiplied in these formats.
std::string cards_with_steps_in(Scales scales) {
  return cards_that([f = engine::formats_of({DType::e4m3}, scales)](const Device& d) { return engine::products_in(f, d).ok; });
}

// SNR of a product whose operands went through a block format and back, along k, both in FP64 after that.
double block_format_db(std::string_view format, const Case& c, const Fp8Settings& s, Context& ctx) {
  constexpr std::int64_t lines = shown;
  const auto make = [&](auto value, std::uint64_t stream) {
    std::vector<float> x;
    for (std::int64_t i = 0; i < lines; ++i)
      for (std::int64_t j = 0; j < c.k; ++j) x.push_back(value(Random{s.seed}.stream(stream), i, j));
    return x;
  };
  std::vector<float> a = make(c.a, 1), b = make(c.b, 2);
  const auto exact =
      matmul::reference(Tensor(a.data(), DType::f32, {lines, c.k}), matmul::transposed(Tensor(b.data(), DType::f32, {lines, c.k})), ctx);
  for (auto* x : {&a, &b}) {
    std::vector<float> y(x->size());
    with_trip(format, largest_magnitude(x->data(), int(x->size())), [&](auto trip) {
      constexpr std::size_t block = decltype(trip)::block;
      for (std::size_t i = 0; i < y.size(); i += block) trip(&(*x)[i], &y[i], int(std::min(block, y.size() - i)));
    });
    *x = std::move(y);
  }
  const auto got =
      matmul::reference(Tensor(a.data(), DType::f32, {lines, c.k}), matmul::transposed(Tensor(b.data(), DType::f32, {lines, c.k})), ctx);
  const std::vector<float> values(got.value.begin(), got.value.end());
  return decibels(exact.value, values.data());
}

std::vector<SmallFormatRow> small_formats(const Fp8Settings& s, Context& ctx) {
  double weights = 0;  // in the blocks of the largest preset
  const engine::Decoder& model = engine::presets().back();
  for (const engine::ParamSpec& p : engine::param_table(model))
    if (p.multiplied && p.layer >= 0) weights += double(p.shape.count());
  const Case &even = hurting[0], &outliers = hurting[1];
  std::vector<SmallFormatRow> rows;
  const auto add = [&](std::string name, double bytes, double even_db, double outliers_db, std::string runs, int units_from_sm) {
    rows.push_back(
        {std::move(name), bytes, even_db, outliers_db, std::int64_t(bytes * weights), std::move(runs), cards_from(units_from_sm)});
  };
  add("bf16", 2, block_format_db("bf16", even, s, ctx), block_format_db("bf16", outliers, s, ctx), cards_from(80), 80);
  const auto ours = [&](const Case& c, Scales scales) {
    const Sides sides = sides_of(engine::formats_of({DType::e4m3}, scales), Multiplied::forward);
    std::vector<float> a, b;
    for (std::int64_t i = 0; i < shown; ++i)
      for (std::int64_t j = 0; j < c.k; ++j)
        a.push_back(c.a(Random{s.seed}.stream(1), i, j)), b.push_back(c.b(Random{s.seed}.stream(2), i, j));
    return product_error({a.data(), DType::f32, {shown, c.k}}, {b.data(), DType::f32, {shown, c.k}}, sides.a, sides.b, ctx).snr_db;
  };
  for (const Scales scales : {Scales::tensor, Scales::row, Scales::block})
    add(fmt::format("fp8, scales by {}", names_of<Scales>.of(scales)), 1 + (scales == Scales::block ? 4.0 / (128 * 128) : 0),
        ours(even, scales), ours(outliers, scales), cards_with_steps_in(scales), 89);
  for (const BlockFormat& f : block_formats)
    add(std::string(f.name), f.bytes_per_value(), block_format_db(f.name, even, s, ctx), block_format_db(f.name, outliers, s, ctx), "none",
        100);
  return rows;
}

}  // namespace

ProductError product_error(const Tensor& a, const Tensor& b, ScaledFormat of_a, ScaledFormat of_b, Context& outer) {
  const std::int64_t m = a.shape[0], n = b.shape[0], k = a.shape[1], rows = std::min(m, shown), columns = std::min(n, shown);
  const Block room(room_of(m, n, k, outer.workers()));
  Arena arena(room.data(), room.bytes());
  Context ctx{arena, outer.device, outer.threads};
  ProductError e;
  const auto quantised = [&](const Tensor& x, ScaledFormat f, double& flushed) {
    const Tensor counts = arena.make("counts", DType::i64, {quantise::count_size});
    std::fill_n(counts.as<std::int64_t>(), int(quantise::count_size), 0);
    const Scaled y = quantise::make("operand", f, x.shape[0], x.shape[1], ctx);
    quantise::quantise({.x = x, .as_is = y, .counts = counts}, ctx);
    e.clipped += counts.as<std::int64_t>()[quantise::clipped];
    flushed = double(counts.as<std::int64_t>()[quantise::flushed]) / double(x.count());
    return y;
  };
  const Scaled qa = first_lines(quantised(a, of_a, e.flushed_a), rows, ctx),
               qb = first_lines(quantised(b, of_b, e.flushed_b), columns, ctx);
  const auto exact = matmul::reference(first_lines(a, rows, ctx), matmul::transposed(first_lines(b, columns, ctx)), ctx);
  const Tensor c = arena.make("c", DType::f32, {rows, columns});
  const auto snr = [&](Sums sums, Adder adder) {
    matmul::multiply({.a = qa, .b = matmul::transposed(qb), .c = c, .sums = sums, .adder = adder}, ctx);
    return decibels(exact.value, c.as<float>());
  };
  const bool blocks = along_k(of_a.scale) || along_k(of_b.scale);
  e.snr_db = e.worst_row_db = snr(Sums::two_level, Adder::fp32);
  for (std::int64_t i = 0; i < rows; ++i)
    e.worst_row_db = std::min(e.worst_row_db, decibels(std::span(exact.value).subspan(std::size_t(i * columns), std::size_t(columns)),
                                                       c.as<float>() + i * columns));
  e.two_level_db = snr(Sums::two_level, Adder::hopper);
  e.hopper_db = blocks ? e.two_level_db : snr(Sums::whole, Adder::hopper);
  return e;
}

Record fp8_record(const Fp8Settings& s) {
  check(!s.scales.empty(), Code::bad_argument, "--scales: nothing to compare; choose from {}", joined(names_of<Scales>.all()));
  const Device cpu;
  Threads threads(s.threads);
  Arena none;
  Context ctx{none, cpu, &threads};
  const auto rows = rows_of_a_step(s);
  Record record{"fp8",
                fmt::format("Products in fp8 against FP64: {} blocks of width {}, {} tokens, after {} steps on {}", s.layers, s.width,
                            s.batch * s.len, s.steps, s.text.empty() ? "random tokens" : s.text),
                {}};
  record.add({table_of("summary", "By scales and pass: signal over error, in dB", summary_of(rows, s))});
  record.add({table_of("rows", "Every product of the step", rows)});
  record.add({table_of("hurts", "Data that hurts", rows_that_hurt(s, ctx))});
  record.add({table_of("attention", "Attention in fp8, a scale to a head: O, 32 rows of a head of 64", fp8_attention_rows(s.seed, ctx))});
  record.add({table_of(
      "formats", fmt::format("Smaller formats: a product's error, and bytes of the blocks' weights of {}", engine::presets().back().name),
      small_formats(s, ctx))});
  record.add({Note{
      "snr_db: the exact product's squares over the error's, in dB; 6 dB are one bit. Exact is FP64 of the operands before they were "
      "quantised, over the first 64 rows and columns; worst_row_db is of the row (a token, or a weight's output) where it is least. FP32 "
      "adds. hopper_db: as Hopper's matrix units are published to add (13 places "
      "below the largest term), one level of sums; two_level_db: the same over 128 of k, FP32 above. With blocks there are always two."}});
  record.add(
      {Note{"flushed: became 0, share of the operand's numbers. Attention: inputs_db is exact attention of Q, K and V as stored in E4M3, "
            "kernel_db what "
            "flash_sm90_fp8's arithmetic adds to that (emulated), fp8_db both. step_runs_on: the cards on which a step runs in the format; "
            "units_of: "
            "all cards whose matrix units multiply it. fp4 (MXFP4, NVFP4) is a format and a forecast here; no step runs in it."}});
  return record;
}

}  // namespace headroom::studies::precision
