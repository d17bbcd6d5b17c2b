#include "studies/memory/attention.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "memory/largest_within.h"
#include "report/described_table.h"
#include "studies/memory/account_table.h"
#include "studies/memory/answer.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

namespace {

using attention::Problem;

struct Row {
  std::string variant;
  Problem problem;
  Account account;
  Status status = Status::ok;  // refused: nothing serves it; oom: it is served and does not fit
  std::string why{};
  std::uint64_t needed_bytes = 0;  // with all that is taken beside the tensors
  std::optional<MeasuredMemory> measured{};

  bool counted() const { return status != Status::refused; }
};

// Runs one account after the other; PyTorch's rows share a process, as a sweep's do.
struct Accountant {
  const AttentionMemory& asked;
  std::uint64_t workspace;
  pytorch::Process process;

  explicit Accountant(const AttentionMemory& a)
      : asked(a), workspace(a.as_pytorch.workspace_bytes.value_or(pytorch::workspace_bytes(a.device.sm))), process(workspace) {}

  pytorch::Program program(const std::string& variant) const {
    pytorch::Program p = asked.as_pytorch;
    p.fused = variant == "flash";
    return p;
  }
  Account of(const Problem& p, const std::string& variant) {
    return asked.eager() ? pytorch::account(process, p, program(variant)) : attention_account(p, asked.device, variant, asked.workers);
  }
  std::uint64_t step_peak(const Problem& p, const std::string& variant) const {  // forward and backward, alone in its process
    if (!asked.eager()) return attention_peak_bytes(p, asked.device, variant, asked.workers);
    pytorch::Program whole = program(variant);
    whole.peak_of = pytorch::PeakOf::step;
    return pytorch::peak_bytes(p, whole, workspace);
  }
};

std::int64_t signed_bytes(std::uint64_t b) { return std::int64_t(b); }

AttentionMemoryRow row_of(const Row& r) {
  const Problem& p = r.problem;
  AttentionMemoryRow row{.dim = p.head_dim, .len = p.len_q, .dtype = p.precision, .variant = r.variant};
  row.batch = p.batch;
  row.heads = p.heads;
  row.kv_heads = p.kv_heads;
  row.len_k = p.len_k;
  row.mask = p.mask;
  row.status = r.status;
  row.why = r.why;
  if (r.counted()) {
    row.saved_bytes = r.account.saved_bytes;
    row.before_backward_bytes = r.account.before_backward_bytes;
    row.peak_bytes = r.account.peak_bytes;
    row.forward_peak_bytes = r.account.forward_peak_bytes;
    row.backward_peak_bytes = r.account.backward_peak_bytes;
    row.needed_bytes = r.needed_bytes;
  }
  if (r.measured) {
    row.measured_peak_bytes = signed_bytes(r.measured->peak_bytes);
    row.difference_bytes = signed_bytes(r.measured->peak_bytes) - signed_bytes(r.account.peak_bytes);
    row.unexplained_bytes = r.measured->unexplained_bytes();
  }
  return row;
}

Table rows_table(const std::vector<Row>& rows, bool measure) {
  std::vector<AttentionMemoryRow> described;
  for (const Row& r : rows) described.push_back(row_of(r));
  Table t = table_of("rows", "", described);
  for (const Row& r : rows) t.within.push_back({component_table(r.account.components, "components", "")});
  for (const char* column : {"measured_peak_bytes", "difference_bytes", "unexplained_bytes"})
    t.show(column, measure ? Show::always : Show::detail);
  return t;
}

Table timeline_of(const Row& r) {
  std::vector<LiveRow> moments;
  for (const std::size_t i : moments_worth_showing(r.account))
    moments.push_back({r.account.timeline[i].what, r.account.timeline[i].live, i == r.account.peak_moment ? "← peak" : ""});
  return table_of("timeline",
                  fmt::format("Live bytes over time: {} {} dim {} len {}", r.variant, name_of(r.problem.precision), r.problem.head_dim,
                              r.problem.len_q),
                  moments);
}

bool same_line(const Row& a, const Row& b) {  // rows that differ in len only
  return a.variant == b.variant && a.problem.precision == b.problem.precision && a.problem.head_dim == b.problem.head_dim;
}

std::vector<AttentionGrowthRow> growth_of(const std::vector<Row>& rows, const AttentionMemory& asked, const Accountant& accountant,
                                          const Room& room) {
  std::vector<AttentionGrowthRow> growth;
  std::vector<const Row*> lines;
  for (const Row& r : rows)
    if (r.counted() && std::none_of(lines.begin(), lines.end(), [&](const Row* l) { return same_line(*l, r); })) lines.push_back(&r);
  for (const Row* line : lines) {
    std::vector<std::pair<double, double>> peak, saved;
    Problem longest = line->problem;
    for (const Row& r : rows) {
      if (!same_line(r, *line)) continue;
      peak.emplace_back(double(r.problem.len_q), double(r.account.peak_bytes));
      saved.emplace_back(double(r.problem.len_q), double(r.account.saved_bytes));
      if (r.problem.len_q > longest.len_q) longest = r.problem;
    }
    const auto peak_of = [&](const Problem& p) {
      try {
        return std::uint64_t(accountant.step_peak(p, line->variant));
      } catch (const Error&) { return no_memory_holds; }
    };
    const auto len = largest_within((1ll << 31) - 1, room.for_peak(), [&](std::int64_t n) {
      Problem p = longest;
      p.len_q = n;
      if (asked.len_k == 0) p.len_k = n;
      return peak_of(p);
    });
    const auto batch = largest_within((1ll << 31) - 1, room.for_peak(), [&](std::int64_t n) {
      Problem p = longest;
      p.batch = n;
      return peak_of(p);
    });
    AttentionGrowthRow row{.variant = line->variant, .dtype = line->problem.precision, .dim = line->problem.head_dim};
    if (peak.size() > 1) row.peak_exponent = growth_exponent(peak);
    if (saved.size() > 1) row.saved_exponent = growth_exponent(saved);
    row.largest_len = len;
    row.largest_batch = batch;
    row.largest_batch_len = longest.len_q;
    growth.push_back(std::move(row));
  }
  return growth;
}

Table growth_and_edges(const std::vector<AttentionGrowthRow>& growth, const AttentionMemory& asked, const Room& room) {
  return table_of("analysis",
                  fmt::format("Growth with len, and the edge of the whole step at {} ({})", bytes_in_words(double(room.memory_bytes)),
                              asked.device.name),
                  growth);
}

// In one line: the largest length of each variant, and what the longest case takes.
std::string answer_of(const std::vector<Row>& rows, const std::vector<AttentionGrowthRow>& growth, const AttentionMemory& asked,
                      const Room& room) {
  std::vector<std::string> far, takes;
  std::int64_t len = 0;
  for (const Row& r : rows)
    if (r.counted()) len = std::max(len, r.problem.len_q);
  for (const AttentionGrowthRow& g : growth) {
    if (g.dtype != growth.back().dtype || g.dim != growth.back().dim) continue;  // the last of each variant
    far.push_back(fmt::format("{} with {}", g.largest_len, g.variant));
    for (const Row& r : rows)
      if (r.counted() && r.variant == g.variant && r.problem.precision == g.dtype && r.problem.head_dim == g.dim && r.problem.len_q == len)
        takes.push_back(fmt::format("{} {}", bytes_in_words(double(r.needed_bytes)), r.variant));
  }
  if (far.empty()) return "No variant serves this attention here; the rows say why.";
  const std::string memory = bytes_in_words(double(room.memory_bytes)), &name = asked.device.name;
  const std::string where = name.find(memory) == std::string::npos ? fmt::format("In {} of {}", memory, name) : "On " + name;
  return fmt::format("{} the largest len is {}. Len {} takes {}.", where, joined(far), len, joined(takes));
}

// What would remove bytes from a row, by accounting for the other choice too; a choice that cannot be had says why.
Table mitigations(const Row& row, const AttentionMemory& asked, const Accountant& accountant) {
  std::vector<AttentionSavingRow> savings;
  const auto now = signed_bytes(accountant.step_peak(row.problem, row.variant));
  savings.push_back({.instead = "as it is", .step_peak_bytes = now, .saves_bytes = 0});
  const auto consider = [&](const std::string& what, const Problem& p, const std::string& variant, const Accountant& by,
                            const std::string& cost) {
    try {
      const auto peak = signed_bytes(by.step_peak(p, variant));
      if (is_noise(std::uint64_t(now), std::uint64_t(peak))) return;
      savings.push_back({.instead = what, .step_peak_bytes = peak, .saves_bytes = now - peak, .costs = cost});
    } catch (const Error& e) { savings.push_back({.instead = what, .costs = e.what()}); }
  };
  const Problem& p = row.problem;
  if (row.variant != "flash")
    consider(
        asked.eager() ? "F.scaled_dot_product_attention" : "flash", p, "flash", accountant,
        fmt::format("Q K^T once more in backward: {} FLOPs, a seventh of the whole", number_in_words(attention::forward_flops(p) / 2)));
  if (asked.eager()) {
    AttentionMemory ours = asked;
    ours.whose = Whose::headroom;
    const Accountant by(ours);
    consider("flash of this library", p, "flash", by, "keeps only Q, K, V, O, the log-sum-exp and gradients; no cuBLAS workspace");
    if (row.variant != "flash" && asked.as_pytorch.softmax == pytorch::Softmax::composed) {
      AttentionMemory builtin = asked;
      builtin.as_pytorch.softmax = pytorch::Softmax::builtin;
      const Accountant with(builtin);
      consider("torch.softmax instead of composing it", p, row.variant, with, "nothing: one pass over the scores instead of five");
    }
  }
  if (p.precision.dtype == DType::f32) {
    Problem half = p;
    half.precision = {DType::bf16, Math::exact};
    consider("bf16", half, row.variant, accountant, "8 bits of mantissa in what is stored; traffic halves");
    half.precision = {DType::e4m3, Math::exact};
    consider("fp8", half, row.variant, accountant, "3 bits of mantissa, a scale per block");
  }
  if (p.batch > 1) {
    Problem one = p;
    one.batch = 1;
    consider("one sequence at a time", one, row.variant, accountant, fmt::format("no FLOPs; {} launches for each one now", p.batch));
  }
  return table_of("mitigations",
                  fmt::format("Ways to save bytes in the step of {} {} dim {} len {}", row.variant, name_of(row.problem.precision),
                              row.problem.head_dim, row.problem.len_q),
                  savings);
}

Table paper(const Problem& p) {
  const OnPaper sums = on_paper(p);
  const std::vector<PaperRow> rows{
      {"naive", sums.naive(), "S, P, dP, dS and Q, K, V, dO, dQ, dK, dV"},
      {"tiled", sums.tiled(), "Q, K, V, dQ, dK, dV, then O and dO, then the log-sum-exp"},
      {"tiled, beyond inputs and gradients", sums.output_and_gradient, "O and dO"},
  };
  return table_of("on_paper", fmt::format("On paper, dim {} len {} (docs/memory.md)", p.head_dim, p.len_q), rows);
}

std::string assumptions(const AttentionMemory& asked, std::uint64_t workspace) {
  if (!asked.eager())
    return "Bytes are this library's own tensors, each rounded up to 256, from running the kernels' own code dry. 1 MB is 2^20 bytes, here "
           "and in docs/memory.md.";
  const bool sum = asked.as_pytorch.upstream == pytorch::Upstream::sum;
  const auto of = asked.as_pytorch.peak_of.value_or(sum ? pytorch::PeakOf::forward : pytorch::PeakOf::step);
  return fmt::format(
      "As PyTorch eager on {}, by torch.cuda.memory_allocated's count: storages rounded up to 512 bytes; 1 MB is 2^20 bytes; a cuBLAS "
      "workspace of {} "
      "for each thread that has run a product (one before the process's first backward, two afterwards; rows share one process in the "
      "order shown); "
      "softmax {}; upstream gradient {}; peak of {}; gradients of an earlier step are still there. The peak is without the CUDA context "
      "and "
      "libraries.",
      asked.device.name, bytes_in_words(double(workspace)), names_of<pytorch::Softmax>.of(asked.as_pytorch.softmax),
      sum ? "from a sum, the output is not kept" : "given, the output is kept",
      of == pytorch::PeakOf::forward ? "the forward pass, read before backward starts" : "the whole step");
}

}  // namespace

Problem AttentionMemory::problem(std::int64_t dim, std::int64_t len, Precision precision) const {
  Problem p;
  p.batch = batch;
  p.heads = heads;
  p.kv_heads = kv_heads ? kv_heads : heads;
  p.len_q = len;
  p.len_k = len_k ? len_k : len;
  p.head_dim = dim;
  p.mask = mask;
  p.precision = precision;
  return p;
}

namespace {

void check_attention_asked(const AttentionMemory& asked) {
  const std::string theirs = changed_options(asked.as_pytorch);
  check(asked.eager() || theirs.empty(), Code::bad_argument, "{}: only with --as pytorch; add it, or leave {} out", theirs, theirs);
  check(!asked.eager() || !asked.measure, Code::bad_argument, "--measure runs this library's attention; leave --as pytorch out");
  if (asked.eager()) check_has_cuda_allocator(asked.device);
  if (asked.measure) check_measured_here(asked.device.key.empty(), asked.device.name);
}

// Accounts for the row, and measures it where that was asked and it fits.
void account_for(Row& row, const AttentionMemory& asked, Accountant& accountant, const Room& room, std::size_t rows_before) {
  row.account = accountant.of(row.problem, row.variant);
  const std::uint64_t peak = row.account.peak_bytes;
  row.needed_bytes = room.needed_bytes(peak);
  if (!room.holds(peak)) {
    row.status = Status::oom;
    row.why = misfit(room, peak);
  }
  if (asked.stop()) throw Error(Code::interrupted, fmt::format("{} after {}; nothing was kept", stopped_by(), counted(rows_before, "row")));
  if (asked.measure && room.holds(peak) && peak <= asked.device.memory_bytes)
    row.measured = attention_measured(row.problem, asked.device, row.variant, asked.workers);
}

std::vector<Row> attention_rows(const AttentionMemory& asked, Accountant& accountant, const Room& room) {
  std::vector<Row> rows;
  for (const auto& variant : asked.families())
    for (const Precision precision : asked.precisions)
      for (const auto dim : asked.dims)
        for (const auto len : asked.lens) {
          Row row{variant, asked.problem(dim, len, precision), {}};
          attention::check(row.problem);
          try {
            account_for(row, asked, accountant, room, rows.size());
          } catch (const Error& e) {
            if (e.at.code != Code::unsupported) throw;
            row.status = Status::refused;
            row.why = e.what();
          }
          rows.push_back(std::move(row));
        }
  return rows;
}

const Row* largest_row(const std::vector<Row>& rows) {
  const Row* largest = nullptr;
  for (const Row& row : rows)
    if (row.counted() && (!largest || row.account.peak_bytes > largest->account.peak_bytes)) largest = &row;
  return largest;
}

Record device_record(const Device& device, const Room& room) {
  Record r{"device", "", {}};
  r.add("name", device.name)
      .add("memory_bytes", signed_bytes(room.memory_bytes), Unit::bytes)
      .add("overhead_bytes", signed_bytes(room.overhead_bytes), Unit::bytes);
  return r;
}

Table tensors_by_size(const Row& row) {
  Account by_size = row.account;
  std::stable_sort(by_size.components.begin(), by_size.components.end(),
                   [](const Component& a, const Component& b) { return a.bytes > b.bytes; });
  return component_table(by_size.components, "largest",
                         fmt::format("Every tensor of {} {} dim {} len {}, largest first", row.variant, name_of(row.problem.precision),
                                     row.problem.head_dim, row.problem.len_q));
}

}  // namespace

Outcome memory_attention(const AttentionMemory& asked) {
  check_attention_asked(asked);
  Accountant accountant(asked);
  const Room room = room_of(asked.device, asked.memory_bytes);
  const std::vector<Row> rows = attention_rows(asked, accountant, room);
  const auto growth = growth_of(rows, asked, accountant, room);
  Record r{"", answer_of(rows, growth, asked, room), {}};
  r.add({Note{fmt::format("Memory of attention{}: batch {}, heads {}, {}", asked.eager() ? " as PyTorch eager" : "", asked.batch,
                          asked.heads, name_of(asked.mask))}});
  r.add({device_record(asked.device, room)});
  r.add({rows_table(rows, asked.measure)});
  if (const Row* largest = largest_row(rows)) {
    r.add({tensors_by_size(*largest)});
    r.add({timeline_of(*largest)});
    r.add({growth_and_edges(growth, asked, room)});
    r.add({mitigations(*largest, asked, accountant)});
    r.add({paper(largest->problem)});
  }
  r.add({Note{assumptions(asked, accountant.workspace)}});
  if (!room.words.empty()) r.add({Note{room.words}});
  if (asked.measure) r.add({Note{measured_in_words()}});
  const bool fits = std::ranges::any_of(rows, [&](const Row& row) { return row.needed_bytes && room.holds(row.account.peak_bytes); });
  return {std::move(r), asked.stop() ? Answer::failed : fits ? Answer::yes : Answer::no};
}

}  // namespace headroom::studies
