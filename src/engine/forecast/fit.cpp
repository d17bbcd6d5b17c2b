#include "engine/forecast/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/forecast/at_ceilings.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/hopper.h"
#include "engine/forecast/step_terms.h"
#include "engine/model/decoder.h"
#include "engine/model/models.h"

namespace headroom::engine {

namespace {

using step_terms::Parts, step_terms::terms, step_terms::forward_op, step_terms::backward_op;

constexpr double give_over_units = 0.1;  // every kernel was timed
constexpr double noise = 0.03;           // share of a step's time that the terms do not explain

// Over units a part is what they take, at the clock that the step leaves them; kernels begin within that.
Parts parts_over_units(const Recipe& r, const Walk& walk, const Ceilings& ceilings, int units) {
  Parts all{}, computes{};
  double joules = 0;
  for (const OpCall& s : walk.steps) {
    if (s.cost.link_bytes > 0 || !step_terms::timed(s)) continue;
    const hopper::Taken taken = hopper::taken(s, r, ceilings.copy_bytes_per_s, units);
    const auto kind = step_terms::of(s, attention_of(r).head_dim);
    all[kind] += s.times * taken.ms, computes[kind] += s.times * taken.computes_ms, joules += s.times * taken.joules;
  }
  const double longer = hopper::longer_at_its_clock(joules, std::accumulate(all.begin(), all.end(), 0.0));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] += computes[i] * (longer - 1);
  return all;
}

Parts parts_of(const Recipe& r, const Walk& walk, const Ceilings& ceilings, int units, Over over) {
  if (over == Over::units) return parts_over_units(r, walk, ceilings, units);
  Parts p{};
  for (const OpCall& s : walk.steps) {
    if (s.cost.link_bytes > 0) continue;
    p[step_terms::of(s, attention_of(r).head_dim)] += s.times * ceiling_ms(s, r, ceilings, units);
    p[s.making == Making::gradients ? backward_op : forward_op] += s.times * step_terms::launches_of(s, units);
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
  // By Gauss and Jordan: what is expected of every term keeps the matrix positive. Terms not in `free` are at their least.
  Parts solved(std::array<bool, terms.size()> free) const {
    auto m = a;
    Parts x = b;
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t k = 0; k < x.size() && !free[i]; ++k) x[k] -= m[k][i] * terms[i].least();
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
      if (!free[i]) x[i] = terms[i].least();
    return x;
  }
};

struct Point {
  const Decoder* model;
  Parts parts;  // parts of a measured millisecond
  double ms;
};

std::vector<Point> points_of(std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers, Over over) {
  std::vector<Point> points;
  for (const StepMeasured& s : steps) {
    Point p{&s.recipe.model, parts_of(s.recipe, forecast(s.recipe, device, workers).walk, ceilings, step_terms::units_of(device), over),
            s.ms};
    if (over == Over::units) p.ms -= step_terms::begins_ms;
    for (double& part : p.parts) part /= p.ms;
    points.push_back(p);
  }
  return points;
}

// A term that the fit would give less than its least is held there, and the others are fitted again.
Parts least_squares(std::span<const Point* const> points, std::span<const double> weights, DeviceKind kind, Over over) {
  Sums sums;
  for (std::size_t i = 0; i < points.size(); ++i) sums.add(points[i]->parts, 1, weights[i] / (noise * noise));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Parts one{};
    one[i] = 1;
    if (over == Over::units)
      sums.add(one, i >= forward_op ? 0 : 1, std::pow(i >= forward_op ? 1e-9 : give_over_units, -2));
    else
      sums.add(one, terms[i].near, std::pow(kind == DeviceKind::cpu ? terms[i].give_of_cpu : terms[i].give, -2));
  }
  std::array<bool, terms.size()> free;
  free.fill(true);
  Parts x = sums.solved(free);
  while (true) {
    std::size_t lowest = 0;
    for (std::size_t i = 1; i < terms.size(); ++i)
      if (x[i] - terms[i].least() < x[lowest] - terms[lowest].least()) lowest = i;
    if (x[lowest] >= terms[lowest].least()) break;
    free[lowest] = false;
    x = sums.solved(free);
  }
  return x;
}

// The steps that a fit misses most weigh more in the next: an interval is as wide as the largest error, not as the mean one.
Efficiency fit(Precision precision, std::span<const Point> all, DeviceKind kind, Over over, const Decoder* without = nullptr) {
  constexpr int rounds = 60;
  std::vector<const Point*> points;
  for (const Point& p : all)
    if (!without || !same_model(*p.model, *without)) points.push_back(&p);
  std::vector<double> weights(points.size(), 1), error(points.size());
  Efficiency e{.precision = precision, .of_units = over == Over::units};
  for (int round = 0; round < rounds; ++round) {
    const Parts x = least_squares(points, weights, kind, over);
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

Over usual_over(const Device& device) { return hopper::has_units_of(device) ? Over::units : Over::rooflines; }

Efficiency fitted(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers,
                  std::optional<Over> wanted) {
  const Over over = wanted.value_or(usual_over(device));
  return fit(precision, points_of(steps, ceilings, device, workers, over), device.kind, over);
}

std::vector<double> foretold_by_others(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings,
                                       const Device& device, int workers) {
  const Over over = usual_over(device);
  const auto points = points_of(steps, ceilings, device, workers, over);
  std::vector<double> ms;
  for (const Point& p : points)
    ms.push_back(p.ms * time_of(p.parts, fit(precision, points, device.kind, over, p.model)) +
                 (over == Over::units ? step_terms::begins_ms : 0));
  return ms;
}

}  // namespace headroom::engine
