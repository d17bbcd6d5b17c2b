#include "studies/attention_sweep.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/convert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "memory/block.h"
#include "ops/attention/sampled.h"

namespace headroom::studies {

using attention::Problem;
using attention::Variant;

Problem AttentionSweep::problem(Precision precision, const attention::Mask& mask, std::int64_t dim, std::int64_t len) const {
  return {.batch = batch,
          .heads = heads,
          .kv_heads = kv_heads ? kv_heads : heads,
          .len_q = len,
          .len_k = len_k ? len_k : len,
          .head_dim = dim,
          .mask = mask,
          .precision = precision,
          .deterministic = deterministic};
}

std::uint64_t machine_limit(const Device& d) { return d.memory_bytes / 16 * 15; }

std::uint64_t AttentionSweep::limit(const Device& d) const { return std::min(memory.value_or(machine_limit(d)), machine_limit(d)); }

std::string AttentionSweep::limit_name(const Device& d) const { return memory && *memory < machine_limit(d) ? "--memory" : "this machine"; }

std::string describe(const Problem& p) {
  return fmt::format("{} dim {} len {}x{} {}", name_of(p.precision), p.head_dim, p.len_q, p.len_k, name_of(p.mask));
}

std::string AttentionCase::key(const AttentionSweep& s) const {
  const Problem& p = problem;
  return nlohmann::ordered_json{{"variant", variant ? std::string(variant->name) : wanted},
                                {"dtype", name_of(p.precision)},
                                {"batch", p.batch},
                                {"heads", p.heads},
                                {"kv_heads", p.kv_heads},
                                {"dim", p.head_dim},
                                {"len_q", p.len_q},
                                {"len_k", p.len_k},
                                {"mask", name_of(p.mask)},
                                {"passes", int(s.passes)},
                                {"deterministic", p.deterministic},
                                {"memory", s.memory.value_or(0)},
                                {"seed", s.seed},
                                {"warmup", s.protocol.warmup},
                                {"steps", s.protocol.steps},
                                {"until", s.protocol.until},
                                {"seconds", s.protocol.seconds}}
      .dump();
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
      c.variant = &v, c.refusal.clear();
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
      const Problem easy = s.problem({}, attention::Mask::full(), 64, 128),
                    small = s.problem({DType::bf16, Math::exact}, easy.mask, 64, 128);
      for (const Variant& v : attention::variants())
        if (v.supports(easy, device, attention::Pass::forward).ok || v.supports(small, device, attention::Pass::forward).ok)
          wanted.insert(v.family == "plain" ? wanted.begin() : wanted.end(), std::string(v.name));
      continue;
    }
    check(std::find(names.begin(), names.end(), name) != names.end(), Code::bad_argument,
          "--variant: there is no '{}'; choose from {}, all{}", name, joined(names), did_you_mean(name, names));
    wanted.push_back(name);
  }
  return wanted;
}

void fill(const Tensor& t, Random random, Threads& threads) {
  constexpr std::int64_t piece = 1 << 16;
  const auto fill_as = [&]<class T>() {
    threads.share((t.count() + piece - 1) / piece, [&](std::int64_t n, int) {
      for (auto i = n * piece; i < std::min((n + 1) * piece, t.count()); ++i) t.as<T>()[i] = narrow<T>(random.normal(std::uint64_t(i)));
    });
  };
  with_float(t.dtype, fill_as);
}

class Sweep {
 public:
  Sweep(const AttentionSweep& s, const Device& device, const SweepHooks& hooks) : s_(s), device_(device), hooks_(hooks) {}

  AttentionRow measured(const AttentionCase& c) {
    AttentionRow row = blank(c);
    if (!c.variant) {
      row.status = "refused", row.why = c.refusal;
      return row;
    }
    if (!c.too_large.empty()) {
      row.status = "oom", row.why = c.too_large;
      return row;
    }
    try {
      measure(c, row);
    } catch (const std::bad_alloc&) {
      give_up(row, "oom", "the system refused memory for the check against FP64");
    } catch (const Error& e) {
      give_up(row, e.at.code == Code::out_of_memory ? "oom" : "failed", e.what());
    } catch (const std::exception& e) { give_up(row, "failed", e.what()); }
    return row;
  }

 private:
  void measure(const AttentionCase& c, AttentionRow& row) {
    const AttentionForecast forecast = forecast_case(c.problem, *c.variant, s_.passes, device_, threads_.count());
    row.forecast_peak_bytes = forecast.bytes.peak;
    row.saved_bytes = forecast.bytes.saved;
    const std::string misfit = first_misfit(c.problem, *c.variant, s_.passes, device_, threads_.count(), s_.limit(device_));
    if (misfit.empty()) return run(c, std::size_t(forecast.bytes.peak), row);
    give_up(row, "oom", fmt::format("{} allows {}; {}", s_.limit_name(device_), s_.limit(device_), misfit));
  }

  AttentionRow blank(const AttentionCase& c) const {
    const Problem& p = c.problem;
    AttentionRow r;
    r.variant = c.variant ? std::string(c.variant->name) : c.wanted;
    r.device = device_.name, r.dtype = name_of(p.precision), r.mask = attention::name_of(p.mask);
    r.batch = p.batch, r.heads = p.heads, r.kv_heads = p.kv_heads, r.dim = p.head_dim, r.len_q = p.len_q, r.len_k = p.len_k;
    return r;
  }

  static void give_up(AttentionRow& row, const std::string& status, const std::string& said) {
    // What was measured before the end is not a row's worth.
    row.fwd_ms = row.bwd_ms = row.fwd_ms_std = row.bwd_ms_std = row.fwd_tflops = row.bwd_tflops = std::nullopt;
    row.max_error_o = row.max_error_dq = row.max_error_dk = row.max_error_dv = std::nullopt;
    row.peak_bytes = std::nullopt;
    row.fwd = row.bwd = {};
    row.steps = row.warmup = 0;
    row.status = status;
    row.why = status == "oom" && row.forecast_peak_bytes ? fmt::format("needs {} bytes; {}", *row.forecast_peak_bytes, said) : said;
  }

  static void say(AttentionRow& row, const std::string& what) { row.why += (row.why.empty() ? "" : "; ") + what; }

  void run(const AttentionCase& c, std::size_t bytes, AttentionRow& row) {
    const Problem& p = c.problem;
    const Random random{s_.seed};
    const Block block(std::max<std::size_t>(bytes, 1));
    Ledger ledger;
    Arena arena(block.data(), bytes, &ledger);
    Context ctx{.arena = arena, .device = device_, .threads = &threads_};
    std::string short_of;  // what the bounds ended before --until was content
    const auto once_or_measured = [&](const char* name, bool wanted, const std::function<void()>& pass, bench::Stats& stats) {
      if (!wanted) return pass();
      const auto m = bench::measure(pass, s_.protocol, bench::host_timer(), hooks_.stop);
      stats = m.ms;
      if (m.complete && !m.reached)
        short_of += fmt::format(
            "{}{} was ended by {} after {} calls: its mean is known to {:.2g} %, --until asks for {:.2g} % of at least {} calls",
            short_of.empty() ? "" : "; ", name, stats.count >= s_.protocol.steps ? "--steps" : "--seconds", stats.count,
            100 * stats.standard_error() / stats.mean, 100 * s_.protocol.until, bench::Protocol::least_steps_until);
      row.warmup = m.warmup;
      row.steps = row.steps ? std::min<std::int64_t>(row.steps, stats.count) : stats.count;
    };
    AttentionVisit visit;
    visit.fill_inputs = [&](const AttentionTensors& t) {
      fill(t.fwd.q, random.stream(1), threads_), fill(t.fwd.k, random.stream(2), threads_), fill(t.fwd.v, random.stream(3), threads_);
    };
    visit.fill_d_o = [&](const AttentionTensors& t) { fill(t.d_o, random.stream(4), threads_); };
    visit.forward = [&](const std::function<void()>& pass) { once_or_measured("forward", s_.passes != Passes::backward, pass, row.fwd); };
    visit.backward = [&](const std::function<void()>& pass) { once_or_measured("backward", true, pass, row.bwd); };
    visit.judge = [&](const AttentionTensors& t) {
      if (!hooks_.stop()) judge(p, t, row);
    };
    const AttentionBytes ran = walk_case(p, *c.variant, s_.passes, ctx, visit);
    row.peak_bytes = ran.peak;
    row.saved_bytes = ran.saved;
    record(row.fwd, attention::forward_flops(p), row.fwd_ms, row.fwd_ms_std, row.fwd_tflops);
    record(row.bwd, attention::backward_flops(p), row.bwd_ms, row.bwd_ms_std, row.bwd_tflops);
    const double drift = std::max(row.fwd.drift, row.bwd.drift);
    if (row.ok() && row.steps >= 20 && drift > 1.1)
      say(row, fmt::format("slowed down by {:.0f} % while it was measured", 100 * (drift - 1)));
    if (row.ok() && !short_of.empty()) say(row, short_of);
  }

  static void record(const bench::Stats& s, double flops, std::optional<double>& ms, std::optional<double>& std,
                     std::optional<double>& tflops) {
    if (s.count == 0) return;
    ms = s.mean, std = s.std;
    tflops = s.mean > 0 ? flops / s.mean / 1e9 : 0;
  }

  void judge(const Problem& p, const AttentionTensors& t, AttentionRow& row) {
    const auto& oracle = oracle_of(p, t);
    const auto verdict = oracle.judge(t.fwd.o, t.fwd.lse, t.dq, t.dk, t.dv);
    row.status = "ok";
    const auto take = [&](const char* name, const attention::Judged& j, std::optional<double>* column) {
      if (column) *column = j.max_error;
      if (j.worst <= 1) return;
      say(row, fmt::format("{} is off by up to {:.2e}, {:.3g} times what rounding explains", name, j.max_error, j.worst));
      row.status = "failed";
    };
    take("O", verdict.o, &row.max_error_o);
    take("LSE", verdict.lse, nullptr);
    if (s_.passes == Passes::forward) return;
    take("dQ", verdict.dq, &row.max_error_dq);
    take("dK", verdict.dk, &row.max_error_dk);
    take("dV", verdict.dv, &row.max_error_dv);
  }

  // Variants of one problem are judged by one oracle: the inputs are the same bits.
  const attention::SampledOracle& oracle_of(const Problem& p, const AttentionTensors& t) {
    const std::string name = fmt::format("{} {} {} {}", describe(p), p.batch, p.heads, p.kv_heads);
    if (!oracle_ || oracle_name_ != name)
      oracle_ = std::make_unique<attention::SampledOracle>(p, t.fwd.q, t.fwd.k, t.fwd.v, t.d_o, threads_, s_.seed), oracle_name_ = name;
    return *oracle_;
  }

  const AttentionSweep& s_;
  const Device& device_;
  const SweepHooks& hooks_;
  Threads threads_;
  std::unique_ptr<attention::SampledOracle> oracle_;
  std::string oracle_name_;
};

double seconds_expected(const AttentionSweep& s, const AttentionCase& c) {  // only to share out the progress
  const double call = 3.5 * attention::forward_flops(c.problem) / 5e10;
  const double enough = s.protocol.seconds > 0 ? std::min(s.protocol.steps * call, 3 * s.protocol.seconds) : s.protocol.steps * call;
  return c.variant && c.too_large.empty() ? 0.01 + enough + 4 * call : 0.01;
}

}  // namespace

std::vector<AttentionCase> cases_of(const AttentionSweep& s, const Device& device) {
  check(s.protocol.steps >= 1, Code::bad_argument, "--steps: {} measures nothing; at least 1", s.protocol.steps);
  const auto wanted = variants_of(s, device);
  std::vector<AttentionCase> cases;
  const std::size_t axes[] = {s.dtypes.size(), s.masks.size(), s.dims.size(), s.lens.size(), wanted.size()};
  const auto smallest = [](Problem p) {
    for (auto* size : {&p.batch, &p.len_q, &p.len_k}) *size = std::min<std::int64_t>(*size, 1);
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
      c.problem = p, c.too_large = e.what();
    }
    const std::string key = c.key(s);
    if (std::none_of(cases.begin(), cases.end(), [&](const AttentionCase& other) { return other.key(s) == key; }))
      cases.push_back(std::move(c));
  });
  return cases;
}

SweepResult run_sweep(const AttentionSweep& s, const Device& device, const SweepHooks& hooks) {
  const auto cases = cases_of(s, device);
  double total = 0, done = 0;
  for (const AttentionCase& c : cases) total += seconds_expected(s, c);
  Sweep sweep(s, device, hooks);
  SweepResult result;
  result.asked = cases.size();
  for (const AttentionCase& c : cases) {
    if (hooks.stop()) break;
    const std::string key = c.key(s);
    if (hooks.progress)
      hooks.progress(done / total, fmt::format("{} of {}: {} {}", result.rows.size() + 1, cases.size(),
                                               c.variant ? c.variant->name : c.wanted, describe(c.problem)));
    auto known = hooks.known ? hooks.known(key) : std::nullopt;
    if (known) {
      result.rows.push_back(std::move(*known));
    } else {
      AttentionRow row = sweep.measured(c);
      if (row.status.empty()) break;  // stopped in its middle
      if (hooks.finished) hooks.finished(key, row);
      result.rows.push_back(std::move(row));
    }
    done += seconds_expected(s, c);
  }
  return result;
}

}  // namespace headroom::studies
