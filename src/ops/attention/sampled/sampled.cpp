#include "ops/attention/sampled/sampled.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/divide.h"
#include "base/random.h"
#include "ops/attention/alibi.h"
#include "ops/attention/dropout.h"
#include "ops/attention/reference.h"
#include "ops/openblas.h"

namespace headroom::attention {

namespace {

using Doubles = std::vector<double>;
constexpr double affordable_flops = 2e9;  // spent on more heads when one costs less
constexpr std::int64_t kept = 64;
constexpr double matmul_unit_of_8_bits = 0x1p-13;  // Hopper's sums: ops/matmul/hopper_adder.h

double unit_roundoff(DType t) { return t == DType::bf16 ? 0x1p-9 : t == DType::f16 ? 0x1p-12 : size_of(t) == 1 ? 0x1p-4 : 0x1p-24; }

// Up to `kept` of [0, count): all of them, or both ends and a random choice of the rest.
std::vector<std::int64_t> sample(std::int64_t count, Random random) {
  std::vector<std::int64_t> chosen;
  if (count <= kept) {
    for (std::int64_t i = 0; i < count; ++i) chosen.push_back(i);
    return chosen;
  }
  chosen = {0, count - 1};
  for (std::uint64_t i = 0; std::int64_t(chosen.size()) < kept; ++i) chosen.push_back(std::int64_t(random.below(i, std::uint64_t(count))));
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

double longest_row(const Doubles& m, std::int64_t dim) {
  double top = 0;
  for (std::size_t at = 0; at < m.size(); at += std::size_t(dim)) top = std::max(top, cblas_dnrm2(int(dim), &m[at], 1));
  return top;
}

struct Expected {  // values and the magnitudes they were formed from, [kept, dim]
  Doubles value, magnitude;
  void reset(std::size_t n) {
    value.assign(n, 0.0);
    magnitude.assign(n, 0.0);
  }
  void add(std::size_t at, const double* x, std::int64_t n, double weight, double size) {  // += weight·x; magnitude += size·|x|
    for (std::int64_t d = 0; d < n; ++d) {
      value[at + std::size_t(d)] += weight * x[d];
      magnitude[at + std::size_t(d)] += size * std::abs(x[d]);
    }
  }
};

void compare_one(Judged& j, double got, double expected, double natural) {
  if (got == expected) return;  // infinities too
  const double error = std::abs(got - expected);
  if (std::isnan(error)) j.max_error = j.worst = std::numeric_limits<double>::infinity();
  j.max_error = std::max(j.max_error, error);
  j.worst = std::max(j.worst, error / natural);
}

}  // namespace

struct SampledOracle::Work {
  std::int64_t batch, kv_head;
  std::vector<std::int64_t> rows, keys;
  double longest = 0;  // |q|·|k|·scale, and what scores fall by: how far a rounding of a score can carry
  Expected o, dq;      // [group, rows, dim]
  Doubles lse;         // [group, rows]
  Expected dk, dv;     // [keys, dim]

  struct Head;   // one query head and its key head
  struct Asked;  // what a case is made of
  void run(const Asked&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o);
  void judge_row(const Head&, std::size_t number, std::size_t at);
  void judge_key(const Head&, const RowSums&, std::size_t number);
};

std::vector<double> head_in_memory(const Tensor& t, std::int64_t b, std::int64_t head) {
  Doubles m(std::size_t(t.shape[1] * t.shape[3]));
  for (std::int64_t i = 0; i < t.shape[1]; ++i)
    for (std::int64_t d = 0; d < t.shape[3]; ++d) m[std::size_t(i * t.shape[3] + d)] = load(t, b, i, head, d);
  return m;
}

struct SampledOracle::Work::Head {
  const Problem& p;
  Band band;
  double scale, sink;  // sink: −∞ where there is none
  const std::optional<Dropping>& dropping;
  const Alibi& alibi;
  std::int64_t batch, head;
  const Doubles &q, &k, &v, &d_o;  // d_o is empty without gradients

  // out = alpha · m[first … last) · x, a number per row of m, of dim columns.
  static void products(const Doubles& m, std::int64_t dim, std::int64_t first, std::int64_t last, const double* x, double alpha,
                       Doubles& out) {
    out.resize(std::size_t(last - first));
    cblas_dgemv(CblasRowMajor, CblasNoTrans, int(last - first), int(dim), alpha, row(m, dim, first), int(dim), x, 1, 0, out.data(), 1);
  }
  static const double* row(const Doubles& m, std::int64_t dim, std::int64_t i) { return &m[std::size_t(i * dim)]; }
  void cap(double* scores, std::int64_t n) const {
    if (p.softcap == 0) return;
    const double c = p.softcap;
    for (std::int64_t j = 0; j < n; ++j) scores[j] = c * std::tanh(scores[j] / c);
  }
  double fall(std::int64_t i, std::int64_t j) const {
    const Alibi::Spot spot = alibi.of_row(int(batch), int(i));
    return p.alibi ? double(alibi.slope(spot, int(head))) * std::abs(double(spot.place) - double(j)) : 0;
  }
  double largest_fall() const {
    double most = 0;
    for (std::int64_t i = 0; p.alibi && i < p.len_q; ++i)
      if (band.first(i) < band.last(i)) most = std::max({most, std::abs(fall(i, band.first(i))), std::abs(fall(i, band.last(i) - 1))});
    return most;
  }
  void let_fall(std::int64_t i, std::int64_t first, std::int64_t last, double* scores) const {
    for (auto j = first; p.alibi && j < last; ++j) scores[j - first] -= fall(i, j);
  }
  std::int64_t pair() const { return batch * p.heads + head; }  // dropout's name of this head
  double slope(double capped) const { return p.softcap == 0 ? 1 : 1 - std::pow(capped / double(p.softcap), 2); }
  // Scores [0, n) become probabilities; returns LSE.
  double softmax(double* s, std::int64_t n) const {
    double top = sink;
    for (std::int64_t j = 0; j < n; ++j) top = std::max(top, s[j]);
    double sum = share_of_sink(sink, top);
    for (std::int64_t j = 0; j < n; ++j) sum += s[j] = std::isinf(top) && top > 0 ? 0 : std::exp(s[j] - top);
    for (std::int64_t j = 0; j < n; ++j) s[j] /= sum;
    return sum == 0 ? -std::numeric_limits<double>::infinity() : top + std::log(sum);
  }
  // What dropout makes of row i's weights of keys [first, last): each times 0 or what keeps the mean.
  void drop(std::int64_t i, std::int64_t first, std::int64_t last, double* weights) const {
    if (!dropping) return;
    std::vector<float> factors(std::size_t(last - first));
    dropout_factors(*dropping, pair(), i, first, last, 1, factors.data());
    for (std::size_t j = 0; j < factors.size(); ++j) weights[j] *= factors[j] * growth();
  }
  double factor(std::int64_t i, std::int64_t j) const { return dropping && factor_of(dropping, pair(), i, j) == 0 ? 0 : growth(); }
  double growth() const { return dropping ? double(draw_steps) / (draw_steps - dropping->dropout.below) : 1; }
  RowSums row_sums(Threads&) const;
};

struct SampledOracle::Work::Asked {
  const Problem& problem;
  const HostLists& lists;
  const Extras& with;
  Threads& threads;
  const ReadHead& read;
  const SumRows& sum_rows;

  // In 8 bits: a head's numbers times its scale; V from its blocks.
  bool eight_bits() const { return problem.operands().q.scaled == ScaledBy::head; }
  static Doubles scaled(Doubles all, const Tensor& scale, std::int64_t batch, std::int64_t head) {
    for (double& x : all) x *= double(scale.as<float>()[batch * scale.shape[1] + head]);
    return all;
  }
  Doubles values_in_blocks(const Tensor& v, std::int64_t batch, std::int64_t head) const {
    const std::int64_t dim = problem.value_dim();
    Tensor lines(v.data, v.dtype, {v.shape[0], v.shape[2] * dim, v.shape[1], keys_of_v_block});  // as heads lie
    lines.stride = {v.stride[0], keys_of_v_block, v.stride[1], 1};
    const Doubles stored = read(lines, batch, head);
    Doubles all(std::size_t(problem.len_k * dim));
    for (std::int64_t key = 0; key < problem.len_k; ++key)
      for (std::int64_t d = 0; d < dim; ++d) all[std::size_t(key * dim + d)] = stored[std::size_t(value_at(key, d, dim))];
    return scaled(std::move(all), with.v_scale, batch, head);
  }
  Doubles queries(const Tensor& t, std::int64_t batch, std::int64_t head) const {
    return eight_bits() ? scaled(read(t, batch, head), with.q_scale, batch, head) : read(t, batch, head);
  }
  Doubles values(const Tensor& t, std::int64_t batch, std::int64_t head) const {
    return eight_bits() ? values_in_blocks(t, batch, head) : in_pages(t, batch, head);
  }
  Doubles keys(const Tensor& t, std::int64_t batch, std::int64_t head) const {
    return eight_bits() ? scaled(read(t, batch, head), with.k_scale, batch, head) : in_pages(t, batch, head);
  }
  Doubles in_pages(const Tensor& t, std::int64_t batch, std::int64_t head) const {  // one head's, wherever its pages lie
    if (problem.page == 0) return read(t, batch, head);
    Doubles all;
    for (std::int64_t n = 0; n < problem.pages_of_sequence(); ++n) {
      const std::int64_t page = with.pages.as<std::int32_t>()[batch * problem.pages_of_sequence() + n];
      const Doubles one = page < 0 || page >= problem.pages ? Doubles(std::size_t(problem.page * t.shape[3]), 0.0) : read(t, page, head);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  bool others_can_sum() const {  // the rows: what a device is asked knows none of these
    const Problem& p = problem;
    return sum_rows && p.softcap == 0 && !p.asks_by_place() && !p.sink && p.documents == 0 && p.page == 0 && p.value_dim() == p.head_dim &&
           p.head_dim <= 256;
  }
};

// Every row's softmax, tiles of rows times all keys that any of them sees.
RowSums SampledOracle::Work::Head::row_sums(Threads& threads) const {
  const auto dim = p.head_dim, dim_v = p.value_dim(), rows = p.len_q;
  const auto count = std::size_t(rows);
  RowSums sums{Doubles(count, softmax(nullptr, 0)), Doubles(count, 0.0), Doubles(count, 0.0)};
  constexpr std::int64_t height = 64;
  struct Scratch {
    Doubles s, dp, o;
  };
  std::vector<Scratch> scratch(std::size_t(threads.count()));
  threads.share(ceil_div(rows, height), [&](std::int64_t piece, int worker) {
    Scratch& w = scratch[std::size_t(worker)];
    const auto top_row = piece * height, here = std::min(height, rows - top_row);
    const auto left = band.first(top_row), columns = band.last(top_row + here - 1) - left;
    if (columns <= 0) return;
    w.s.resize(std::size_t(here * columns));
    w.dp.resize(w.s.size());
    w.o.resize(std::size_t(here * dim_v));
    // c = alpha·a[rows here]·b[columns]ᵀ
    const auto times = [&](const Doubles& a, const Doubles& b, std::int64_t width, double alpha, Doubles& c) {
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, int(here), int(columns), int(width), alpha, row(a, width, top_row), int(width),
                  row(b, width, left), int(width), 0, c.data(), int(columns));
    };
    times(q, k, dim, scale, w.s);
    times(d_o, v, dim_v, 1, w.dp);
    for (auto i = top_row; i < top_row + here; ++i) {
      double *prob = &w.s[std::size_t((i - top_row) * columns)], *dp = &w.dp[std::size_t((i - top_row) * columns)];
      const auto first = band.first(i) - left, last = band.last(i) - left;
      if (first < last) {
        cap(prob + first, last - first);
        let_fall(i, left + first, left + last, prob + first);
        sums.lse[std::size_t(i)] = softmax(prob + first, last - first);
        drop(i, left + first, left + last, dp + first);
      }
      for (std::int64_t j = 0; j < columns; ++j)
        if (j < first || j >= last) prob[j] = 0;
      double delta = 0, size = 0;
      for (auto j = first; j < last; ++j) {
        delta += prob[j] * dp[j];
        size += prob[j] * std::abs(dp[j]);
      }
      sums.delta[std::size_t(i)] = delta;
      sums.delta_size[std::size_t(i)] = size;
      if (first < last) drop(i, left + first, left + last, prob + first);  // now what O is the sum of
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(here), int(dim_v), int(columns), 1, w.s.data(), int(columns),
                row(v, dim_v, left), int(dim_v), 0, w.o.data(), int(dim_v));
    for (std::int64_t n = 0; n < here * dim_v; ++n)  // kernels form Δ from O as it is stored, so O's roundings are in it
      sums.delta_size[std::size_t(top_row + n / dim_v)] += std::abs(w.o[std::size_t(n)] * row(d_o, dim_v, top_row)[n]);
  });
  return sums;
}

// One query row: O, LSE and dQ, whatever the sums over all rows say.
void SampledOracle::Work::judge_row(const Head& h, std::size_t number, std::size_t at) {
  const auto i = rows[number], dim = h.p.head_dim, dim_v = h.p.value_dim(), first = h.band.first(i), last = h.band.last(i);
  lse[at] = h.softmax(nullptr, 0);
  if (first >= last) return;
  Doubles prob, dp;
  h.products(h.k, dim, first, last, h.row(h.q, dim, i), h.scale, prob);
  h.cap(prob.data(), last - first);
  const Doubles scores = prob;
  h.let_fall(i, first, last, prob.data());
  lse[at] = h.softmax(prob.data(), last - first);
  const auto o_at = at * std::size_t(dim_v);
  Doubles kept = prob;
  h.drop(i, first, last, kept.data());
  for (std::size_t j = 0; j < kept.size(); ++j) o.add(o_at, h.row(h.v, dim_v, first + std::int64_t(j)), dim_v, kept[j], kept[j]);
  if (h.d_o.empty()) return;
  h.products(h.v, dim_v, first, last, h.row(h.d_o, dim_v, i), 1, dp);
  h.drop(i, first, last, dp.data());
  double delta = 0, size = 0;
  for (std::size_t j = 0; j < prob.size(); ++j) {
    delta += prob[j] * dp[j];
    size += prob[j] * std::abs(dp[j]);
  }
  for (std::int64_t d = 0; d < dim_v; ++d) size += std::abs(h.row(h.d_o, dim_v, i)[d] * o.value[o_at + std::size_t(d)]);
  for (std::size_t j = 0; j < prob.size(); ++j)
    dq.add(at * std::size_t(dim), h.row(h.k, dim, first + std::int64_t(j)), dim, h.scale * h.slope(scores[j]) * prob[j] * (dp[j] - delta),
           h.scale * prob[j] * (std::abs(dp[j]) + size));
}

// One key: dK and dV, over all rows that see it.
void SampledOracle::Work::judge_key(const Head& h, const RowSums& sums, std::size_t number) {
  const auto j = keys[number], dim = h.p.head_dim, dim_v = h.p.value_dim(), first = h.band.first_row(j), last = h.band.last_row(j);
  if (first >= last) return;
  Doubles prob, dp;
  h.products(h.q, dim, first, last, h.row(h.k, dim, j), h.scale, prob);
  h.cap(prob.data(), last - first);
  h.products(h.d_o, dim_v, first, last, h.row(h.v, dim_v, j), 1, dp);
  for (std::size_t n = 0; n < prob.size(); ++n) {
    const auto i = first + std::int64_t(n);
    const auto row = std::size_t(i);
    const double weight = std::isinf(sums.lse[row]) ? 0 : std::exp(prob[n] - h.fall(i, j) - sums.lse[row]), factor = h.factor(i, j);
    dv.add(number * std::size_t(dim_v), h.row(h.d_o, dim_v, i), dim_v, weight * factor, weight * factor);
    dk.add(number * std::size_t(dim), h.row(h.q, dim, i), dim, h.scale * h.slope(prob[n]) * weight * (factor * dp[n] - sums.delta[row]),
           h.scale * weight * (factor * std::abs(dp[n]) + sums.delta_size[row]));
  }
}

void SampledOracle::Work::run(const Asked& asked, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o) {
  const Problem& p = asked.problem;
  const Doubles km = asked.keys(k, batch, kv_head), vm = asked.values(v, batch, kv_head);
  const auto width = std::size_t(p.head_dim), width_v = std::size_t(p.value_dim()), count = std::size_t(p.group()) * rows.size();
  o.reset(count * width_v);
  dq.reset(count * width);
  dk.reset(keys.size() * width);
  dv.reset(keys.size() * width_v);
  lse.assign(count, -std::numeric_limits<double>::infinity());
  for (std::int64_t g = 0; g < p.group(); ++g) {
    const auto head = kv_head * p.group() + g;
    const Doubles qm = asked.queries(q, batch, head), om = d_o ? asked.read(d_o, batch, head) : Doubles();
    const double sink = p.sink ? double(asked.with.sink.as<float>()[head]) : -std::numeric_limits<double>::infinity();
    const auto dropping = dropping_of(p, asked.with);
    const Alibi alibi = alibi_of(p, asked.with);
    const Head h{p, asked.lists.band(batch), double(p.scale_or_default()), sink, dropping, alibi, batch, head, qm, km, vm, om};
    longest = std::max(longest, std::abs(h.scale) * longest_row(qm, p.head_dim) * longest_row(km, p.head_dim) + h.largest_fall());
    asked.threads.share(std::int64_t(rows.size()),
                        [&](std::int64_t n, int) { judge_row(h, std::size_t(n), std::size_t(g) * rows.size() + std::size_t(n)); });
    if (om.empty()) continue;
    const RowSums sums = asked.others_can_sum() ? asked.sum_rows(p, q, k, v, d_o, batch, head) : h.row_sums(asked.threads);
    asked.threads.share(std::int64_t(keys.size()), [&](std::int64_t n, int) { judge_key(h, sums, std::size_t(n)); });
  }
}

SampledOracle::SampledOracle(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, Threads& threads,
                             std::uint64_t seed, ReadHead read, const SumRows& sum_rows, const Extras& with)
    : problem_(p), lists_(p, with), with_(with), read_(std::move(read)) {
  use_openblas(threads.count());
  const double storage = unit_roundoff(p.precision.dtype), sums = p.precision.math == Math::tf32    ? 0x1p-11
                                                                  : size_of(p.precision.dtype) == 1 ? matmul_unit_of_8_bits
                                                                                                    : 0x1p-24;
  storage_budget_ = (size_of(p.precision.dtype) == 1 ? 1.25 : 4) * storage;  // 8 bits: weights are rounded, O is bf16
  sums_budget_ = sums;
  floor_ = p.precision.dtype == DType::f16 ? 0x1p-24 * std::sqrt(double(std::max<std::int64_t>({p.len_q, p.len_k, 1}))) : 0x1p-126;
  const auto heads = p.batch * p.kv_heads;
  if (heads == 0) return;
  const double cost = 3.0 * double(p.len_q) * double(p.len_k) * double(p.head_dim + p.value_dim()) * double(p.group());
  const auto affordable = std::max<std::int64_t>(1, std::int64_t(affordable_flops / std::max(cost, 1.0)));
  const Random random{seed};
  for (std::int64_t n = 0; n < std::min(affordable, heads); ++n) {
    const auto head = affordable >= heads || n == 0 ? heads - 1 - n : std::int64_t(random.below(std::uint64_t(n), std::uint64_t(heads)));
    auto work = std::make_unique<Work>();
    work->batch = head / p.kv_heads;
    work->kv_head = head % p.kv_heads;
    work->rows = sample(p.len_q, random.stream(2 * std::uint64_t(n)));
    work->keys = sample(p.len_k, random.stream(2 * std::uint64_t(n) + 1));
    work->run({problem_, lists_, with_, threads, read_, sum_rows}, q, k, v, d_o);
    work_.push_back(std::move(work));
  }
}

SampledOracle::~SampledOracle() = default;

namespace {

// Sums of n terms lose about √n roundings; a score's rounding is carried by the exponential as far as the score is large.
double natural_share(double storage, double sums, double longest, std::int64_t terms) {
  return storage + sums * (4 * longest + std::sqrt(double(terms)) + 4);
}

// A weight below 2^-126 is 0 in FP32, and what it weighs (64 at most) is lost: far keys of ALiBi's.
constexpr double lost_weight = 64 * 0x1p-126;

}  // namespace

Verdict SampledOracle::judge(const Tensor& o, const Tensor& lse, const Tensor& dq, const Tensor& dk, const Tensor& dv) const {
  const auto group = problem_.group();
  Verdict verdict;
  const std::int64_t len_q = problem_.len_q, heads = problem_.heads;
  Tensor lse_rows(lse.data, lse.dtype, {problem_.batch, len_q, heads, 1});  // as the others lie
  lse_rows.stride = {heads * len_q, 1, len_q, 1};
  for (const auto& w : work_) {
    const bool rounds_late = size_of(problem_.precision.dtype) == 1;  // 8 bits: weights are added up before they are rounded
    const double lse_share = natural_share(rounds_late ? 0 : storage_budget_, sums_budget_, w->longest, problem_.len_k);
    // f(element's number in what is expected, what the tensor holds): of the rows `places` of `count` heads from `first` on.
    const auto each = [&](const Tensor& t, const std::vector<std::int64_t>& places, std::int64_t first, std::int64_t count, auto&& f) {
      if (!t || places.empty()) return;
      const auto width = std::size_t(t.shape[3]);
      std::size_t at = 0;
      for (std::int64_t head = first; head < first + count; ++head) {
        const Doubles m = read_(t, w->batch, head);
        for (const auto place : places)
          for (std::size_t d = 0; d < width; ++d) f(at++, m[std::size_t(place) * width + d]);
      }
    };
    const auto compare = [&](Judged& into, const Expected& e, const Tensor& t, const std::vector<std::int64_t>& places, std::int64_t first,
                             std::int64_t count, std::int64_t terms) {
      const double allowed = natural_share(storage_budget_, sums_budget_, w->longest, terms);
      each(t, places, first, count, [&](std::size_t at, double got) {
        compare_one(into, got, e.value[at], allowed * e.magnitude[at] + floor_ + lost_weight * double(terms));
      });
    };
    compare(verdict.o, w->o, o, w->rows, w->kv_head * group, group, problem_.len_k);
    compare(verdict.dq, w->dq, dq, w->rows, w->kv_head * group, group, problem_.len_k);
    compare(verdict.dk, w->dk, dk, w->keys, w->kv_head, 1, len_q * group);
    compare(verdict.dv, w->dv, dv, w->keys, w->kv_head, 1, len_q * group);
    each(lse_rows, w->rows, w->kv_head * group, group,
         [&](std::size_t at, double got) { compare_one(verdict.lse, got, w->lse[at], lse_share * (1 + std::abs(w->lse[at]))); });
  }
  return verdict;
}

}  // namespace headroom::attention
