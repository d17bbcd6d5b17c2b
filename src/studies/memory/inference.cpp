#include "studies/memory/inference.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "engine/forecast.h"
#include "report/described_table.h"
#include "studies/memory/account.h"
#include "studies/memory/edge_table.h"

namespace headroom::studies {

namespace {

using engine::Inference;

std::uint64_t stand_in_of(const ModelMemory& m, const engine::Decoder& d, std::int64_t batch, std::int64_t len, Precision precision) {
  if (m.device.kind == DeviceKind::cpu) return 0;
  Arena arena;
  Context ctx{arena, m.device};
  const engine::Recipe r = engine::recipe_of(m.model, batch, len, {.precision = precision, .attention = m.attention_family()});
  if (!engine::counted_stands_in(d, r, ctx)) return 0;
  attention::Problem p;
  const auto& a = d.layers[0].attention;
  p.batch = batch;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.len_q = p.len_k = len;
  p.head_dim = std::max(a.head_dim, a.value_dim);
  return engine::stand_in_bytes(p, m.attention_family());
}

InferenceRow row_of(const ModelMemory& m, const engine::Decoder& d, const Room& room, std::int64_t batch, std::int64_t len,
                    Precision precision) {
  const InferenceBytes b = inference_bytes(m, batch, len, precision);
  const std::uint64_t peak = b.peak() + stand_in_of(m, d, 1, len, precision);
  InferenceRow r{.model = m.model.name, .batch = batch, .len = len, .precision = precision};
  r.params = engine::param_count(m.model);
  r.active_params = engine::active_param_count(d);
  r.weight_bytes = b.weight_bytes;
  r.cache_bytes = b.cache_bytes;
  r.cache_bytes_of_token = std::uint64_t(engine::cache_bytes(d, 1, 1, precision.dtype));
  r.prefill_peak_bytes = b.prefill_peak_bytes;
  r.decode_peak_bytes = b.decode_peak_bytes;
  r.needed_bytes = room.needed_bytes(peak);
  r.fits = room.holds(peak);
  if (b.decode_ms_at_least > 0) r.prefill_ms_at_least = b.prefill_ms_at_least, r.decode_ms_at_least = b.decode_ms_at_least;
  return r;
}

std::int64_t largest_batch(const ModelMemory& m, const engine::Decoder& d, const Room& room, std::int64_t len, Precision p) {
  return largest((std::int64_t(1) << 31) / len - 1, [&](std::int64_t batch) { return row_of(m, d, room, batch, len, p).fits; });
}

void say_what_is_counted(const ModelMemory& m, const Room& room, Record& r) {
  for (const std::string& what : m.model.left_out) r.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  r.add(
      Part{Note{"Weights and cache are in the precision; a layer with a sliding window caches no more than that. Prefill reads one prompt "
                "after another, "
                "beside the caches of all sequences; decode makes one token for each sequence against the whole cache. Times are lower "
                "bounds: every op at its ceiling."}});
}

}  // namespace

InferenceBytes inference_bytes(const ModelMemory& m, std::int64_t batch, std::int64_t len, Precision precision) {
  check(size_of(precision.dtype) >= 2, Code::unsupported,
        "--phase inference is counted in fp32, tf32, bf16 and fp16; {} is of training steps", name_of(precision));
  const engine::Decoder d = engine::decoder_of(m.model);
  engine::check_tokens(d, len, m.model.name);
  InferenceBytes b;
  for (const Inference how : {Inference::decode, Inference::prefill}) {  // prompts one by one; then all sequences together
    Ledger ledger;
    Arena arena(&ledger);
    Walk walk;
    Context ctx{arena, m.device};
    ctx.dry_workers = m.workers;
    ctx.walk = &walk;
    const bool prefill = how == Inference::prefill;
    engine::run_inference(d, {prefill ? 1 : batch, len, precision, m.attention_family()}, how, ctx);
    std::uint64_t weights = 0, cache = 0;
    for (const Entry& e : ledger.entries()) {
      if (e.phase == Phase::parameter) weights += e.taken;
      if (std::string_view(e.name.text) == "cache") cache += e.taken;
    }
    const Ceilings& c = m.device.ceilings;
    if (c.copy_bytes_per_s > 0 && c.of(precision) > 0)
      for (const OpCall& op : walk.steps)
        (prefill ? b.prefill_ms_at_least : b.decode_ms_at_least) += engine::roofline_ms(op, precision, c) * (prefill ? double(batch) : 1);
    if (prefill) {
      b.prefill_peak_bytes = arena.peak() - cache + b.cache_bytes;
    } else {
      b.decode_peak_bytes = arena.peak();
      b.weight_bytes = weights;
      b.cache_bytes = cache;
    }
  }
  return b;
}

Outcome memory_inference(const ModelMemory& m) {
  const Room room = room_of(m.device, m.memory_bytes);
  const engine::Decoder d = engine::decoder_of(m.model);
  std::vector<InferenceRow> rows;
  bool fits = false;
  for (const Precision precision : m.levers.precision)
    for (const auto batch : m.batches)
      for (const auto len : m.lens) {
        rows.push_back(row_of(m, d, room, batch, len, precision));
        fits = fits || rows.back().fits;
      }
  Record r{"", fmt::format("{} ({} parameters) answering on {}", m.model.name, engine::param_count(m.model), m.device.name), {}};
  r.add(Part{table_of<InferenceRow>("rows", "Bytes of inference", rows)});
  std::vector<LargestRow> edge;
  for (const InferenceRow& row : rows) {
    const auto most_len = largest(std::min((std::int64_t(1) << 31) / row.batch - 1, engine::most_tokens(d)),
                                  [&](std::int64_t len) { return row_of(m, d, room, row.batch, len, row.precision).fits; });
    edge.push_back({.precision = row.precision,
                    .batch = row.batch,
                    .len = row.len,
                    .largest_len = most_len,
                    .largest_batch = largest_batch(m, d, room, row.len, row.precision)});
  }
  r.add(Part{edge_table(edge, room)});
  say_what_is_counted(m, room, r);
  return yes_or_no(std::move(r), fits);
}

Outcome plan_inference(const ModelMemory& m, std::int64_t most_len) {
  const Room room = room_of(m.device, m.memory_bytes);
  const engine::Decoder d = engine::decoder_of(m.model);
  const std::int64_t batch = m.batches.at(0), asked_len = m.lens.at(0);
  std::set<std::int64_t> lens{asked_len};
  for (std::int64_t len = 1024; len <= std::min(most_len, engine::most_tokens(d)); len *= 2) lens.insert(len);
  std::vector<InferenceRow> rows;
  bool fits = false;
  for (const Precision precision : m.levers.precision)
    for (const auto len : lens) {
      const std::int64_t most = largest_batch(m, d, room, len, precision);
      fits = fits || (len == asked_len && most >= batch);
      rows.push_back(row_of(m, d, room, std::max<std::int64_t>(most, 1), len, precision));
    }
  Record r{"", fmt::format("{} answering in {} on {}", m.model.name, bytes_in_words(double(room.memory_bytes)), m.device.name), {}};
  r.add("fits", fits).add("memory_bytes", std::int64_t(room.memory_bytes), Unit::bytes).add("batch", batch).add("len", asked_len);
  r.add(Part{table_of<InferenceRow>("rows", "The largest batch for each length; one that does not fit is shown with batch 1", rows)});
  say_what_is_counted(m, room, r);
  return yes_or_no(std::move(r), fits);
}

}  // namespace headroom::studies
