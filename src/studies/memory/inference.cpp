#include "studies/memory/inference.h"

#include <algorithm>
#include <set>

#include "base/efficiency.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/tensor_parallel.h"
#include "gpu/architecture.h"
#include "memory/account.h"
#include "report/described_table.h"
#include "store/described_json.h"
#include "studies/memory/answer.h"
#include "studies/memory/edge_table.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

namespace {

using engine::Inference;

bool by_sequences(const ModelMemory& m) { return m.ranks.count > 1 && m.serving.attention_by == engine::AttentionBy::sequences; }
engine::KeyHeads key_heads_of(const ModelMemory& m) {
  return m.serving.attention_by == engine::AttentionBy::sequences ? engine::KeyHeads::whole : engine::KeyHeads::repeated;
}
engine::Decoder share_of(const ModelMemory& m) { return engine::share_of(m.model, m.ranks.count, key_heads_of(m)); }

void check_shared(const ModelMemory& m) {
  check(m.ranks.count > 1 || m.serving.attention_by == engine::AttentionBy::heads, Code::bad_argument,
        "--attention-by sequences shares sequences out over several GPUs; say with --gpus how many");
}

bool has_latents(const engine::Decoder& d) {
  return std::ranges::any_of(d.layers, [](const auto& l) { return l.attention.latent(); });
}

engine::WeightFormat format_of(const ModelMemory& m, const engine::Decoder& d) {
  const auto known = engine::weight_format(d, m.serving.weights);
  return known.value_or(engine::WeightFormat{engine::WeightsAs::precision});
}

engine::Generation generation_of(const ModelMemory& m, const engine::Decoder& d, std::int64_t batch, std::int64_t len,
                                 Precision precision) {
  engine::Generation g{batch, len, precision, m.attention_family()};
  g.weights = format_of(m, d);
  if (m.serving.cache == CacheAs::fp8) g.cache = DType::e4m3;
  g.page = m.serving.page, g.gpus = m.ranks.count;
  if (by_sequences(m)) g.by = m.serving.attention_by;
  return g;
}

// What is measured of a memory is the rate of a copy. Reading alone is quicker: of the 4.8 TB/s of an H200's datasheet a copy reaches 4.19, and our
// decoding kernel has read 4.49; of an H100's 3.35 a copy reaches 3.00.
constexpr double most_reading_over_copying = 1.15;

// The time of ops at their ceilings, that of 8 bits where servers compute in those: products of such weights, and attention of such a cache.
double ms_at_ceilings(const Walk& walk, const ModelMemory& m, Precision precision) {
  using engine::WeightsAs;
  const engine::WeightFormat format = format_of(m, m.model);
  const bool eight = format.as == WeightsAs::fp8 || format.as == WeightsAs::int8 || format.as == WeightsAs::mxfp4;
  Ceilings c = m.device.ceilings;
  if (c.copy_bytes_per_s <= 0 || c.of(precision) <= 0) return 0;
  if (!by_datasheet(c)) c.copy_bytes_per_s *= most_reading_over_copying;
  if (format.as == WeightsAs::int8) c.fp8_flops = std::max(c.fp8_flops, 2 * c.bf16_flops);  // tensor cores since Turing
  const auto weights = eight ? engine::param_table(m.model) : std::vector<engine::ParamSpec>{};
  double ms = 0;
  for (OpCall op : walk.steps) {
    const bool product = op.work == Work::matmul && eight && format.quantises_product(weights, op.op),
               attention = op.work == Work::attention && m.serving.cache == CacheAs::fp8;
    if ((product || attention) && c.fp8_flops > c.of(op.precision)) op.precision = {DType::e4m3};
    ms += engine::roofline_ms(op, precision, c);
  }
  return ms;
}

// Where this library's kernels do not run, servers have their own: attention's scratch is counted as on the oldest card of ours.
Device counted_on(const Device& d) {
  Device like = d;
  if (!why_no_kernels(d).empty()) like.sm = oldest_sm;
  return like;
}

InferenceRow row_of(const ModelMemory& m, const Room& room, std::int64_t batch, std::int64_t len, Precision precision) {
  const engine::Decoder d = share_of(m);
  const InferenceBytes b = inference_bytes(m, batch, len, precision);
  const std::uint64_t peak = b.peak();
  InferenceRow r{.model = m.model.name, .batch = batch, .len = len, .precision = precision};
  r.weights = format_of(m, m.model).as;
  r.cache = m.serving.cache, r.page = m.serving.page, r.chunk = m.serving.chunk, r.gpus = m.ranks.count;
  r.attention_by = m.serving.attention_by;
  r.params = engine::param_count(m.model);
  r.active_params = engine::active_param_count(m.model);
  r.weight_bytes = b.weight_bytes;
  r.cache_bytes = b.cache_bytes;
  r.cache_bytes_of_token = std::uint64_t(engine::cache_bytes(d, 1, 1, m.serving.cache == CacheAs::fp8 ? DType::e4m3 : precision.dtype));
  r.prefill_peak_bytes = b.prefill_peak_bytes;
  r.decode_peak_bytes = b.decode_peak_bytes;
  r.needed_bytes = room.needed_bytes(peak);
  r.fits = room.holds(peak);
  if (b.decode_ms_at_least > 0) {
    r.prefill_ms_at_least = b.prefill_ms_at_least, r.decode_ms_at_least = b.decode_ms_at_least;
    r.tokens_per_s_at_most = 1e3 * double(batch) / b.decode_ms_at_least;
  }
  return r;
}

std::int64_t largest_batch(const ModelMemory& m, const Room& room, std::int64_t len, Precision p) {
  return largest((std::int64_t(1) << 31) / len - 1, [&](std::int64_t batch) { return row_of(m, room, batch, len, p).fits; });
}

// Each row's bytes by kind, beside the limit.
Chart picture_of_serving(const std::vector<InferenceRow>& rows, const Room& room) {
  Chart c{"Bytes of inference by kind", "", "", Unit::bytes, false, {}, Chart::Kind::bars};
  for (const char* kind : {"weights", "cache", "activations, scratch", "context, libraries"}) c.series.push_back({kind, {}});
  for (const InferenceRow& row : rows) {
    const auto at = double(c.ticks.size());
    const std::uint64_t named = row.weight_bytes + row.cache_bytes + room.overhead_bytes;
    c.series[0].points.emplace_back(at, double(row.weight_bytes));
    c.series[1].points.emplace_back(at, double(row.cache_bytes));
    c.series[2].points.emplace_back(at, double(row.needed_bytes - std::min(named, row.needed_bytes)));
    c.series[3].points.emplace_back(at, double(room.overhead_bytes));
    c.ticks.push_back(fmt::format("{} batch {} len {}", name_of(row.precision), row.batch, row.len));
  }
  c.marks.push_back({fmt::format("memory {}", bytes_in_words(double(room.memory_bytes))), double(room.memory_bytes)});
  return c;
}

void say_what_is_counted(const ModelMemory& m, const Room& room, Record& r) {
  const engine::Decoder& d = m.model;
  const bool said_by_file = m.serving.weights == engine::WeightsAs::checkpoint,
             known = engine::weight_format(d, m.serving.weights).has_value();
  for (const std::string& what : m.model.not_counted)
    if (!what.starts_with("the quantisation of") || (said_by_file && !known))
      r.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  if (const std::string past = engine::past_its_positions(d, std::ranges::max(m.lens)); !past.empty()) r.add(Part{Note{past}});
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  if (format_of(m, d).as != engine::WeightsAs::precision)
    r.add(
        Part{Note{"Quantised weights are read as they are held and written out nowhere, as fused kernels do; embedding, head, norms and "
                  "routers are in the precision. Products of 8-bit and MXFP4 weights are timed at the card's ceiling of 8 bits, those of "
                  "int4 and nf4 in the precision."}});
  if (!why_no_kernels(m.device).empty())
    r.add(Part{Note{fmt::format("This library's kernels do not run on {}: what attention takes beside its tensors is counted as on sm_{}.",
                                m.device.name, oldest_sm)}});
  if (m.ranks.count > 1)
    r.add(Part{Note{fmt::format("Bytes are of one of {} GPUs: {}.", m.ranks.count,
                                by_sequences(m)
                                    ? "all heads for sequences of its own; feed-forward columns and vocabulary divided, tokens gathered "
                                      "before a feed-forward layer and added up after it"
                                    : "heads, feed-forward columns and vocabulary divided, two all-reduces a layer")}});
  if (m.ranks.count > 1 && !by_sequences(m) && has_latents(d))
    r.add(Part{
        Note{"Every GPU holds the latents of all sequences. With --attention-by sequences each has other sequences, as servers do that run "
             "such attention in data parallel."}});
  r.add(Part{Note{
      "A layer with a sliding window, or with attention in chunks, caches no more than that. Prefill reads one prompt after another, "
      "beside the caches of all "
      "sequences; decode makes one token for each sequence against the whole cache. Times are lower bounds, tokens per second "
      "an upper one: every op at its ceiling, nothing between them. Memory is read at its datasheet's rate, or 1.15 times as fast as a "
      "copy was measured."}});
  if (d.has_experts())
    r.add(Part{Note{"Every token chooses its experts evenly and by itself: the weights of those that some token chose are read."}});
  if (has_latents(d))
    r.add(Part{
        Note{"Latent attention decodes with absorbed projections, against the latents themselves; prefill writes out keys and values of "
             "all heads."}});
}

// Ways to hold it in less, the cheapest first.
std::vector<Lever<ModelMemory>> levers_of_serving() {
  using engine::WeightsAs;
  const auto weights = [](WeightsAs as) {
    return [as](ModelMemory& m) {
      const auto now = engine::weight_format(m.model, m.serving.weights);
      const bool whole = now && (now->as == WeightsAs::precision || (now->as == WeightsAs::fp8 && as == WeightsAs::int4));
      m.serving.weights = as;
      return whole;
    };
  };
  const auto sequences = [](ModelMemory& m) {
    const bool other = m.ranks.count > 1 && !by_sequences(m) && has_latents(m.model);
    if (other) m.serving.attention_by = engine::AttentionBy::sequences;
    return other;
  };
  return {{"--attention-by sequences", sequences},
          {"--chunk 2048", [](ModelMemory& m) { return m.serving.chunk == 0 && (m.serving.chunk = 2048, true); }},
          {"--cache fp8", [](ModelMemory& m) { return m.serving.cache == CacheAs::precision && (m.serving.cache = CacheAs::fp8, true); }},
          {"--weights fp8", weights(WeightsAs::fp8)},
          {"--weights int4", weights(WeightsAs::int4)}};
}

std::optional<std::uint64_t> peak_of_serving(const ModelMemory& m, std::int64_t batch, std::int64_t len, Precision p) {
  try {
    return inference_bytes(m, batch, len, p).peak();
  } catch (const Error& e) {
    if (e.at.code == Code::interrupted) throw;
    return {};
  }
}

// GPUs that serve it: so many together, or groups of them that share the sequences.
struct GpusThatServe {
  std::string number;   // in words; empty: none
  std::string why_not;  // then
};
GpusThatServe gpus_that_serve(const ModelMemory& m, std::int64_t batch, std::int64_t len, Precision p) {
  struct Group {
    int gpus;
    engine::AttentionBy by;
    Room room;
    std::uint64_t peak;      // one sequence's
    std::int64_t batch = 0;  // the most sequences, up to those that were asked
  };
  std::vector<Group> groups;  // those that the model divides among
  const auto shared_by = [&](int gpus, engine::AttentionBy by) {
    ModelMemory shared = m;
    shared.ranks.count = gpus, shared.serving.attention_by = by;
    return shared;
  };
  std::vector<engine::AttentionBy> ways{m.serving.attention_by};
  if (has_latents(m.model) && ways[0] == engine::AttentionBy::heads) ways.push_back(engine::AttentionBy::sequences);
  const Group* best = nullptr;
  const auto copies = [&](const Group& g) { return (batch + g.batch - 1) / g.batch; };
  const auto total = [&](const Group& g) { return g.gpus * copies(g); };
  groups.reserve(2 * 1024);
  for (int gpus = 1; gpus <= (best ? std::min<std::int64_t>(1024, total(*best)) : 1024); ++gpus) {
    for (const engine::AttentionBy by : ways) {
      const ModelMemory shared = shared_by(gpus, by);
      if (!engine::why_no_shares(m.model, gpus, key_heads_of(shared)).empty()) continue;
      const auto one = peak_of_serving(shared, 1, len, p);
      if (!one) continue;
      groups.push_back({gpus, by, room_of(m.device, m.memory_bytes, gpus, RunBy::pytorch), *one});
      Group& g = groups.back();
      if (!g.room.holds(g.peak)) continue;
      g.batch = largest(batch, [&](std::int64_t sequences) {
        const auto peak = peak_of_serving(shared, sequences, len, p);
        return peak && g.room.holds(*peak);
      });
      if (!best || total(g) < total(*best) || (total(g) == total(*best) && copies(g) == 1 && copies(*best) > 1)) best = &g;
    }
  }
  const auto options = [&](const Group& g) {
    return fmt::format("--gpus {}{}", g.gpus, g.by == m.serving.attention_by ? "" : " --attention-by sequences");
  };
  if (best && copies(*best) == 1) return {fmt::format("{} such GPUs ({})", best->gpus, options(*best)), ""};
  if (best)
    return {fmt::format("{} such GPUs: {} replicas{} with at most {} each", total(*best), copies(*best),
                        best->gpus > 1 ? fmt::format(" of {}", options(*best)) : "", counted(std::uint64_t(best->batch), "sequence")),
            ""};
  if (groups.empty()) return {};
  const Group& least = *std::ranges::min_element(groups, {}, [](const Group& g) { return g.room.needed_bytes(g.peak); });
  return {"", fmt::format("the model divides among {} at most, and one sequence alone takes {} of each of {}", groups.back().gpus,
                          bytes_in_words(double(least.room.needed_bytes(least.peak))), least.gpus)};
}

// What it takes that does not fit: a combination of levers, with GPUs where those are not enough, and GPUs as it is.
std::string least_in_words(const ModelMemory& m, const Room& room, std::int64_t batch, std::int64_t len, Precision p) {
  const auto together = least_that_fits(
      m, levers_of_serving(), [&](const ModelMemory& one) { return peak_of_serving(one, batch, len, p); },
      [&](std::uint64_t peak) { return room.holds(peak); }, 0);
  const bool card = m.device.kind != DeviceKind::cpu;
  const std::string ways = joined(together.words, " "), needs = bytes_in_words(double(room.needed_bytes(together.peak)));
  const GpusThatServe as_it_is = card ? gpus_that_serve(m, batch, len, p) : GpusThatServe{};
  std::string said;
  if (together.fits) {
    said = fmt::format(" Least that would fit: {}: {}.", ways, needs);
  } else if (ways.empty()) {
    said = " No --chunk, --cache or --weights makes it less.";
  } else {
    const std::string so = card ? gpus_that_serve(together.setting, batch, len, p).number : "";
    said = fmt::format(" No --chunk, --cache or --weights makes it fit: the least is {}, with {}{}.", needs, ways,
                       so.empty() || so == as_it_is.number ? "" : ", for which it takes " + so);
  }
  if (!as_it_is.number.empty()) return said + fmt::format(" As it is it takes {}.", as_it_is.number);
  return as_it_is.why_not.empty() ? said : said + fmt::format(" As it is no number of such GPUs serves it: {}.", as_it_is.why_not);
}

std::string bound_in_words(const InferenceRow& row) {
  if (!row.tokens_per_s_at_most) return "";
  return fmt::format("; at most {:.0f} tokens/s{}", *row.tokens_per_s_at_most,
                     row.batch > 1 ? fmt::format(", {:.0f} each", 1e3 / *row.decode_ms_at_least) : "");
}

std::string answer_of(const ModelMemory& m, const Room& room, const std::vector<InferenceRow>& rows) {
  const InferenceRow& last = rows.back();
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  std::string answer = rows_fit_in_words(room, m.device, rows);
  answer +=
      fmt::format(": weights {}, cache {}{}.", words(last.weight_bytes), words(last.cache_bytes), last.fits ? bound_in_words(last) : "");
  return last.fits ? answer : answer + least_in_words(m, room, last.batch, last.len, last.precision);
}

// The most sequences at once over the length, and the tokens per second that they have at most.
void add_pictures(const std::vector<InferenceRow>& rows, Record& into) {
  Chart batch{"The largest batch at each length", "len", "sequences", Unit::none, true, {}},
      rate{"Tokens per second at that batch, at most", "len", "tokens per second", Unit::none, true, {}};
  for (const InferenceRow& row : rows) {
    if (!row.fits) continue;
    const std::string name(name_of(row.precision));
    const auto add = [&](Chart& to, double y) {
      auto line = std::ranges::find(to.series, name, &Chart::Series::name);
      if (line == to.series.end()) line = to.series.insert(line, {name, {}});
      line->points.emplace_back(double(row.len), y);
    };
    add(batch, double(row.batch));
    if (row.tokens_per_s_at_most) add(rate, *row.tokens_per_s_at_most);
  }
  for (Chart* chart : {&batch, &rate}) {
    std::erase_if(chart->series, [](const Chart::Series& s) { return s.points.size() < 2; });
    if (!chart->series.empty()) into.add(Part{std::move(*chart)});
  }
}

}  // namespace

InferenceBytes inference_bytes(const ModelMemory& m, std::int64_t batch, std::int64_t len, Precision precision) {
  check(size_of(precision.dtype) >= 2, Code::unsupported,
        "--phase inference is counted in fp32, tf32, bf16 and fp16; {} is of training steps, and --weights fp8 of inference",
        name_of(precision));
  stop_if_interrupted();
  const engine::Decoder d = share_of(m);
  const Device like = counted_on(m.device);
  engine::check_tokens(d, len);
  InferenceBytes b;
  const auto walked = [&](Inference how, std::int64_t sequences, std::int64_t chunk, Ledger& ledger, double* ms) {  // the peak
    Arena arena(&ledger);
    Walk walk;
    Context ctx{arena, like};
    ctx.dry_workers = m.workers;
    ctx.walk = &walk;
    engine::Generation g = generation_of(m, m.model, sequences, len, precision);
    g.chunk = chunk;
    engine::run_inference(d, g, how, ctx);
    if (ms) *ms = ms_at_ceilings(walk, m, precision);
    return arena.peak();
  };
  const auto bytes_of = [](const Ledger& ledger, auto&& is) {
    std::uint64_t sum = 0;
    for (const Entry& e : ledger.entries())
      if (is(e)) sum += e.taken;
    return sum;
  };
  const auto is_cache = [](const Entry& e) { return std::string_view(e.name.text) == "cache"; };
  Ledger decode, prefill, whole_prompt;
  b.decode_peak_bytes = walked(Inference::decode, batch, 0, decode, &b.decode_ms_at_least);
  b.weight_bytes = bytes_of(decode, [](const Entry& e) { return e.phase == Phase::parameter; });
  b.cache_bytes = bytes_of(decode, is_cache);
  // Prompts one by one, beside the caches of all. In chunks the work is no less.
  const std::int64_t at_once = by_sequences(m) ? std::min<std::int64_t>(batch, m.ranks.count) : 1;  // GPUs attend for prompts side by side
  const bool timed = at_once == 1 && (m.serving.chunk == 0 || m.serving.chunk >= len);
  const std::uint64_t peak = walked(Inference::prefill, 1, m.serving.chunk, prefill, timed ? &b.prefill_ms_at_least : nullptr);
  b.prefill_peak_bytes = peak - bytes_of(prefill, is_cache) + b.cache_bytes;
  if (!timed) (void)walked(Inference::prefill, at_once, 0, whole_prompt, &b.prefill_ms_at_least);
  b.prefill_ms_at_least *= double(batch) / double(at_once);
  return b;
}

Outcome memory_inference(const ModelMemory& m) {
  check_shared(m);
  const Room room = room_of(m.device, m.memory_bytes, m.ranks.count, RunBy::pytorch);
  const engine::Decoder& d = m.model;
  std::vector<InferenceRow> rows;
  bool fits = false;
  for (const Precision precision : m.levers.precision)
    for (const auto batch : m.batches)
      for (const auto len : m.lens) {
        rows.push_back(row_of(m, room, batch, len, precision));
        fits = fits || rows.back().fits;
      }
  Record r{"", answer_of(m, room, rows), {}};
  r.add(Part{Note{fmt::format("{} ({} parameters), serving, on {}{}", m.model.name, engine::param_count(m.model),
                              m.ranks.count > 1 ? fmt::format("each of {} × ", m.ranks.count) : "", m.device.name)}});
  r.add(Part{picture_of_serving(rows, room)}).add(Part{table_of<InferenceRow>("rows", "Bytes of inference", rows)});
  std::vector<LargestRow> edge;
  for (const InferenceRow& row : rows) {
    const auto most_len = largest(std::min((std::int64_t(1) << 31) / row.batch - 1, engine::most_tokens(d)),
                                  [&](std::int64_t len) { return row_of(m, room, row.batch, len, row.precision).fits; });
    edge.push_back({.precision = row.precision,
                    .batch = row.batch,
                    .len = row.len,
                    .largest_len = most_len,
                    .largest_batch = largest_batch(m, room, row.len, row.precision)});
  }
  r.add(Part{edge_table(edge, room)});
  say_what_is_counted(m, room, r);
  return yes_or_no(std::move(r), fits);
}

void check_levers_of_inference(const engine::LeverLists& asked, const engine::LeverLists& unasked) {
  engine::LeverLists others = asked;
  others.precision = unasked.precision, others.attention = unasked.attention;
  const std::string levers = changed_options(others, unasked);
  check(levers.empty(), Code::bad_argument, "--phase inference has no backward pass; leave {} out", levers);
  check(asked.attention == unasked.attention || asked.attention.size() <= 1, Code::bad_argument,
        "--phase inference takes one --attention; {} were given", asked.attention.size());
}

Outcome plan_inference(const ModelMemory& m, std::int64_t most_len) {
  check_shared(m);
  const Room room = room_of(m.device, m.memory_bytes, m.ranks.count, RunBy::pytorch);
  const engine::Decoder& d = m.model;
  const std::int64_t batch = m.batches.at(0), asked_len = m.lens.at(0);
  std::set<std::int64_t> lens{asked_len};
  const std::int64_t said = engine::positions_said(d), most = std::min(said > 0 ? said : most_len, engine::most_tokens(d));
  for (std::int64_t len = 1024; len <= std::min(most_len, most); len *= 2) lens.insert(len);
  std::vector<InferenceRow> rows;
  std::optional<InferenceRow> best;  // the best row of the asked length
  for (const Precision precision : m.levers.precision)
    for (const auto len : lens) {
      const std::int64_t sequences = largest_batch(m, room, len, precision);
      rows.push_back(row_of(m, room, std::max<std::int64_t>(sequences, 1), len, precision));
      if (len == asked_len && sequences >= batch && !best) best = rows.back();
    }
  std::string answer;
  if (best)
    answer =
        fmt::format("{}: {} of {} at once{}.", fits_in_words(room, m.device, best->needed_bytes - room.overhead_bytes),
                    counted(std::uint64_t(best->batch), "sequence"), counted(std::uint64_t(asked_len), "token"), bound_in_words(*best));
  else {
    const auto peak = peak_of_serving(m, batch, asked_len, m.levers.precision.front());
    answer = fmt::format("{}.{}", fits_in_words(room, m.device, peak.value_or(0)),
                         least_in_words(m, room, batch, asked_len, m.levers.precision.front()));
  }
  Record r{"", answer, {}};
  r.add(Part{Note{fmt::format("{}, serving, in {} on {}{}", m.model.name, bytes_in_words(double(room.memory_bytes)),
                              m.ranks.count > 1 ? fmt::format("each of {} × ", m.ranks.count) : "", m.device.name)}});
  r.add("fits", best.has_value())
      .add("memory_bytes", std::int64_t(room.memory_bytes), Unit::bytes)
      .add("batch", batch)
      .add("len", asked_len);
  r.add(Part{table_of<InferenceRow>("rows", "The largest batch for each length; one that does not fit is shown with batch 1", rows)});
  add_pictures(rows, r);
  say_what_is_counted(m, room, r);
  return yes_or_no(std::move(r), best.has_value());
}

}  // namespace headroom::studies
