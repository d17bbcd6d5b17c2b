#include "ops/attention/sampled.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "ops/attention/reference.h"

namespace headroom::attention {

namespace {

using Doubles = std::vector<double>;
constexpr double affordable_flops = 2e9;  // spent on more heads when one costs less
constexpr std::int64_t kept = 64;

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
  void reset(std::size_t n) { value.assign(n, 0.0), magnitude.assign(n, 0.0); }
  void add(std::size_t at, const double* x, std::int64_t n, double weight, double size) {  // += weight·x; magnitude += size·|x|
    for (std::int64_t d = 0; d < n; ++d)
      value[at + std::size_t(d)] += weight * x[d], magnitude[at + std::size_t(d)] += size * std::abs(x[d]);
  }
  void add(const Expected& other) {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] += other.value[i], magnitude[i] += other.magnitude[i];
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
  double longest = 0;  // |q|·|k|·scale: how far a rounding of a score can carry
  Expected o, dq;      // [group, rows, dim]
  Doubles lse;         // [group, rows]
  Expected dk, dv;     // [keys, dim]

  void run(const Problem&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, Threads&, const ReadHead&);
};

std::vector<double> head_in_memory(const Tensor& t, std::int64_t b, std::int64_t head) {
  Doubles m(std::size_t(t.shape[1] * t.shape[3]));
  for (std::int64_t i = 0; i < t.shape[1]; ++i)
    for (std::int64_t d = 0; d < t.shape[3]; ++d) m[std::size_t(i * t.shape[3] + d)] = load(t, b, i, head, d);
  return m;
}

void SampledOracle::Work::run(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, Threads& threads,
                              const ReadHead& read) {
  const auto dim = p.head_dim, len_k = p.len_k;
  const double scale = p.scale_or_default();
  const Band band = p.band();
  const bool gradients = bool(d_o);
  const Doubles km = read(k, batch, kv_head), vm = read(v, batch, kv_head);
  const auto kept_rows = rows.size(), width = std::size_t(dim);
  for (Expected* e : {&o, &dq}) e->reset(std::size_t(p.group()) * kept_rows * width);
  for (Expected* e : {&dk, &dv}) e->reset(keys.size() * width);
  lse.assign(std::size_t(p.group()) * kept_rows, -std::numeric_limits<double>::infinity());

  struct Scratch {
    Doubles s, dp, o;
    Expected dk, dv;
  };
  const std::int64_t height = std::clamp<std::int64_t>((1 << 20) / std::max<std::int64_t>(len_k, 1), 1, 64);
  std::vector<Scratch> scratch(std::size_t(threads.count()));
  for (Scratch& w : scratch) {
    w.s.resize(std::size_t(height * len_k)), w.dp.resize(w.s.size()), w.o.resize(width);
    w.dk.reset(dk.value.size()), w.dv.reset(dv.value.size());
  }
  for (std::int64_t g = 0; g < p.group(); ++g) {
    const auto head = kv_head * p.group() + g;
    const Doubles qm = read(q, batch, head), om = gradients ? read(d_o, batch, head) : Doubles();
    longest = std::max(longest, scale * longest_row(qm, dim) * longest_row(km, dim));
    threads.share((p.len_q + height - 1) / height, [&](std::int64_t piece, int worker) {
      Scratch& w = scratch[std::size_t(worker)];
      const auto top_row = piece * height, rows_here = std::min(height, p.len_q - top_row);
      const auto left = band.first(top_row), columns = band.last(top_row + rows_here - 1) - left;  // what any row here sees
      if (columns <= 0) return;
      const auto times = [&](const Doubles& a, const Doubles& b, double alpha, Doubles& c) {  // c = alpha·a[rows here]·b[columns]ᵀ
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, int(rows_here), int(columns), int(dim), alpha, &a[std::size_t(top_row * dim)],
                    int(dim), &b[std::size_t(left * dim)], int(dim), 0, c.data(), int(columns));
      };
      times(qm, km, scale, w.s);
      if (gradients) times(om, vm, 1, w.dp);
      for (auto i = top_row; i < top_row + rows_here; ++i) {
        const auto offset = (i - top_row) * columns - left;  // so that a key's own number is its index
        double *prob = w.s.data() + offset, *dp = w.dp.data() + offset;
        const auto first = band.first(i), last = band.last(i);
        if (first >= last) continue;
        const double top = *std::max_element(prob + first, prob + last);
        double sum = 0, delta = 0, delta_size = 0;
        for (auto j = first; j < last; ++j) sum += prob[j] = std::exp(prob[j] - top);
        for (auto j = first; j < last; ++j) prob[j] /= sum;
        if (gradients) {  // kernels form delta from O as it is stored, so O's roundings are in it
          const double *row_do = &om[std::size_t(i * dim)], *row_o = w.o.data();
          cblas_dgemv(CblasRowMajor, CblasTrans, int(last - first), int(dim), 1, &vm[std::size_t(first * dim)], int(dim), prob + first, 1,
                      0, w.o.data(), 1);
          for (auto j = first; j < last; ++j) delta += prob[j] * dp[j], delta_size += prob[j] * std::abs(dp[j]);
          for (std::int64_t d = 0; d < dim; ++d) delta_size += std::abs(row_do[d] * row_o[d]);
        }
        const auto ds = [&](std::int64_t j) { return scale * prob[j] * (dp[j] - delta); };
        const auto ds_size = [&](std::int64_t j) { return scale * prob[j] * (std::abs(dp[j]) + delta_size); };
        if (const auto at = std::lower_bound(rows.begin(), rows.end(), i); at != rows.end() && *at == i) {
          const auto index = std::size_t(g) * kept_rows + std::size_t(at - rows.begin());
          lse[index] = top + std::log(sum);
          for (auto j = first; j < last; ++j) o.add(index * width, &vm[std::size_t(j * dim)], dim, prob[j], prob[j]);
          if (gradients)
            for (auto j = first; j < last; ++j) dq.add(index * width, &km[std::size_t(j * dim)], dim, ds(j), ds_size(j));
        }
        if (gradients)
          for (std::size_t at = 0; at < keys.size(); ++at)
            if (const auto j = keys[at]; j >= first && j < last) {
              w.dv.add(at * width, &om[std::size_t(i * dim)], dim, prob[j], prob[j]);
              w.dk.add(at * width, &qm[std::size_t(i * dim)], dim, ds(j), ds_size(j));
            }
      }
    });
  }
  for (const Scratch& w : scratch) dk.add(w.dk), dv.add(w.dv);
}

SampledOracle::SampledOracle(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, Threads& threads,
                             std::uint64_t seed, ReadHead read)
    : problem_(p), read_(std::move(read)) {
  openblas_set_num_threads(1);  // the pool shares out the work
  const double storage = unit_roundoff(p.precision.dtype), sums = p.precision.math == Math::tf32 ? 0x1p-11 : 0x1p-24;
  storage_budget_ = 4 * storage;
  sums_budget_ = sums;
  floor_ = p.precision.dtype == DType::f16 ? 0x1p-24 * std::sqrt(double(std::max<std::int64_t>({p.len_q, p.len_k, 1}))) : 0x1p-126;
  const auto heads = p.batch * p.kv_heads;
  if (heads == 0) return;
  const double cost = 6.0 * double(p.len_q) * double(p.len_k) * double(p.head_dim) * double(p.group());
  const auto affordable = std::max<std::int64_t>(1, std::int64_t(affordable_flops / std::max(cost, 1.0)));
  const Random random{seed};
  for (std::int64_t n = 0; n < std::min(affordable, heads); ++n) {
    const auto head = affordable >= heads || n == 0 ? heads - 1 - n : std::int64_t(random.below(std::uint64_t(n), std::uint64_t(heads)));
    auto work = std::make_unique<Work>();
    work->batch = head / p.kv_heads, work->kv_head = head % p.kv_heads;
    work->rows = sample(p.len_q, random.stream(2 * std::uint64_t(n)));
    work->keys = sample(p.len_k, random.stream(2 * std::uint64_t(n) + 1));
    work->run(p, q, k, v, d_o, threads, read_);
    work_.push_back(std::move(work));
  }
}

SampledOracle::~SampledOracle() = default;

namespace {

// Sums of n terms lose about √n roundings; a score's rounding is carried by the exponential as far as the score is large.
double natural_share(double storage, double sums, double longest, std::int64_t terms) {
  return storage + sums * (4 * longest + std::sqrt(double(terms)) + 4);
}

}  // namespace

Verdict SampledOracle::judge(const Tensor& o, const Tensor& lse, const Tensor& dq, const Tensor& dk, const Tensor& dv) const {
  const auto group = problem_.group();
  Verdict verdict;
  const std::int64_t len_q = problem_.len_q, heads = problem_.heads;
  Tensor lse_rows(lse.data, lse.dtype, {problem_.batch, len_q, heads, 1});  // as the others lie
  lse_rows.stride = {heads * len_q, 1, len_q, 1};
  for (const auto& w : work_) {
    const double share = natural_share(storage_budget_, sums_budget_, w->longest, problem_.len_k);
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
      each(t, places, first, count,
           [&](std::size_t at, double got) { compare_one(into, got, e.value[at], allowed * e.magnitude[at] + floor_); });
    };
    compare(verdict.o, w->o, o, w->rows, w->kv_head * group, group, problem_.len_k);
    compare(verdict.dq, w->dq, dq, w->rows, w->kv_head * group, group, problem_.len_k);
    compare(verdict.dk, w->dk, dk, w->keys, w->kv_head, 1, len_q * group);
    compare(verdict.dv, w->dv, dv, w->keys, w->kv_head, 1, len_q * group);
    each(lse_rows, w->rows, w->kv_head * group, group,
         [&](std::size_t at, double got) { compare_one(verdict.lse, got, w->lse[at], share * (1 + std::abs(w->lse[at]))); });
  }
  return verdict;
}

}  // namespace headroom::attention
