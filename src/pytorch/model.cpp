// The parameters of a language model in PyTorch, made in the order of its program.
#include "pytorch/model.h"

#include <algorithm>
#include <utility>

#include "base/divide.h"
namespace headroom::pytorch {

namespace {
Compiled::Sizes sizes_of(const LanguageModel& m) {
  return {.batch = m.batch,
          .len = m.len,
          .width = m.width,
          .heads = m.heads,
          .kv_heads = m.key_heads(),
          .dim = m.dim_of_head(),
          .ffn = m.ffn,
          .vocab = m.vocab,
          .low = m.precision.dtype,
          .casts = m.precision.dtype != DType::f32 && m.autocasts(),
          .written_out = m.base == Base::four_bit ? m.width * std::max(m.ffn, m.heads * m.dim_of_head()) : 0};
}
DType held_in(const LanguageModel& m) { return m.lora > 0 || m.parameters == Parameters::half ? m.precision.dtype : DType::f32; }
DType updated_in(const LanguageModel& m) {  // adapters are FP32
  return m.lora > 0 && m.parameters == Parameters::whole ? DType::f32 : held_in(m);
}

}  // namespace

Model::Model(Eager& t, const LanguageModel& asked)
    : optimizer(t, asked, updated_in(asked)),
      torch(t),
      m(asked),
      kv_heads(asked.key_heads()),
      dim(asked.dim_of_head()),
      low(asked.precision.dtype),
      held(held_in(asked)),
      compiled(t, sizes_of(asked)) {
  switch (m.family) {
    case Family::llama: make_parameters(); break;
    case Family::gpt2: make_parameters_of_gpt2(); break;
    case Family::gemma: make_parameters_of_gemma(); break;
    case Family::experts: make_parameters_of_experts(); break;
    case Family::gpt_oss: make_parameters_of_gpt_oss(); break;
  }
  if (m.sharded()) shard_all();
  const auto hidden = [this](const Parameter& p) {
    return p.value.shape.rank == 2 && p.grad != embed.grad && p.grad != positions.grad && p.grad != head.weight.grad;
  };
  for (const std::size_t i : updated_here())
    if (!m.sharded()) optimizer.sees(trained[i].value.shape, hidden(trained[i]));
  if (m.gpus > 1 && !m.sharded()) make_buckets();
}

void Model::make_parameters() {
  const std::int64_t w = m.width, qw = m.heads * dim, kw = kv_heads * dim;
  embed = stored("embedding", {m.vocab, w});
  blocks.reserve(std::size_t(m.layers));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    BlockWeights b;
    b.norm1 = stored("norm1", {w}), b.norm2 = stored("norm2", {w});
    b.q = matrix("q weight", qw, w), b.k = matrix("k weight", kw, w), b.v = matrix("v weight", kw, w);
    if (m.qkv_bias) b.q.bias = stored("q bias", {qw}), b.k.bias = stored("k bias", {kw}), b.v.bias = stored("v bias", {kw});
    if (m.qk_norm) b.q_norm = stored("q norm", {dim}), b.k_norm = stored("k norm", {dim});
    b.o = matrix("o weight", w, qw);
    b.up = matrix("up weight", m.ffn, w), b.gate = matrix("gate weight", m.ffn, w), b.down = matrix("down weight", w, m.ffn);
    blocks.push_back(std::move(b));
  }
  norm_weight = stored("final norm", {w});
  head = m.tied ? Matrix{embed} : matrix("head", m.vocab, w, false);
  const DType turns = m.parameters == Parameters::half ? low : DType::f32;  // as the stream, or q and k would become FP32
  cos = torch.make("cos", turns, {m.len, dim / 2});
  sin = torch.make("sin", turns, {m.len, dim / 2});
}

Matrix Model::matrix(const std::string& name, std::int64_t out, std::int64_t in, bool adapt) {
  {
    const Value drawn = torch.make("initial values, not yet scaled", DType::f32, {out, in});
    if (held != DType::f32) const Value wide = torch.make("initial values", DType::f32, {out, in});
  }
  Matrix x = m.base == Base::four_bit && adapt ? packed(name, {out, in}) : Matrix{stored(name, {out, in})};
  if (m.lora == 0 || !adapt) return x;
  x.a = adapter(name + " adapter a", {m.lora, in});
  x.b = adapter(name + " adapter b", {out, m.lora});
  return x;
}

Parameter Model::stored(const std::string& name, Shape s) {
  params += std::uint64_t(s.count());
  if (m.lora > 0) return torch.frozen(name, held, s);
  return adapter_of(torch.parameter(name, held, s));
}
// NF4 with double quantisation: 4 bits a number, 8 for every 64 of them, and 32 for every 256 of those. FSDP2 shards parameters of one type: there the
// bits are kept as numbers of the precision (bnb_4bit_quant_storage), and the scales, which are no parameters, are whole on every rank.
Matrix Model::packed(const std::string& name, Shape s) {
  params += std::uint64_t(s.count());
  const std::int64_t scales = (s.count() + 63) / 64;
  Matrix x;
  const DType kept_as = m.sharded() ? low : DType::u8;
  x.weight = torch.frozen(name + ", 4 bits", kept_as, {ceil_div((s.count() + 1) / 2, std::int64_t(size_of(kept_as)))});
  x.of_4bit = s;
  standing.push_back(torch.make(name + ", scales", DType::u8, {scales}));
  standing.push_back(torch.make(name + ", scales of scales", DType::f32, {(scales + 255) / 256}));
  return x;
}
Parameter Model::adapter(const std::string& name, Shape s) {
  { const Value drawn = torch.make("initial values, not yet scaled", DType::f32, s); }
  params += std::uint64_t(s.count());
  return adapter_of(torch.parameter(name, optimizer.type(), s));
}
Parameter Model::adapter_of(Parameter p) {
  trained.push_back(p);
  return p;
}

}  // namespace headroom::pytorch
