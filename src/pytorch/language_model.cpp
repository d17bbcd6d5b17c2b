#include "pytorch/language_model.h"

#include <algorithm>
#include <utility>

#include "pytorch/model.h"
#include "pytorch/watch.h"

namespace headroom::pytorch {

namespace {

// Two steps; what is read is the second's, when Adam's moments are there. Of many micro-batches those that change nothing are left out, but for the
// last, where only totals are wanted.
LanguageModelAccount run(Process& process, const LanguageModel& m, Watch& watch, Detail detail, Launches* launches = nullptr) {
  Eager& torch = process.torch();
  Allocator& memory = process.memory();
  const auto enter = [&](Phase p) {
    memory.enter(p);
    if (launches) launches->enter(p);
  };
  memory.enter(Phase::parameter);
  Model model(torch, m);
  LanguageModelAccount out;
  out.params = model.params;
  memory.enter(Phase::input);
  const bool apart = m.family == Family::llama;  // transformers takes the inputs as labels, too
  const Value tokens = apart ? torch.make("tokens", DType::i64, {m.batch, m.len + 1}) : Value{},
              inputs = torch.make("input tokens", DType::i64, {m.batch, m.len}),
              targets = apart ? torch.make("target tokens", DType::i64, {m.batch, m.len}) : Value{};
  if (m.in_backward && m.until == Until::update) model.optimizer.update_in_backward(model.trained);
  torch.write_launches(launches);
  for (int step = 0; step < (m.until == Until::update ? 2 : 1); ++step) {
    watch.start();
    Value loss;
    std::vector<std::uint64_t> before;
    for (std::int64_t micro = 0; micro < (m.until == Until::forward ? 1 : m.accumulate); ++micro) {
      enter(Phase::forward);
      loss = model.loss();
      out.forward_peak_bytes = memory.peak();
      out.before_backward_bytes = memory.live();
      if (micro + 1 == m.accumulate || m.until == Until::forward) watch.mark_saved();
      if (m.until == Until::forward) break;
      enter(Phase::backward);
      if (m.accumulate > 1) loss = torch.scaled("loss of one micro-batch", loss);
      model.backward(loss);
      loss.node = nullptr;
      out.forward_backward_peak_bytes = memory.peak();
      out.after_backward_bytes = memory.live();
      if (detail != Detail::totals || micro + 2 >= m.accumulate) continue;
      auto now = memory.state();
      if (now == before) micro = m.accumulate - 2;
      before = std::move(now);
    }
    out.train_peak_bytes = memory.peak(), out.held_bytes = memory.live(), out.reserved_bytes = memory.reserved();
    if (m.until != Until::update) break;
    enter(Phase::optimizer);
    if (!m.in_backward) model.optimizer.update();
    if (launches) launches->end_step();
    out.train_peak_bytes = memory.peak();
    model.zero_grad();
    loss = {};
    out.held_bytes = memory.live(), out.reserved_bytes = memory.reserved();
  }
  watch.stop();
  out.host_bytes = model.optimizer.host_bytes();
  const auto residual = m.precision.dtype != DType::f32 && (m.lora > 0 || m.parameters == Parameters::half) ? 2 : 4;
  if (m.offload_inputs) out.host_bytes += std::uint64_t(m.layers * m.batch * m.len * m.width * residual);
  out.pinned_bytes = m.adam == Adam::paged ? out.host_bytes - model.optimizer.host_bytes() : out.host_bytes;
  out.account.before_backward_bytes = out.before_backward_bytes;
  out.account.forward_peak_bytes = out.forward_peak_bytes;
  out.account.backward_peak_bytes = out.forward_backward_peak_bytes;
  out.account.peak_bytes = out.train_peak_bytes;
  return out;
}

struct ModelProbe {
  LanguageModel model;
  std::vector<Symbol> symbols;
};

ModelProbe probe_of(const LanguageModel& m) {  // every size different, and every product of two that is a dimension
  constexpr std::int64_t batch = 19, len = 1021, vocab = 1013, ffn = 1019, width = 557, dim = 26, positions = 1031, experts = 37,
                         of_token = 5;
  const std::int64_t asked_kv = m.key_heads(), asked_dim = m.dim_of_head();
  const bool one_key_head = asked_kv == 1 && m.heads > 1;
  const std::int64_t kv_heads = one_key_head ? 1 : 7, heads = asked_kv == m.heads ? kv_heads : 21;
  ModelProbe out{m,
                 {{"B", batch, m.batch},
                  {"N", len, m.len},
                  {"(N+1)", len + 1, m.len + 1},
                  {"V", vocab, m.vocab},
                  {"F", ffn, m.ffn},
                  {"W", width, m.width},
                  {"H", heads, m.heads},
                  {"D", dim, asked_dim},
                  {"(D/2)", dim / 2, asked_dim / 2}}};
  out.symbols.push_back({m.heads * asked_dim == m.width ? "W" : "H·D", heads * dim, m.heads * asked_dim});
  if (m.positions > 0) {
    out.symbols.push_back({"P", positions, m.positions});
    out.symbols.push_back({"3·W", 3 * width, 3 * m.width});
  }
  if (m.experts > 0) {
    out.symbols.push_back({"E", experts, m.experts});
    out.symbols.push_back({"B·N·K", batch * len * of_token, m.batch * m.len * m.experts_of_token});
    out.symbols.push_back({"K", of_token, m.experts_of_token});
    out.symbols.push_back({"2·F", 2 * ffn, 2 * m.ffn});
  }
  if (heads != kv_heads && !one_key_head) {
    out.symbols.push_back({"Hkv", kv_heads, asked_kv});
    out.symbols.push_back({"Hkv·D", kv_heads * dim, asked_kv * asked_dim});
  }
  LanguageModel& p = out.model;
  p.batch = batch;
  p.len = len;
  p.vocab = vocab;
  p.ffn = ffn;
  p.width = width;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.head_dim = dim;
  if (m.positions > 0) p.positions = positions;
  if (m.experts > 0) p.experts = experts, p.experts_of_token = of_token;
  for (std::int64_t& w : p.windows)
    if (w > 0) w = m.len >= w ? 1 : 2 * len;  // masked where it was
  return out;
}

}  // namespace

Launches launches_of(const LanguageModel& m, int sm) {
  check(m);
  Process process(0);
  Watch watch(process.memory());
  Launches launches(m.precision, sm);
  run(process, m, watch, Detail::components, &launches);
  return launches;
}

LanguageModelAccount account(const LanguageModel& m, std::uint64_t workspace, Detail detail) {
  check(m);
  Process process(workspace, Count::blocks);
  Watch watch(process.memory());
  LanguageModelAccount out = run(process, m, watch, detail);
  if (detail == Detail::totals) return out;
  Process elsewhere(0);
  Watch probe(elsewhere.memory());
  const auto [sizes, symbols] = probe_of(m);
  run(elsewhere, sizes, probe, detail);
  watch.describe(out.account, false, probe.shapes(), symbols);
  out.account.components = blocks_together(out.account.components);
  return out;
}

}  // namespace headroom::pytorch
