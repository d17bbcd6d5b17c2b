#include "studies/attention/sweep.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "gpu/place.h"
#include "instruments/bench/gpu_timer.h"
#include "ops/attention/sampled/sampled_rows.h"

namespace headroom::studies {

using attention::Problem;
using attention::Variant;

namespace {

class Sweep {
 public:
  Sweep(const AttentionSweep& s, const Device& device, const SweepHooks& hooks) : s_(s), device_(device), hooks_(hooks), place_(device) {}

  std::optional<AttentionRow> measured(const AttentionCase& c) {  // nothing: stopped in its middle
    AttentionRow row = blank(c);
    row.status = Status::interrupted;  // until it is judged
    if (!c.variant) {
      row.status = Status::refused;
      row.why = c.refusal;
      return row;
    }
    if (!c.too_large.empty()) {
      row.status = Status::oom;
      row.why = c.too_large;
      return row;
    }
    try {
      measure(c, row);
    } catch (const std::bad_alloc&) { give_up(row, Status::oom, "the system refused memory beside the arena"); } catch (const Error& e) {
      give_up(row, e.at.code == Code::out_of_memory ? Status::oom : Status::failed, e.what());
    } catch (const std::exception& e) { give_up(row, Status::failed, e.what()); }
    return row.status == Status::interrupted ? std::nullopt : std::optional(std::move(row));
  }

 private:
  void measure(const AttentionCase& c, AttentionRow& row) {
    const AttentionForecast forecast = forecast_case(c.problem, *c.variant, s_.passes, device_, workers());
    row.forecast_peak_bytes = forecast.bytes.peak;
    row.saved_bytes = forecast.bytes.saved;
    const std::string misfit = first_misfit(c.problem, *c.variant, s_.passes, device_, workers(), s_.limit(device_));
    if (misfit.empty()) return run(c, std::size_t(forecast.bytes.peak), row);
    give_up(row, Status::oom, fmt::format("{} allows {}; {}", s_.limit_name(device_), bytes_exactly(s_.limit(device_)), misfit));
  }

  AttentionRow blank(const AttentionCase& c) const {
    const Problem& p = c.problem;
    AttentionRow r;
    r.variant = c.variant ? std::string(c.variant->name) : c.wanted;
    r.device = device_.name;
    r.dtype = p.precision;
    r.mask = p.mask;
    r.batch = p.batch;
    r.heads = p.heads;
    r.kv_heads = p.kv_heads;
    r.dim = p.head_dim;
    r.len_q = p.len_q;
    r.len_k = p.len_k;
    const auto listed = [](const std::vector<std::int64_t>& lengths, std::string& words) {
      for (const std::int64_t one : lengths) words += fmt::format("{}{}", words.empty() ? "" : ",", one);
    };
    listed(s_.documents, r.documents);
    listed(s_.cached, r.cached);
    r.page = p.page;
    r.dim_v = p.value_dim();
    r.softcap = s_.softcap;
    r.dropout = s_.dropout;
    r.sink = p.sink;
    r.alibi = p.alibi;
    return r;
  }

  static void give_up(AttentionRow& row, Status status, const std::string& said) {
    // What was measured before the end is not a row's worth.
    row.fwd_ms = row.bwd_ms = row.fwd_ms_std = row.bwd_ms_std = row.fwd_tflops = row.bwd_tflops = std::nullopt;
    row.max_error_o = row.max_error_dq = row.max_error_dk = row.max_error_dv = std::nullopt;
    row.peak_bytes = std::nullopt;
    row.fwd = row.bwd = {};
    row.steps = row.warmup = 0;
    row.status = status;
    row.why = status == Status::oom && row.forecast_peak_bytes
                  ? fmt::format("needs {}; {}", bytes_exactly(std::uint64_t(*row.forecast_peak_bytes)), said)
                  : said;
  }

  int workers() { return place_.on_gpu() ? 1 : place_.threads().count(); }

  static void say(AttentionRow& row, const std::string& what) { row.why += (row.why.empty() ? "" : "; ") + what; }

  void run(const AttentionCase& c, std::size_t bytes, AttentionRow& row) {
    const Problem& p = c.problem;
    const Random random{s_.seed};
    const PlaceMemory memory = place_.take(std::max<std::size_t>(bytes, 1));
    Ledger ledger;
    Arena arena(memory.data(), bytes, &ledger);
    Context ctx{.arena = arena, .device = device_, .threads = place_.on_gpu() ? nullptr : &place_.threads(), .stream = place_.stream()};
    std::string short_of;  // what the bounds ended before --until was content
    const auto once_or_measured = [&](const char* name, bool wanted, const std::function<void()>& pass, bench::Stats& stats) {
      if (!wanted) return pass();
      const auto m = bench::measure(pass, s_.protocol, bench::timer_at(place_), hooks_.stop);
      stats = m.ms;
      if (m.complete && !m.reached)
        short_of += fmt::format(
            "{}{} was ended by {} after {} calls: the error of its mean is {:.2g} %, --until asks for {:.2g} % over at least {} calls",
            short_of.empty() ? "" : "; ", name, stats.count >= s_.protocol.steps ? "--steps" : "--seconds", stats.count,
            100 * stats.standard_error() / stats.mean, 100 * s_.protocol.until, bench::Protocol::least_steps_until);
      row.warmup = m.warmup;
      row.steps = row.steps ? std::min<std::int64_t>(row.steps, stats.count) : stats.count;
    };
    AttentionVisit visit;
    visit.seed = s_.seed;
    visit.fill_inputs = [&](const AttentionTensors& t) {
      place_.fill_normal(t.fwd.q, random.stream(1));
      place_.fill_normal(t.fwd.k, random.stream(2));
      place_.fill_normal(t.fwd.v, random.stream(3));
      s_.fill(place_, p, t.fwd.with);
    };
    visit.fill_d_o = [&](const AttentionTensors& t) { place_.fill_normal(t.d_o, random.stream(4)); };
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
    ms = s.mean;
    std = s.spread();
    tflops = s.mean > 0 ? flops / s.mean / 1e9 : 0;
  }

  void judge(const Problem& p, const AttentionTensors& t, AttentionRow& row) {
    const auto& oracle = oracle_of(p, t);
    const auto verdict = oracle.judge(t.fwd.o, t.fwd.lse, t.dq, t.dk, t.dv);
    row.status = Status::ok;
    const auto take = [&](const char* name, const attention::Judged& j, std::optional<double>* column) {
      if (column) *column = j.max_error;
      if (j.worst <= 1) return;
      say(row, fmt::format("{} is off by up to {:.2e}, {:.3g} times what rounding explains", name, j.max_error, j.worst));
      row.status = Status::failed;
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
    if (!oracle_ || oracle_name_ != name) {
      extras_ = {};
      const attention::Extras& with = t.fwd.with;
      const attention::Extras here{.sink = here_too(with.sink),
                                   .cu_q = here_too(with.cu_q),
                                   .cu_k = here_too(with.cu_k),
                                   .pages = here_too(with.pages),
                                   .seed = with.seed,
                                   .offset = with.offset,
                                   .alibi = here_too(with.alibi),
                                   .q_scale = here_too(with.q_scale),
                                   .k_scale = here_too(with.k_scale),
                                   .v_scale = here_too(with.v_scale)};
      oracle_ = std::make_unique<attention::SampledOracle>(
          p, t.fwd.q, t.fwd.k, t.fwd.v, t.d_o, place_.threads(), s_.seed,
          [this](const Tensor& x, std::int64_t batch, std::int64_t head) { return head_of(x, batch, head); }, sums_there(), here);
      oracle_name_ = name;
    }
    return *oracle_;
  }

  std::vector<double> head_of(const Tensor& t, std::int64_t batch, std::int64_t head) const {
    if (!place_.on_gpu()) return attention::head_in_memory(t, batch, head);
    const std::size_t size = size_of(t.dtype), row_bytes = std::size_t(t.shape[3]) * size;
    std::vector<std::byte> raw(std::size_t(t.shape[1]) * row_bytes);
    place_.copy_out(raw.data(), t.as<std::byte>() + (batch * t.stride[0] + head * t.stride[2]) * std::int64_t(size), row_bytes,
                    std::size_t(t.shape[1]), std::size_t(t.stride[1]) * size);
    return attention::head_in_memory(Tensor(raw.data(), t.dtype, {1, t.shape[1], 1, t.shape[3]}), 0, 0);
  }

  Tensor here_too(const Tensor& t) {  // copies what lies on the place, for the oracle
    if (!t) return {};
    extras_.emplace_back(t.bytes());
    place_.copy_out(extras_.back().data(), t.data, t.bytes());
    return Tensor(extras_.back().data(), t.dtype, t.shape);
  }

  attention::SumRows sums_there() const {
    if (!place_.on_gpu()) return nullptr;
    return [this](const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, std::int64_t batch,
                  std::int64_t head) { return attention::row_sums_on_gpu(p, q, k, v, d_o, batch, head, place_); };
  }

  const AttentionSweep& s_;
  const Device& device_;
  const SweepHooks& hooks_;
  Place place_;
  std::unique_ptr<attention::SampledOracle> oracle_;
  std::string oracle_name_;
  std::list<std::vector<std::byte>> extras_;
};

double seconds_expected(const AttentionSweep& s, const AttentionCase& c) {  // only to share out the progress
  const double call = 3.5 * attention::forward_flops(c.problem) / 5e10;
  const double enough = s.protocol.seconds > 0 ? std::min(s.protocol.steps * call, 3 * s.protocol.seconds) : s.protocol.steps * call;
  return c.variant && c.too_large.empty() ? 0.01 + enough + 4 * call : 0.01;
}

}  // namespace

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
    if (known && known->status != Status::failed) {  // what failed is worth another try
      result.rows.push_back(std::move(*known));
    } else {
      auto row = sweep.measured(c);
      if (!row) break;
      if (hooks.finished) hooks.finished(key, *row);
      result.rows.push_back(std::move(*row));
    }
    done += seconds_expected(s, c);
  }
  return result;
}

}  // namespace headroom::studies
