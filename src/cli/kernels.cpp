// headroom kernels — every variant of attention, and why it can or cannot serve a problem here.
#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "ops/attention/attention.h"

namespace headroom::cli {

Run kernels(CLI::App& app, Common& common) {
  struct Asked {
    std::string dtype = "fp32", mask = "full";
    std::int64_t dim = 64, len = 1024, heads = 1, kv_heads = 0, batch = 1;
    bool deterministic = false;
  };
  auto asked = std::make_shared<Asked>();
  add_choice(app, "--dtype", asked->dtype, {"fp32", "tf32", "bf16", "fp16", "fp8"}, "Of the problem");
  add_integer(app, "--batch", asked->batch, {1}, "Sequences");
  add_integer(app, "--heads", asked->heads, {1}, "Query heads");
  add_integer(app, "--kv-heads", asked->kv_heads, {0}, "Key heads; 0: as many as query heads");
  add_integer(app, "--dim", asked->dim, {1, 256}, "Head dimension");
  add_integer(app, "--len", asked->len, {0, (1ll << 31) - 1}, "Length");
  add_mask(app, asked->mask, "full, causal, window:W (also causal:top-left, window:W:top-left)");
  add_flag(app, "--deterministic", asked->deterministic, "The same bits on every run");
  app.footer(
      "Examples:\n  headroom kernels\n  headroom kernels --dtype bf16 --dim 128 --mask causal\n  headroom kernels --dtype bf16 --device "
      "h200     (on a GPU that is not here)");
  common.only_counts = true;
  return [asked, &common] {
    const Device d = described_device(common);
    const attention::Problem p{.batch = asked->batch,
                               .heads = asked->heads,
                               .kv_heads = asked->kv_heads ? asked->kv_heads : asked->heads,
                               .len_q = asked->len,
                               .len_k = asked->len,
                               .head_dim = asked->dim,
                               .mask = *attention::mask_named(asked->mask),
                               .precision = *precision_named(asked->dtype),
                               .scale = 0,
                               .deterministic = asked->deterministic};
    attention::check(p);
    Record r{
        "kernels", fmt::format("attention on {}: {} head_dim {} len {} {}", d.name, asked->dtype, p.head_dim, p.len_q, asked->mask), {}};
    Table t{"attention",
            "",
            {{"variant"}, {"family"}, {"forward"}, {"backward"}, {"deterministic"}, {"workspace_bytes", Unit::bytes}, {"about"}},
            {}};
    const auto answer = [](const Support& s) { return s.ok ? std::string("yes") : "no: " + s.why; };
    bool served = false;
    for (const attention::Variant& v : attention::variants()) {
      const Support forward = v.supports(p, d, attention::Pass::forward), backward = v.supports(p, d, attention::Pass::backward);
      Value workspace;
      if (forward.ok && backward.ok) {
        served = true;
        const int workers = d.kind == DeviceKind::cpu ? d.units : 1;
        workspace = std::int64_t(std::max(attention::workspace_bytes(v, p, d, attention::Pass::forward, workers),
                                          attention::workspace_bytes(v, p, d, attention::Pass::backward, workers)));
      }
      t.add({std::string(v.name), std::string(v.family), answer(forward), answer(backward), v.deterministic, workspace,
             std::string(v.about)});
    }
    r.add(Part{std::move(t)});
    if (served) r.add("chosen", std::string(attention::choose(p, d).name));
    return deliver(r, common, served ? yes : no);
  };
}

}  // namespace headroom::cli
