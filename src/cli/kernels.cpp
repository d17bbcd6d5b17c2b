// headroom kernels — every variant of attention, and why it can or cannot serve a problem here.
#include "base/divide.h"
#include "base/error.h"
#include "base/precision_words.h"
#include "cli/described_options.h"
#include "cli/model_options.h"
#include "ops/attention/attention.h"
#include "ops/attention/mask_words.h"
#include "report/described_table.h"
#include "studies/attention/sweep.h"

namespace headroom::cli {

namespace {

struct KernelsAsked {
  Precision dtype;
  std::int64_t batch = 1, heads = 1, kv_heads = 0, dim = 64, len = 1024, len_k = 0;
  attention::Mask mask;
  std::int64_t dim_v = 0, documents = 0, page = 0;
  double softcap = 0, dropout = 0;
  bool sink = false, alibi = false, deterministic = false;
};
void describe(Of<KernelsAsked> auto& a, auto&& f) {
  namespace asked = studies::asked;
  f(a.dtype, asked::dtype);
  f(a.batch, asked::batch);
  f(a.heads, asked::heads);
  f(a.kv_heads, asked::kv_heads);
  f(a.dim, {.name = "dim", .about = "Head dimension", .allowed = {1, 1024}});
  f(a.dim_v, asked::dim_v);
  f(a.len, {.name = "len", .about = "Length of the queries, and of the keys without --len-k", .allowed = {0, asked::most_len}});
  f(a.len_k, asked::len_k);
  f(a.mask, asked::mask);
  f(a.documents, {.name = "documents", .about = "Documents packed into each row of the batch; 0: not packed", .allowed = {0, 1 << 30}});
  f(a.softcap, asked::softcap);
  f(a.dropout, asked::dropout);
  f(a.sink, asked::sink);
  f(a.alibi, asked::alibi);
  f(a.page, asked::page);
  f(a.deterministic, asked::deterministic);
}

struct KernelRow {
  std::string variant, family, forward, backward;
  bool deterministic = false;
  std::optional<std::int64_t> workspace_bytes;
  std::string about;
};
void describe(Of<KernelRow> auto& r, auto&& f) {
  f(r.variant, {.name = "variant"});
  f(r.family, {.name = "family"});
  f(r.forward, {.name = "forward"});
  f(r.backward, {.name = "backward"});
  f(r.deterministic, {.name = "deterministic"});
  f(r.workspace_bytes, {.name = "workspace_bytes", .unit = Unit::bytes});
  f(r.about, {.name = "about"});
}

}  // namespace

RunCommand kernels(CLI::App& app, Common& common) {
  auto asked = std::make_shared<KernelsAsked>();
  add_described(app, *asked);
  app.footer(
      "Examples:\n  headroom kernels\n  headroom kernels --precision bf16 --dim 128 --mask causal\n  headroom kernels --precision bf16 "
      "--device h200  # a GPU that is not present\n"
      "  headroom kernels --dim 128 --documents 4 --softcap 30 --sink\n"
      "  headroom kernels --len 1 --len-k 4096 --page 16 --kv-heads 2 --heads 8");
  common.machine = Machine::described;
  return [asked, &common] {
    const Device d = described_device(common);
    const std::int64_t len_k = asked->len_k ? asked->len_k : asked->len;
    const attention::Problem p{.batch = asked->batch,
                               .heads = asked->heads,
                               .kv_heads = asked->kv_heads ? asked->kv_heads : asked->heads,
                               .len_q = asked->len,
                               .len_k = len_k,
                               .head_dim = asked->dim,
                               .mask = asked->mask,
                               .precision = asked->dtype,
                               .scale = {},
                               .deterministic = asked->deterministic,
                               .dim_v = asked->dim_v,
                               .softcap = float(asked->softcap),
                               .sink = asked->sink,
                               .documents = asked->documents,
                               .page = asked->page,
                               .pages = asked->page ? asked->batch * ceil_div(len_k, asked->page) : 0,
                               .dropout = float(asked->dropout),
                               .alibi = asked->alibi};
    attention::check(p);
    Record r{"kernels", fmt::format("attention on {}: {}", d.name, studies::describe(p)), {}};
    std::vector<KernelRow> rows;
    const auto answer = [](const Support& s) { return s.ok ? std::string("yes") : "no: " + s.why; };
    bool served = false;
    for (const attention::Variant& v : attention::variants()) {
      const Support forward = v.supports(p, d, attention::Pass::forward), backward = v.supports(p, d, attention::Pass::backward);
      KernelRow row;
      row.variant = v.name;
      row.family = v.family;
      row.about = v.about;
      row.deterministic = v.deterministic;
      row.forward = answer(forward);
      row.backward = answer(backward);
      if (forward.ok && (backward.ok || p.page != 0)) {  // a cache in pages has no backward
        served = true;
        const int workers = d.kind == DeviceKind::cpu ? d.units : 1;
        std::size_t most = attention::workspace_bytes(v, p, d, attention::Pass::forward, workers);
        if (backward.ok) most = std::max(most, attention::workspace_bytes(v, p, d, attention::Pass::backward, workers));
        row.workspace_bytes = std::int64_t(most);
      }
      rows.push_back(std::move(row));
    }
    r.add(Part{table_of("attention", "", rows)});
    if (served)
      r.add("chosen", std::string(attention::choose(p, d, "", p.page ? attention::Pass::forward : attention::Pass::backward).name));
    return deliver(r, common, served ? yes : no);
  };
}

}  // namespace headroom::cli
