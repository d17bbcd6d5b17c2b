#include "engine/expected.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "engine/decoder.h"
#include "engine/forecast.h"

namespace headroom::engine {

namespace {

// What a step's time is the sum of: so many milliseconds of roofline, or so many ops, times a field of Efficiency. `near` and `give` say
// where that field is expected before anything is measured: steps move it as far as they speak of it.
struct Term {
  double Efficiency::*factor;
  double near, give;
};
enum At : std::size_t {
  product,
  gradient_product,
  attention_64,
  attention_64_backward,
  attention_128,
  attention_128_backward,
  elementwise,
  loss,
  update,
  forward_op,
  backward_op
};
constexpr std::array<Term, 11> terms{{{&Efficiency::product, 1.1, 0.5},
                                      {&Efficiency::gradient_product, 1.2, 0.5},
                                      {&Efficiency::attention_64, 1.2, 1},
                                      {&Efficiency::attention_64_backward, 1.2, 1},
                                      {&Efficiency::attention_128, 1.2, 1},
                                      {&Efficiency::attention_128_backward, 1.2, 1},
                                      {&Efficiency::elementwise, 1, 1},
                                      {&Efficiency::loss, 1, 3},
                                      {&Efficiency::update, 1, 0.5},
                                      {&Efficiency::forward_op_ms, 0, 0.02},
                                      {&Efficiency::backward_op_ms, 0, 0.02}}};
constexpr double noise = 0.03;  // of a step's time: what the terms cannot say of it
using Parts = std::array<double, terms.size()>;

bool is_gradient_product(std::string_view op) { return op == "product_update" || op.ends_with(".dw") || op.ends_with(".dx"); }

At kind_of(std::string_view op, std::int64_t head_dim) {
  const bool backward = op.ends_with(".backward"), pass = backward || op.ends_with(".forward");
  if (op.starts_with("attention.") && pass)
    return head_dim <= 64 ? backward ? attention_64_backward : attention_64 : backward ? attention_128_backward : attention_128;
  if (op.starts_with("adamw")) return update;
  if (op.starts_with("cross_entropy")) return loss;
  if (is_gradient_product(op)) return gradient_product;
  return op == "head" || op.starts_with("attention.") || (op.starts_with("ffn.") && !pass) ? product : elementwise;
}

Parts parts_of(const Recipe& r, const Walk& walk, const Ceilings& ceilings) {
  Parts p{};
  for (const OpCall& s : walk.steps) {
    if (s.cost.link_bytes > 0) continue;
    const std::string_view op = s.op.text;
    p[kind_of(op, r.model.head_dim)] += s.times * roofline_ms(s, r.precision, ceilings);
    p[is_gradient_product(op) || op.ends_with(".backward") ? backward_op : forward_op] += s.times;
  }
  return p;
}

double time_of(const Parts& parts, const Efficiency& e) {
  double ms = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) ms += parts[i] * e.*terms[i].factor;
  return ms;
}

struct Sums {  // the normal equations of a least-squares fit
  std::array<Parts, terms.size()> a{};
  Parts b{};
  void add(const Parts& x, double y, double weight) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      b[i] += weight * x[i] * y;
      for (std::size_t k = 0; k < x.size(); ++k) a[i][k] += weight * x[i] * x[k];
    }
  }
  // By Gauss and Jordan: what is expected of every term keeps the matrix positive. Terms not in `free` are 0.
  Parts solved(std::array<bool, terms.size()> free) const {
    auto m = a;
    Parts x = b;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!free[i]) continue;
      const double pivot = m[i][i];
      for (double& v : m[i]) v /= pivot;
      x[i] /= pivot;
      for (std::size_t k = 0; k < x.size(); ++k) {
        if (k == i || !free[k]) continue;
        const double times = m[k][i];
        for (std::size_t c = 0; c < x.size(); ++c) m[k][c] -= times * m[i][c];
        x[k] -= times * x[i];
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!free[i]) x[i] = 0;
    return x;
  }
};

struct Point {
  const ModelConfig* model;
  Parts parts;  // of a millisecond that was measured
  double ms;
};

std::vector<Point> points_of(std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers) {
  std::vector<Point> points;
  for (const StepMeasured& s : steps) {
    Point p{&s.recipe.model, parts_of(s.recipe, forecast(s.recipe, device, workers).walk, ceilings), s.ms};
    for (double& part : p.parts) part /= s.ms;
    points.push_back(p);
  }
  return points;
}

// Nothing takes less than no time: a term that the fit would give that is taken out, and the others are fitted again.
Parts least_squares(std::span<const Point* const> points, std::span<const double> weights) {
  Sums sums;
  for (std::size_t i = 0; i < points.size(); ++i) sums.add(points[i]->parts, 1, weights[i] / (noise * noise));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Parts one{};
    one[i] = 1;
    sums.add(one, terms[i].near, 1 / (terms[i].give * terms[i].give));
  }
  std::array<bool, terms.size()> free;
  free.fill(true);
  Parts x = sums.solved(free);
  for (auto least = std::min_element(x.begin(), x.end()); *least < 0; least = std::min_element(x.begin(), x.end())) {
    free[std::size_t(least - x.begin())] = false;
    x = sums.solved(free);
  }
  return x;
}

// The steps that a fit misses most weigh more in the next: an interval is as wide as the largest error, not as the mean one.
Efficiency fit(Precision precision, std::span<const Point> all, const ModelConfig* without = nullptr) {
  constexpr int rounds = 60;
  std::vector<const Point*> points;
  for (const Point& p : all)
    if (!without || !same_model(*p.model, *without)) points.push_back(&p);
  std::vector<double> weights(points.size(), 1), error(points.size());
  Efficiency e{.precision = precision};
  for (int round = 0; round < rounds; ++round) {
    const Parts x = least_squares(points, weights);
    for (std::size_t i = 0; i < terms.size(); ++i) e.*terms[i].factor = x[i];
    double mean = 0, sum = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      error[i] = std::abs(time_of(points[i]->parts, e) - 1);
      mean += error[i] / double(points.size());
    }
    if (mean < 1e-6) break;  // every step is what the terms say
    for (std::size_t i = 0; i < points.size(); ++i) sum += weights[i] *= std::pow(error[i] / mean + 0.3, 0.15);
    for (double& w : weights) w *= double(points.size()) / sum;
  }
  return e;
}

}  // namespace

std::optional<Expected> expected_time(const Recipe& r, const Walk& walk, const LinkTime& link, const Device& device) {
  if (!device.efficiencies || r.ranks.count > 2 || r.ranks.split_tokens || r.host() > 0 || r.model.counted ||
      !r.attention.starts_with("flash") || !computes_as_llama(decoder_of(r.model)))
    return {};
  for (const Efficiency& e : device.efficiencies->by_precision) {
    if (!(e.precision == r.precision) || (r.ranks.count > 1 && e.link == 0)) continue;
    const double ms = link.exposed_ms + e.link * link.ms + time_of(parts_of(r, walk, device.efficiencies->ceilings), e);
    return Expected{ms, ms / e.within, ms * e.within};
  }
  return {};
}

Efficiency fitted(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers) {
  return fit(precision, points_of(steps, ceilings, device, workers));
}

std::vector<double> foretold_by_others(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings,
                                       const Device& device, int workers) {
  const auto points = points_of(steps, ceilings, device, workers);
  std::vector<double> ms;
  for (const Point& p : points) ms.push_back(p.ms * time_of(p.parts, fit(precision, points, p.model)));
  return ms;
}

}  // namespace headroom::engine
