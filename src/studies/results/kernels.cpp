#include "studies/results/kernels.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "dry/clock.h"
#include "instruments/profile/activity_file.h"
#include "report/described_table.h"

namespace headroom::studies {

namespace {

constexpr int letters_for_people = 72;
constexpr std::string_view name_of(dry::Part part) { return dry::part_names[std::size_t(part)]; }
constexpr std::string_view products = name_of(dry::Part::products), attention = name_of(dry::Part::attention),
                           copies = name_of(dry::Part::copies), collectives = name_of(dry::Part::collectives);

bool any_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != name.npos; });
}

// What a library's own kernels do, by their names: the forecast has the library's function in their place.
std::string_view done_by(const RanKernel& k) {
  if (k.kind == "copy" || k.kind == "fill") return copies;
  if (any_of(k.kernel, {"ncclDevKernel", "ncclKernel"})) return collectives;
  if (any_of(k.kernel, {"sdpa", "fmha", "flash_fprop", "flash_bprop", "compute_dot_do_o", "convert_dq_to_16bits"})) return attention;
  if (any_of(k.kernel, {"gemm", "nvjet", "xmma", "gemv", "splitKreduce", "cublas"})) return products;
  return "";
}

// A piece of work on either side: how it is joined, and the index of its first kernel. A library's call may be several kernels, one after another.
struct Piece {
  std::string key;
  double us = 0;
  std::size_t index = 0, count = 1;
};

std::vector<Piece> pieces_of(const std::vector<ForecastKernel>& kernels) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const ForecastKernel& k = kernels[i];
    std::string key = k.kernel;
    if (k.kind == copies) key = k.kernel == "fill" ? "fill" : "copy";
    if (k.kind == products || k.kind == collectives) key = k.kind;
    pieces.push_back({std::move(key), k.us, i});
  }
  return pieces;
}

// PyTorch's own kernels of attention have the same name on both sides; cuDNN's are known by what they do.
void name_attention(std::vector<Piece>& forecast, const std::vector<ForecastKernel>& kernels,
                    const std::unordered_set<std::string>& named) {
  for (Piece& p : forecast)
    if (kernels[p.index].kind == attention && !named.contains(kernels[p.index].kernel)) p.key = attention;
}

std::vector<Piece> pieces_of(const std::vector<RanKernel>& kernels, const std::unordered_set<std::string>& forecast) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const RanKernel& k = kernels[i];
    std::string key = k.kernel;
    if (!forecast.contains(key) || k.kind != "kernel") {
      const std::string_view what = done_by(k);
      if (what == copies)
        key = k.kind;
      else if (!what.empty())
        key = what;
      const bool goes_on = (what == attention && !pieces.empty() && pieces.back().key == attention) ||
                           (k.kernel.find("splitKreduce") != std::string::npos && !pieces.empty() && pieces.back().key == products);
      if (goes_on) {
        pieces.back().us += k.us;
        ++pieces.back().count;
        continue;
      }
    }
    pieces.push_back({std::move(key), k.us, i});
  }
  return pieces;
}

// The partner in `b` of each piece of `a`, or −1. `a` is aligned whole, with the part of `b` that is most like it; of equally good places the last.
constexpr std::size_t most_cells = 100'000'000;
std::vector<std::ptrdiff_t> aligned(const std::vector<int>& a, const std::vector<int>& b) {
  constexpr int same = 2, gap = -1;
  enum Step : std::uint8_t { pair, skip_a, skip_b };
  const std::size_t n = a.size(), m = b.size();
  std::vector<int> before(m + 1, 0), now(m + 1);
  std::vector<std::uint8_t> steps(n * (m + 1));
  for (std::size_t i = 0; i < n; ++i) {
    now[0] = gap * int(i + 1);
    steps[i * (m + 1)] = skip_a;
    for (std::size_t j = 1; j <= m; ++j) {
      const int paired = a[i] == b[j - 1] ? before[j - 1] + same : -1'000'000'000, without_a = before[j] + gap,
                without_b = now[j - 1] + gap;
      now[j] = std::max({paired, without_a, without_b});
      steps[i * (m + 1) + j] = now[j] == paired ? pair : now[j] == without_a ? skip_a : skip_b;
    }
    std::swap(before, now);
  }
  std::size_t j = m - std::size_t(std::max_element(before.rbegin(), before.rend()) - before.rbegin());
  std::vector<std::ptrdiff_t> partner(n, -1);
  for (std::size_t i = n; i > 0;) {
    switch (steps[(i - 1) * (m + 1) + j]) {
      case pair: partner[--i] = std::ptrdiff_t(--j); break;
      case skip_a: --i; break;
      default: --j;
    }
  }
  return partner;
}

// Between two that have a partner as many are left on one side as on the other: these are partners by their order. Versions of a library name
// kernels otherwise.
void pair_between(std::vector<std::ptrdiff_t>& partner) {
  std::ptrdiff_t last = -1, last_partner = -1;
  for (std::ptrdiff_t i = 0; i < std::ptrdiff_t(partner.size()); ++i) {
    const std::ptrdiff_t p = partner[std::size_t(i)];
    if (p < 0) continue;
    if (last >= 0 && i - last == p - last_partner)
      for (std::ptrdiff_t k = 1; last + k < i; ++k) partner[std::size_t(last + k)] = last_partner + k;
    last = i;
    last_partner = p;
  }
}

using Numbers = std::unordered_map<std::string, int>;
std::vector<int> numbers_of(const std::vector<Piece>& pieces, Numbers& numbers) {
  std::vector<int> all;
  for (const Piece& p : pieces) all.push_back(numbers.try_emplace(p.key, int(numbers.size())).first->second);
  return all;
}

// Pieces of both sides, and which belong together.
struct Partners {
  std::vector<Piece> forecast, ran;
  std::vector<std::ptrdiff_t> partner{};  // of each forecast piece: its index in `ran`, or −1
  std::vector<char> taken{};              // pieces of `ran` that are a partner
  std::ptrdiff_t begin = 0, end = 0;      // the step in `ran`: from the first to the last that has a partner by its order

  void join_by_order(const std::vector<int>& keys_forecast, const std::vector<int>& keys_ran) {
    partner = aligned(keys_forecast, keys_ran);
    begin = std::ptrdiff_t(ran.size());
    for (const std::ptrdiff_t p : partner)
      if (p >= 0) begin = std::min(begin, p), end = std::max(end, p + 1);
    pair_between(partner);
    taken.assign(ran.size(), 0);
    for (const std::ptrdiff_t p : partner)
      if (p >= 0) taken[std::size_t(p)] = 1;
  }

  // What is left in the step is joined by name alone: streams beside each other give their kernels in another order.
  void join_by_name(const std::vector<int>& keys_forecast, const std::vector<int>& keys_ran) {
    std::unordered_map<int, std::vector<std::ptrdiff_t>> left;  // the last first
    for (std::ptrdiff_t j = end; j-- > begin;)
      if (!taken[std::size_t(j)]) left[keys_ran[std::size_t(j)]].push_back(j);
    for (std::size_t i = 0; i < forecast.size(); ++i)
      if (auto& same = left[keys_forecast[i]]; partner[i] < 0 && !same.empty()) {
        partner[i] = same.back();
        taken[std::size_t(same.back())] = 1;
        same.pop_back();
      }
  }
};

Partners partners_of(const std::vector<ForecastKernel>& forecast, const std::vector<RanKernel>& ran) {
  std::unordered_set<std::string> names_forecast, names_ran;
  for (const ForecastKernel& k : forecast) names_forecast.insert(k.kernel);
  for (const RanKernel& k : ran) names_ran.insert(k.kernel);
  Partners all{.forecast = pieces_of(forecast), .ran = pieces_of(ran, names_forecast)};
  name_attention(all.forecast, forecast, names_ran);
  const std::size_t most = std::max<std::size_t>(1, most_cells / std::max<std::size_t>(1, all.forecast.size()));
  if (all.ran.size() > most) all.ran.erase(all.ran.begin(), all.ran.end() - std::ptrdiff_t(most));
  Numbers numbers;
  const std::vector<int> keys_forecast = numbers_of(all.forecast, numbers), keys_ran = numbers_of(all.ran, numbers);
  all.join_by_order(keys_forecast, keys_ran);
  all.join_by_name(keys_forecast, keys_ran);
  return all;
}

// A row of the table while kernels are added to it.
struct Sums {
  KernelPairRow row;
  double paired_forecast = 0, paired_ran = 0;
  std::map<std::string, std::int64_t> ran;
};
using SumsByKernel = std::map<std::pair<std::string, std::string>, Sums>;  // by its name, and its shape

Sums& sums_of(SumsByKernel& all, const std::string& kernel, const std::string& shape) {
  Sums& s = all[{kernel, shape}];
  s.row.kernel = kernel;
  s.row.shape = shape;
  return s;
}

void add_forecast(KernelsJoined& joined, SumsByKernel& all, const Partners& partners, const std::vector<ForecastKernel>& forecast,
                  const std::vector<RanKernel>& ran) {
  for (std::size_t i = 0; i < partners.forecast.size(); ++i) {
    const ForecastKernel& k = forecast[partners.forecast[i].index];
    const bool by_shape = k.kind == products || k.kind == attention;
    Sums& s = sums_of(all, k.kernel, by_shape ? k.shape : "");
    ++s.row.forecast;
    s.row.forecast_ms += k.us / 1e3;
    joined.forecast_ms += k.us / 1e3;
    if (partners.partner[i] < 0) {
      ++joined.only_forecast;
      continue;
    }
    const Piece& p = partners.ran[std::size_t(partners.partner[i])];
    ++joined.pairs;
    ++s.row.seen;
    s.row.ms += p.us / 1e3;
    s.paired_forecast += k.us;
    s.paired_ran += p.us;
    if (ran[p.index].kernel != k.kernel) ++s.ran[ran[p.index].kernel];
  }
}

void add_seen(KernelsJoined& joined, SumsByKernel& all, const Partners& partners, const std::vector<RanKernel>& ran) {
  for (std::ptrdiff_t j = partners.begin; j < partners.end; ++j) {
    const Piece& p = partners.ran[std::size_t(j)];
    joined.ms += p.us / 1e3;
    if (partners.taken[std::size_t(j)]) continue;
    ++joined.only_seen;
    Sums& s = sums_of(all, ran[p.index].kernel, "not forecast");
    ++s.row.seen;
    s.row.ms += p.us / 1e3;
  }
}

KernelPairRow row_of(Sums s) {
  s.row.off_ms = s.row.forecast_ms - s.row.ms;
  if (s.paired_ran > 0) s.row.ratio = s.paired_forecast / s.paired_ran;
  const auto most_often = std::max_element(s.ran.begin(), s.ran.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  if (most_often != s.ran.end()) s.row.ran = most_often->first;
  for (std::string* name : {&s.row.kernel, &s.row.ran}) *name = shortened(profile::short_name(*name), letters_for_people);
  return std::move(s.row);
}

}  // namespace

KernelsJoined joined_kernels(const std::vector<ForecastKernel>& forecast, const std::vector<RanKernel>& ran) {
  const Partners partners = partners_of(forecast, ran);
  KernelsJoined joined;
  SumsByKernel sums;
  add_forecast(joined, sums, partners, forecast, ran);
  add_seen(joined, sums, partners, ran);
  for (auto& [key, s] : sums) joined.rows.push_back(row_of(std::move(s)));
  std::stable_sort(joined.rows.begin(), joined.rows.end(),
                   [](const KernelPairRow& x, const KernelPairRow& y) { return std::abs(x.off_ms) > std::abs(y.off_ms); });
  return joined;
}

std::optional<KernelFiles> kernels_of(const RowObject& a, const RowObject& b) {
  const auto has = [](const RowObject& j, const char* table) {
    return j.is_object() && j.contains(table) && j.at(table).is_array() && !j.at(table).empty() && j.at(table).front().is_object();
  };
  if (!has(a, "launches") || !has(b, "timeline")) {
    if (has(b, "launches") && has(a, "timeline")) return kernels_of(b, a);
    return {};
  }
  KernelFiles files;
  for (const RowObject& row : a.at("launches"))
    files.forecast.push_back({text_at(row, "kernel"), text_at(row, "kind"), text_at(row, "shape"), number_at(row, "us")});
  for (const RowObject& row : b.at("timeline"))
    if (number_at(row, "device") == 0) files.ran.push_back({text_at(row, "kernel"), text_at(row, "kind"), number_at(row, "ms") * 1e3});
  return files;
}

Record kernels_record(const KernelsJoined& k) {
  Record r{"kernels", fmt::format("Kernels of a step: {:.4g} ms forecast, {:.4g} ms measured.", k.forecast_ms, k.ms), {}};
  r.add("forecast_ms", k.forecast_ms, Unit::ms).add("ms", k.ms, Unit::ms);
  r.add("ratio", k.ms > 0 ? Value(k.forecast_ms / k.ms) : Value(), Unit::ratio);
  r.add("pairs", k.pairs).add("only_forecast", k.only_forecast).add("only_seen", k.only_seen);
  r.add(Part{table_of("kernels", "Kernels, the largest difference first; ratio is forecast over measured", k.rows)});
  r.add(Part{
      Note{"One step of each, from the profile the last one that is like the forecast. A product or an attention has the library's kernel "
           "beside it, in ran. Gaps between kernels are not in these sums."}});
  return r;
}

}  // namespace headroom::studies
