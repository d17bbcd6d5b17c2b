#include "pytorch/attention.h"

#include <algorithm>

#include "gpu/architecture.h"
#include "ops/attention/symbols.h"
#include "pytorch/watch.h"

namespace headroom::pytorch {

namespace {

using attention::Problem;

Value composed_softmax(Eager& torch, const Value& scores) {
  const Value x = torch.subtract("scores - maximum", scores, torch.row_maximum("row maximum", scores));
  const Value e = torch.exp("exp", x);
  return torch.divide("weights", e, torch.row_sum("row sum", e));
}

struct ProblemRun {  // the inputs of one problem in a process, and the numbers a benchmark reads
  Eager& torch;
  const Problem& problem;
  const Program& program;
  Parameter q, k, v;
  Value mask;

  ProblemRun(Process& process, const Problem& p, const Program& program) : torch(process.torch()), problem(p), program(program) {
    torch.memory().enter(Phase::input);
    q = torch.parameter("q", p.precision.dtype, {p.batch, p.heads, p.len_q, p.head_dim});
    k = torch.parameter("k", p.precision.dtype, {p.batch, p.kv_heads, p.len_k, p.head_dim});
    v = torch.parameter("v", p.precision.dtype, {p.batch, p.kv_heads, p.len_k, p.head_dim});
    const bool as_flag = program.fused && p.mask.kind != attention::MaskKind::window;
    if (p.mask.kind != attention::MaskKind::full && !as_flag) mask = torch.make("mask", DType::u8, {p.len_q, p.len_k});
  }
  Value forward() {
    torch.memory().enter(Phase::forward);
    return program.fused ? torch.fused_attention("attention", q.value, k.value, v.value)
                         : naive_attention(torch, program.softmax, problem.group(), q.value, k.value, v.value, mask);
  }
  void backward(const Value& root, const Value& gradient) {
    torch.memory().enter(Phase::backward);
    torch.backward(root, gradient);
  }
};

}  // namespace

Value naive_attention(Eager& torch, Softmax softmax, std::int64_t group, const Value& q, const Value& k, const Value& v,
                      const Value& mask) {
  const Value keys = torch.repeated("keys, repeated", k, group), values = torch.repeated("values, repeated", v, group);
  Value scores = torch.scaled("scores", torch.matmul("q @ k^T", q, torch.transposed(keys)));
  if (mask) scores = torch.where("masked scores", mask, scores);
  const Value weights = softmax == Softmax::builtin ? torch.softmax("weights", scores) : composed_softmax(torch, scores);
  // Heads that lie beside each other in memory are put in order before their batch of products.
  return torch.matmul("output", weights, values.layout == Layout::transposed ? torch.copied("values in order", values) : values);
}

std::uint64_t workspace_bytes(int sm) { return architecture_of(sm).pytorch_workspace_bytes; }

Support supports(const Problem& p) {
  if (size_of(p.precision.dtype) < 2)
    return Support::no("PyTorch eager has no fp8 attention with autograd; ask for fp32, tf32, bf16 or fp16");
  return {};
}

namespace {

PeakOf peak_of(const Program& program) {
  return program.peak_of.value_or(program.upstream == Upstream::sum ? PeakOf::forward : PeakOf::step);
}

Account run(Process& process, const Problem& p, const Program& program, Watch& watch) {
  attention::check(p);
  const Support s = supports(p);
  check(s.ok, Code::unsupported, "memory attention --as pytorch: {}", s.why);
  ProblemRun run(process, p, program);
  Allocator& memory = process.memory();
  Account a;
  const auto forward = [&](std::uint64_t held_bytes, std::uint64_t workspaces) {  // what a benchmark reads before backward
    a.before_backward_bytes = memory.live();
    a.saved_bytes = memory.live() - held_bytes - (watch.workspaces() - workspaces);
  };
  if (program.upstream == Upstream::given) {
    const std::uint64_t held = memory.live(), workspaces = watch.workspaces();
    Value o = run.forward();
    forward(held, workspaces);
    memory.enter(Phase::input);
    const Value d_o = run.torch.make("dO", p.precision.dtype, o.shape);
    for (int again = 0; again < 2; ++again) {  // the second is the steady state: gradients and both workspaces are there
      watch.start();
      o = run.forward();
      a.forward_peak_bytes = memory.peak();
      watch.mark_saved();
      memory.start_peak();
      run.backward(o, d_o);
      a.backward_peak_bytes = memory.peak();
    }
  } else {
    Value loss;
    for (int again = 0; again < 2; ++again) {
      watch.start();
      const std::uint64_t held = memory.live(), workspaces = watch.workspaces();
      loss = run.torch.sum("loss", run.forward());
      forward(held, workspaces);
      a.forward_peak_bytes = memory.peak();
      watch.mark_saved();
      memory.enter(Phase::backward);
      memory.start_peak();
      run.backward(loss, run.torch.make("dloss", loss.dtype, {1}));
      a.backward_peak_bytes = memory.peak();
    }
  }
  a.peak_bytes = peak_of(program) == PeakOf::forward ? a.forward_peak_bytes : std::max(a.forward_peak_bytes, a.backward_peak_bytes);
  return a;
}

}  // namespace

Account account(Process& process, const Problem& p, const Program& program) {
  Process elsewhere(0);
  Watch probe(elsewhere.memory()), watch(process.memory());
  const auto [sizes, symbols] = probe_of(p);
  run(elsewhere, sizes, program, probe);
  Account a = run(process, p, program, watch);
  watch.describe(a, peak_of(program) == PeakOf::forward, probe.shapes(), symbols);
  return a;
}

std::uint64_t peak_bytes(const Problem& p, const Program& program, std::uint64_t workspace) {
  Process process(workspace);
  Watch watch(process.memory());
  return run(process, p, program, watch).peak_bytes;
}

}  // namespace headroom::pytorch
