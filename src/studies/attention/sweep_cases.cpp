// What a sweep asks: its problems, the variants that are asked to serve each, and what makes a row the same in another run.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "studies/attention/sweep.h"

namespace headroom::studies {

using attention::Problem;
using attention::Variant;

Problem AttentionSweep::problem(Precision precision, const attention::Mask& mask, std::int64_t dim, std::int64_t len) const {
  Problem p{.batch = batch,
            .heads = heads,
            .kv_heads = kv_heads ? kv_heads : heads,
            .len_q = len,
            .len_k = len_k ? len_k : len,
            .head_dim = dim,
            .mask = mask,
            .precision = precision,
            .deterministic = deterministic,
            .dim_v = dim_v,
            .softcap = float(softcap),
            .sink = sink,
            .documents = std::int64_t(documents.size()),
            .dropout = float(dropout),
            .alibi = alibi};
  if (!documents.empty()) {
    p.len_q = p.len_k = std::accumulate(documents.begin(), documents.end(), std::int64_t(0));
    for (const std::int64_t one : documents) p.visible_in_documents += attention::band_of(mask, one, one).visible();
  }
  if (!cached.empty()) {
    p.batch = std::int64_t(cached.size());
    p.documents = 1;
    p.len_k = *std::max_element(cached.begin(), cached.end());
    for (const std::int64_t one : cached) p.visible_in_documents += attention::band_of(mask, len, one).visible() / double(cached.size());
  }
  if (page > 0) p.page = page, p.pages = p.batch * p.pages_of_sequence();
  return p;
}

void AttentionSweep::fill(Place& place, const Problem& p, const attention::Extras& with) const {
  const auto copy = [&](const Tensor& to, const std::vector<std::int32_t>& values) { place.copy_in(to.data, values.data(), to.bytes()); };
  if (p.sink) place.fill_normal(with.sink, Random{seed}.stream(5));
  if (p.alibi) {
    std::vector<float> slopes;
    for (std::int64_t h = 1; h <= p.heads; ++h) slopes.push_back(std::exp2(-8.0f * float(h) / float(p.heads)));
    place.copy_in(with.alibi.data, slopes.data(), with.alibi.bytes());
  }
  std::uint64_t stream = 6;
  for (const Tensor* t : {&with.q_scale, &with.k_scale, &with.v_scale}) {  // scales of 8 bits: 0.75 to 1.25
    if (!*t) continue;
    const Random random = Random{seed}.stream(stream++);
    std::vector<float> scales;
    for (std::int64_t i = 0; i < t->count(); ++i) scales.push_back(0.75f + 0.5f * float(random.uniform(std::uint64_t(i))));
    place.copy_in(t->data, scales.data(), t->bytes());
  }
  std::vector<std::int32_t> begins_q, begins_k, pages;
  for (std::int64_t b = 0; p.documents > 0 && b < p.batch; ++b) {
    for (auto* begins : {&begins_q, &begins_k}) begins->push_back(0);
    for (const std::int64_t one : documents)
      for (auto* begins : {&begins_q, &begins_k}) begins->push_back(begins->back() + std::int32_t(one));
    if (cached.empty()) continue;
    begins_q.push_back(std::int32_t(p.len_q));
    begins_k.push_back(std::int32_t(cached[std::size_t(b)]));
  }
  if (p.documents > 0) copy(with.cu_q, begins_q), copy(with.cu_k, begins_k);
  if (p.page == 0) return;
  for (std::int64_t n = 0; n < p.pages; ++n) {  // a shuffle
    pages.push_back(std::int32_t(n));
    std::swap(pages.back(), pages[std::size_t(Random{seed}.stream(6).below(std::uint64_t(n), std::uint64_t(n + 1)))]);
  }
  copy(with.pages, pages);
}

std::uint64_t machine_limit(const Device& d) {
  const std::uint64_t sixteenth = d.memory_bytes / 16;
  return d.memory_bytes - (d.kind == DeviceKind::cpu ? sixteenth : std::min<std::uint64_t>(sixteenth, 1u << 30));
}

std::uint64_t AttentionSweep::limit(const Device& d) const { return std::min(memory.value_or(machine_limit(d)), machine_limit(d)); }

std::string AttentionSweep::limit_name(const Device& d) const { return memory && *memory < machine_limit(d) ? "--memory" : "this machine"; }

std::string describe(const Problem& p) {
  std::string more;
  if (p.value_dim() != p.head_dim) more += fmt::format(" dim_v {}", p.value_dim());
  if (p.softcap != 0) more += fmt::format(" softcap {}", p.softcap);
  if (p.dropout != 0) more += fmt::format(" dropout {}", p.dropout);
  if (p.sink) more += " sink";
  if (p.alibi) more += " alibi";
  if (p.documents != 0) more += fmt::format(" {} documents", p.documents);
  if (p.page != 0) more += fmt::format(" pages of {}", p.page);
  return fmt::format("{} dim {} len {}x{} {}{}", name_of(p.precision), p.head_dim, p.len_q, p.len_k, name_of(p.mask), more);
}

std::string AttentionCase::key(const AttentionSweep& s) const {
  AttentionSweep alone = s;
  alone.variants = {variant ? std::string(variant->name) : wanted};
  alone.dtypes = {problem.precision};
  alone.masks = {problem.mask};
  alone.dims = {problem.head_dim};
  alone.lens = {problem.len_q};
  return key_of(alone);
}

namespace {

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Variant& v : attention::variants())
    for (const auto name : {v.family, v.name})
      if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  return names;
}

std::string refusal_of(const Variant& v, const Problem& p, const Device& device, Passes passes) {
  if (p.deterministic && !v.deterministic) return "does not promise the same bits on every run";
  Support s = v.supports(p, device, attention::Pass::forward);
  if (s.ok && passes != Passes::forward) s = v.supports(p, device, attention::Pass::backward);
  return s.ok ? "" : s.why;
}

// A name stands for itself, a family for its best member that serves the problem.
AttentionCase case_of(const std::string& wanted, const Problem& p, const Device& device, Passes passes) {
  AttentionCase c{p, wanted, nullptr, ""};
  for (const Variant& v : attention::variants()) {
    if (wanted != v.name && wanted != v.family) continue;
    const std::string refusal = refusal_of(v, p, device, passes);
    if (refusal.empty()) {
      c.variant = &v;
      c.refusal.clear();
      return c;
    }
    if (!c.refusal.empty()) c.refusal += "; ";
    c.refusal += wanted == v.name ? refusal : fmt::format("{}: {}", v.name, refusal);
  }
  return c;
}

// What "all" means here: every variant of this kind of machine, the plain ones first, so that others are read against them.
std::vector<std::string> variants_of(const AttentionSweep& s, const Device& device) {
  const auto names = all_names();
  std::vector<std::string> wanted;
  for (const std::string& name : s.variants) {
    if (name == "all") {
      const std::int64_t len =
          s.lens.empty() ? 128 : *std::min_element(s.lens.begin(), s.lens.end());  // few new positions have a kernel of their own
      const Problem easy = s.problem({}, attention::Mask::full(), 64, len),
                    small = s.problem({DType::bf16, Math::exact}, easy.mask, 64, len);
      for (const Variant& v : attention::variants())
        if (v.supports(easy, device, attention::Pass::forward).ok || v.supports(small, device, attention::Pass::forward).ok)
          wanted.insert(v.family == "plain" ? wanted.begin() : wanted.end(), std::string(v.name));
      continue;
    }
    check(std::find(names.begin(), names.end(), name) != names.end(), Code::bad_argument,
          "--attention: there is no '{}'; choose from {}, all{}", name, joined(names), did_you_mean(name, names));
    wanted.push_back(name);
  }
  return wanted;
}

}  // namespace

std::vector<AttentionCase> cases_of(const AttentionSweep& s, const Device& device) {
  check(s.protocol.steps >= 1, Code::bad_argument, "--steps: {} measures nothing; at least 1", s.protocol.steps);
  check(s.documents.empty() || (s.cached.empty() && s.len_k == 0 && s.page == 0), Code::bad_argument,
        "--documents: their lengths are the row's length, and there is no cache; leave --cached, --len-k and --page out");
  check(s.cached.empty() || s.len_k == 0, Code::bad_argument, "--cached: it says how long the keys are; leave --len-k out");
  check(s.page == 0 || s.passes == Passes::forward, Code::bad_argument, "--page: a cache in pages has no backward; add --pass forward");
  const auto wanted = variants_of(s, device);
  std::vector<AttentionCase> cases;
  std::set<std::string> asked;
  const std::size_t axes[] = {s.dtypes.size(), s.masks.size(), s.dims.size(), s.lens.size(), wanted.size()};
  const auto smallest = [](Problem p) {
    for (auto* size : {&p.batch, &p.len_q, &p.len_k, &p.pages}) *size = std::min<std::int64_t>(*size, 1);
    return p;
  };
  bench::for_each_point(axes, [&](std::span<const std::size_t> at) {
    const Problem p = s.problem(s.dtypes[at[0]], s.masks[at[1]], s.dims[at[2]], s.lens[at[3]]);
    AttentionCase c;
    try {
      attention::check(p);
      c = case_of(wanted[at[4]], p, device, s.passes);
    } catch (const Error& e) {
      attention::check(smallest(p));  // what is allowed when it is small is only too large: a row, not the end of the sweep
      c = case_of(wanted[at[4]], smallest(p), device, s.passes);
      c.problem = p;
      c.too_large = e.what();
    }
    if (asked.insert(c.key(s)).second) cases.push_back(std::move(c));
  });
  return cases;
}

}  // namespace headroom::studies
