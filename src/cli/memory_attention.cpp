// headroom memory attention — parse, ask the study, print.
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "studies/memory/attention.h"

namespace headroom::cli {

namespace {

struct MemoryAsked {
  AttentionMemory study;
  std::vector<std::string> dtypes{"fp32"}, variants;
  std::string as = "headroom", mask = "full", softmax = "builtin", upstream = "given", peak_of;
  double workspace_mib = -1;
};

// A name of devices.json serves whether or not such a device is here. PyTorch's account is of a GPU: without one named, an H200.
Device described(const Common& common, bool as_pytorch) {
  const std::string& name = common.device;
  if (name.empty()) return as_pytorch ? device_described("h200") : cpu_device();
  if (name == "cpu" || name.starts_with("cuda")) {
    Device d = chosen_device(common);
    check(!as_pytorch || d.kind == DeviceKind::cuda, Code::bad_argument,
          "--device cpu: --as pytorch accounts for PyTorch's CUDA allocator; name a GPU, present or not, as in --device h200");
    return d;
  }
  return device_described(name);
}

}  // namespace

Run memory_attention_topic(CLI::App& app, Common& common) {
  auto a = std::make_shared<MemoryAsked>();
  AttentionMemory& s = a->study;
  constexpr std::int64_t many = (1ll << 31) - 1;
  add_choice(app, "--as", a->as, {"headroom", "pytorch"}, "Whose attention: this library's, or PyTorch eager's");
  add_choices(app, "--variant", a->variants, {"plain", "flash"},
              "plain keeps N×N matrices, flash does not [plain,flash; as pytorch: plain]");
  add_integer(app, "--batch", s.batch, {1, many}, "Sequences");
  add_integer(app, "--heads", s.heads, {1, many}, "Query heads");
  add_integer(app, "--kv-heads", s.kv_heads, {0, many}, "Key heads; 0: as many as heads");
  add_integers(app, "--dim", s.dims, {1, 256}, "Head dimensions");
  add_integers(app, "--len", s.lens, {1, many}, "Lengths");
  add_integer(app, "--len-k", s.len_k, {0, many}, "Length of the keys; 0: as --len");
  add_choices(app, "--dtype", a->dtypes, {"fp32", "tf32", "bf16", "fp16", "fp8"}, "Types");
  add_mask(app, a->mask, "full, causal, window:W (also causal:top-left, window:W:top-left)");
  add_bytes(app, "--memory", s.memory_bytes, "Memory limit, including what is allocated beside tensors [the device's]");
  add_choice(app, "--softmax", a->softmax, {"builtin", "composed"}, "As pytorch: torch.softmax, or max, subtract, exp, sum, divide");
  add_choice(app, "--upstream", a->upstream, {"given", "sum"}, "As pytorch: o.backward(dO) with o kept, or o.sum().backward()");
  add_number(app, "--workspace-mib", a->workspace_mib, 0, 4096,
             "As pytorch: one cuBLAS workspace [by architecture: 32 for H100, H200, B200, else 8.125]")
      ->default_str("");
  add_choice(app, "--peak-of", a->peak_of, {"forward", "step"},
             "As pytorch: the pass whose peak is peak_bytes [upstream sum: forward; given: step]");
  add_flag(app, "--measure", s.measure, "Run every row that fits, and show the measured bytes beside the forecast");
  app.footer(
      "Examples:\n"
      "  headroom memory attention --dim 64 --len 1024,4096,16384 --memory 24\n"
      "  headroom memory attention --heads 16 --dtype fp32,bf16 --device h100\n"
      "  headroom memory attention --as pytorch --batch 8 --dim 16,32 --len 256,1024 --softmax composed --upstream sum\n\n"
      "Exit codes: 0 a row fits; 3 none fits, or none is supported.");
  return [a, &common] {
    AttentionMemory& s = a->study;
    s.as_pytorch = a->as == "pytorch";
    s.device = described(common, s.as_pytorch);
    if (s.device.kind == DeviceKind::cpu) s.workers = s.device.units;
    s.variants = !a->variants.empty() ? a->variants
                 : s.as_pytorch       ? std::vector<std::string>{"plain"}
                                      : std::vector<std::string>{"plain", "flash"};
    s.mask = *attention::mask_named(a->mask);
    s.precisions.clear();
    for (const auto& name : a->dtypes) s.precisions.push_back(*precision_named(name));
    const bool of_pytorch = a->softmax != "builtin" || a->upstream != "given" || a->workspace_mib >= 0 || !a->peak_of.empty();
    check(s.as_pytorch || !of_pytorch, Code::bad_argument, "--softmax, --upstream, --workspace-mib and --peak-of need --as pytorch");
    check(!s.as_pytorch || !s.measure, Code::bad_argument, "--measure runs this library's attention; leave --as pytorch out");
    s.stop = interrupted;
    s.program.softmax = a->softmax == "composed" ? pytorch::Softmax::composed : pytorch::Softmax::builtin;
    s.program.upstream = a->upstream == "sum" ? pytorch::Upstream::sum : pytorch::Upstream::given;
    if (!a->peak_of.empty()) s.program.peak_of = a->peak_of == "forward" ? pytorch::PeakOf::forward : pytorch::PeakOf::step;
    if (a->workspace_mib >= 0) s.workspace_bytes = std::uint64_t(a->workspace_mib * 1048576.0);
    const Answer answer = memory_attention(s);
    return deliver(answer.record, common, interrupted() ? failed : answer.fits ? yes : no);
  };
}

}  // namespace headroom::cli
