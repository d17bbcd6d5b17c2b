// headroom memory model — parse, ask the study, print.
#include "base/threads.h"
#include "cli/step_options.h"
#include "studies/memory/inference.h"
#include "studies/memory/model.h"
#include "studies/memory/model_pytorch.h"

namespace headroom::cli {

namespace {
struct ModelAsked {
  ModelMemory study;
  ModelOptions model;
  HoldingAsked holding;
  std::vector<std::string> precisions{"fp32"}, keeps{"everything"};
  std::string as = "headroom", attention, softmax, adam, phase = "train";
  double workspace_mib = -1;
};

Answer as_pytorch(const ModelAsked& a, const Common& common) {
  check(!a.study.measure, Code::bad_argument, "--measure runs this library's step; leave --as pytorch out");
  const engine::ModelConfig c = a.model.config();
  check(a.keeps == std::vector<std::string>{"everything"}, Code::bad_argument,
        "--keep: PyTorch eager is accounted for without recomputation; leave --keep out");
  check(a.holding.plain(), Code::bad_argument,
        "--masters, --gradients and --update are options of this library's step; leave --as pytorch out");
  check(!c.counted, Code::unsupported, "--as pytorch: PyTorch's step of {} is not known ({}); leave --as pytorch out", c.name,
        c.counted ? c.counted->untrained : "");
  check(a.phase == "train", Code::bad_argument, "--phase {}: --as pytorch accounts for a training step", a.phase);
  PyTorchModelMemory m;
  m.name = c.name;
  m.model.vocab = c.vocab;
  m.model.width = c.width;
  m.model.ffn = c.ffn;
  m.model.layers = c.layers;
  m.model.heads = c.heads;
  m.model.kv_heads = c.kv_heads;
  m.model.head_dim = c.head_dim;
  m.model.tied = c.tied;
  m.model.fused_attention = a.attention == "flash";
  m.model.softmax = a.softmax == "composed" ? pytorch::Softmax::composed : pytorch::Softmax::builtin;
  m.model.adam = a.adam == "fused" ? pytorch::Adam::fused : pytorch::Adam::foreach;
  m.batches = a.study.batches;
  m.lens = a.study.lens;
  m.precisions = precisions_of(a.precisions);
  m.device = common.device.empty() ? device_described("h200") : described_device(common);
  check(m.device.kind == DeviceKind::cuda, Code::bad_argument,
        "--device {}: --as pytorch accounts for PyTorch's CUDA allocator; name a GPU, present or not, as in --device h200", common.device);
  m.memory_bytes = a.study.memory_bytes;
  if (a.workspace_mib >= 0) m.workspace_bytes = std::uint64_t(a.workspace_mib * 1048576.0);
  Answer answer = memory_model_as_pytorch(m);
  std::vector<std::string> left_out = c.left_out;
  if (c.qkv_bias) left_out.push_back("the biases of q, k and v");
  if (c.qk_norm) left_out.push_back("the norms of q and k");
  for (const std::string& what : left_out) answer.record.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  return answer;
}
}  // namespace

Run memory_model_topic(CLI::App& app, Common& common) {
  auto a = std::make_shared<ModelAsked>();
  ModelMemory& s = a->study;
  add_model(app, a->model);
  add_integers(app, "--batch", s.batches, {1, 1 << 30}, "Sequences");
  add_integers(app, "--len", s.lens, {1, 1 << 30}, "Tokens of a sequence");
  add_choices(app, "--precision", a->precisions, {"fp32", "tf32", "bf16", "fp16"},
              "Dtype of activations and matmuls; the optimiser is fp32");
  add_choices(app, "--keep,--recompute", a->keeps, keep_words(),
              "What a block keeps for backward; it computes the rest again; the rest is computed again");
  add_holding(app, a->holding);
  add_choice(app, "--as", a->as, {"headroom", "pytorch"}, "Whose step: this library's, or PyTorch eager's");
  add_choice(app, "--attention", a->attention, {"flash", "plain"}, "plain keeps N×N matrices, flash does not [flash; as pytorch: plain]");
  add_bytes(app, "--memory", s.memory_bytes, "Memory limit, including what is allocated beside tensors [the device's]");
  add_choice(app, "--phase", a->phase, {"train", "inference"}, "A training step, or answering: weights, cache, prefill, decode");
  add_flag(app, "--measure", s.measure, "Also run a step of each row: bytes by the ledger and, on a GPU, by the driver");
  add_choice(app, "--softmax", a->softmax, {"builtin", "composed"},
             "As pytorch: torch.softmax, or max, subtract, exp, sum, divide [builtin]");
  add_choice(app, "--adam", a->adam, {"foreach", "fused"},
             "As pytorch: AdamW's default, with a temporary as large as all parameters, or fused [foreach]");
  add_number(app, "--workspace-mib", a->workspace_mib, 0, 4096,
             "As pytorch: one cuBLAS workspace [by architecture: 32 for H100, H200, B200, else 8.125]")
      ->default_str("");
  app.footer(
      "Examples:\n  headroom memory model --model 2.7B --batch 4 --len 128,512,1024 --precision fp32\n"
      "  headroom memory model --model small --len 1024 --attention plain --device rtx4090\n"
      "  headroom memory model --as pytorch --model 2.7B --len 128,512,1024 --precision fp32,bf16\n"
      "  headroom memory model --phase inference --model DIR/config.json --batch 1,8 --len 8192 --precision bf16 --device h100\n\n"
      "Exit codes: 0 a row fits; 3 none does.");
  return [a, &common] {
    const auto answered = [&](const Answer& answer) { return deliver(answer.record, common, answer.fits ? yes : no); };
    if (a->as == "pytorch") return answered(as_pytorch(*a, common));
    check(a->softmax.empty() && a->adam.empty() && a->workspace_mib < 0, Code::bad_argument,
          "--softmax, --adam and --workspace-mib need --as pytorch");
    ModelMemory& m = a->study;
    if (!a->attention.empty()) m.attention = a->attention;
    m.model = a->model.config();
    m.holding = a->holding.settings();
    m.device = m.measure ? chosen_device(common) : described_device(common);
    m.precisions = precisions_of(a->precisions, m.device);
    m.keeps = keeps_of(a->keeps);
    m.workers = m.device.kind == DeviceKind::cpu ? available_cores() : 1;
    if (a->phase == "inference") {
      check(!m.measure && a->holding.plain() && a->keeps == std::vector<std::string>{"everything"}, Code::bad_argument,
            "--phase inference has no backward pass and is not run; leave --keep, --masters, --gradients, --update and --measure out");
      return answered(memory_inference({.model = m.model,
                                        .batches = m.batches,
                                        .lens = m.lens,
                                        .precisions = m.precisions,
                                        .attention = m.attention,
                                        .device = m.device,
                                        .workers = m.workers,
                                        .memory_bytes = m.memory_bytes}));
    }
    if (m.measure) engine::check_trained(m.model);
    return answered(memory_model(m));
  };
}

}  // namespace headroom::cli
