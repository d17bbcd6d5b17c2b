// Times the ops beside matmul and attention on a GPU, at the shapes of models small, large and 2.7B, batch 4, len 1024, in bf16 and fp32. Each
// op's calls are recorded as a graph over several sets of tensors, more than any cache holds, so every call finds its tensors in
// memory. Bytes are those of the op's own account; the last column is the share of what a plain copy of 2 GiB reaches in the same run.
//
// ops_gpu_time [name]: only the ops whose name contains it.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/model/models.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"
#include "engine/pass/head.h"
#include "engine/store/optimizer.h"
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "ops/activation/activation.h"
#include "ops/adamw/adamw.h"
#include "ops/bias/bias.h"
#include "ops/copy/copy.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/head_norm/head_norm.h"
#include "ops/layernorm/layernorm.h"
#include "ops/quantise/quantise.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace {

using namespace headroom;

class Clock {
 public:
  Clock(const Device& device, std::string only) : device_(device), only_(std::move(only)), memory_(free_memory_bytes(device) / 10 * 9) {
    copy_rate_ = time("copy 2 GiB", [](Arena& a) {
      const Tensor from = a.make("from", DType::f32, {1 << 29}), to = a.make("to", DType::f32, {1 << 29});
      return [=](Context& ctx) { copy::copy(from, to, ctx); };
    });
  }
  // make(arena) makes one set of tensors and returns the call. Answers bytes per second.
  template <class Make>
  double time(const std::string& name, Make&& make) {
    if (copy_rate_ > 0 && name.find(only_) == std::string::npos) return 0;
    Arena dry;
    Walk walk;
    Context account{dry, device_};
    account.walk = &walk;
    make(dry)(account);
    if (dry.peak() > memory_.bytes()) {
      fmt::print("{:<44} needs {:.1f} GB, the card lends {:.1f}\n", name, double(dry.peak()) / 1e9, double(memory_.bytes()) / 1e9);
      return 0;
    }
    double bytes = 0;
    for (const OpCall& s : walk.steps) bytes += s.cost.bytes;

    fill_bytes(memory_.data(), 0x3c, memory_.bytes(), stream_);  // about 0.0115 in bf16 and fp32
    Arena arena(memory_.data(), memory_.bytes());
    const int sets = int(std::clamp(3e8 / double(dry.peak()), 1.0, 32.0)), calls = std::max(sets, bytes > 1e9 ? 2 : 40);
    std::vector<decltype(make(arena))> work;
    for (int i = 0; i < sets; ++i) work.push_back(make(arena));
    Context ctx{arena, device_};
    ctx.stream = stream_.raw();
    const Graph graph(stream_, [&] {
      for (int i = 0; i < calls; ++i) work[std::size_t(i % sets)](ctx);
    });
    std::vector<float> ms;
    for (int i = 0; i < 7; ++i) {
      watch_.start(stream_);
      graph.launch(stream_);
      watch_.stop(stream_);
      ms.push_back(watch_.elapsed_ms() / float(calls));
    }
    std::nth_element(ms.begin(), ms.begin() + 3, ms.end());
    const double rate = bytes / (ms[3] * 1e-3), share = copy_rate_ > 0 ? rate / copy_rate_ : 1;
    fmt::print("{:<44} {:>10.1f} us {:>10.2f} MB {:>8.0f} GB/s {:>6.1f} %\n", name, ms[3] * 1e3, bytes / 1e6, rate / 1e9, 100 * share);
    return rate;
  }
  const Stream& stream() const { return stream_; }
  const Device& device() const { return device_; }

 private:
  const Device& device_;
  std::string only_;
  Stream stream_{0};
  Stopwatch watch_;
  Buffer memory_;
  double copy_rate_ = 0;
};

Tensor tokens_in(Arena& a, const std::vector<std::int32_t>& values, const Stream& stream) {
  const Tensor t = a.make("tokens", DType::i32, {std::int64_t(values.size())});
  if (!a.dry()) copy_to_device(t.data, values.data(), t.bytes(), stream);
  return t;
}

void time_model(Clock& clock, const engine::Decoder& model, DType type) {
  const engine::PlainModel c = sizes_of(model);
  const std::int64_t q_width = c.heads * c.head_dim, qkv_width = q_width + 2 * c.kv_heads * c.head_dim;
  const std::int64_t batch = 4, len = 1024, rows = batch * len, w = c.width;
  const auto name = [&](const char* op) { return fmt::format("{:<24} {:<5} {}", op, c.name, name_of(type)); };
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < rows; ++i) tokens.push_back(std::int32_t(Random{1}.below(std::uint64_t(i), std::uint64_t(c.vocab))));

  clock.time(name("rmsnorm.forward"), [&](Arena& a) {
    const rmsnorm::Forward t{a.make("x", type, {rows, w}), a.make("w", DType::f32, {w}), a.make("y", type, {rows, w}),
                             a.make("rstd", DType::f32, {rows})};
    return [=](Context& ctx) { rmsnorm::forward(t, ctx); };
  });
  clock.time(name("rmsnorm.backward, adding"), [&](Arena& a) {
    const rmsnorm::Backward t{a.make("x", type, {rows, w}),
                              a.make("w", DType::f32, {w}),
                              a.make("rstd", DType::f32, {rows}),
                              a.make("dy", type, {rows, w}),
                              a.make("dx", type, {rows, w}),
                              a.make("dw", DType::f32, {w}),
                              Gradient::accumulate,
                              Gradient::overwrite};
    return [=](Context& ctx) { rmsnorm::backward(t, ctx); };
  });
  clock.time(name("rmsnorm.forward + x"), [&](Arena& a) {  // a norm after a half: into the residual stream
    const rmsnorm::Forward t{
        a.make("x", type, {rows, w}), a.make("w", DType::f32, {w}), a.make("y", type, {rows, w}), a.make("rstd", DType::f32, {rows}), 1e-5f,
        a.make("h", type, {rows, w})};
    return [=](Context& ctx) { rmsnorm::forward(t, ctx); };
  });
  const auto q_rows = [&](Arena& a) {  // of [rows, q + k + v]
    Tensor t = a.make("qkv", type, {rows, qkv_width});
    t.shape = {rows, q_width};
    return t;
  };
  clock.time(name("rmsnorm.forward of q"), [&](Arena& a) {  // over all heads
    const rmsnorm::Forward t{q_rows(a), a.make("w", DType::f32, {q_width}), q_rows(a), a.make("rstd", DType::f32, {rows})};
    return [=](Context& ctx) { rmsnorm::forward(t, ctx); };
  });
  clock.time(name("rmsnorm.backward of q"), [&](Arena& a) {
    const Tensor x = q_rows(a), d = q_rows(a), weight = a.make("w", DType::f32, {q_width}), dw = a.make("dw", DType::f32, {q_width});
    const rmsnorm::Backward t{x, weight, a.make("rstd", DType::f32, {rows}), d, d, dw};
    return [=](Context& ctx) { rmsnorm::backward(t, ctx); };
  });
  clock.time(name("layernorm.forward"), [&](Arena& a) {
    const layernorm::Forward t{a.make("x", type, {rows, w}), a.make("w", DType::f32, {w}),       a.make("b", DType::f32, {w}),
                               a.make("y", type, {rows, w}), a.make("mean", DType::f32, {rows}), a.make("rstd", DType::f32, {rows})};
    return [=](Context& ctx) { layernorm::forward(t, ctx); };
  });
  clock.time(name("layernorm.backward, adding"), [&](Arena& a) {
    const layernorm::Backward t{.x = a.make("x", type, {rows, w}),
                                .weight = a.make("w", DType::f32, {w}),
                                .mean = a.make("mean", DType::f32, {rows}),
                                .rstd = a.make("rstd", DType::f32, {rows}),
                                .dy = a.make("dy", type, {rows, w}),
                                .dx = a.make("dx", type, {rows, w}),
                                .dweight = a.make("dw", DType::f32, {w}),
                                .dbias = a.make("db", DType::f32, {w}),
                                .into_dx = Gradient::accumulate};
    return [=](Context& ctx) { layernorm::backward(t, ctx); };
  });
  using activation::Function;
  for (const auto& [function, gates] : {std::pair{Function::gelu, 1}, {Function::gelu_tanh, 1}, {Function::gelu_tanh, 2}}) {
    const std::string words = fmt::format("{}{}", names_of<Function>.of(function), gates == 2 ? ", gated" : "");
    clock.time(name((words + " forward").c_str()), [&](Arena& a) {
      const activation::Forward t{a.make("in", type, {rows, gates * c.ffn}), a.make("act", type, {rows, c.ffn}), function};
      return [=](Context& ctx) { activation::forward(t, ctx); };
    });
    clock.time(name((words + " backward").c_str()), [&](Arena& a) {
      const Tensor in = a.make("in", type, {rows, gates * c.ffn});
      const activation::Backward t{in, a.make("dact", type, {rows, c.ffn}), in, {}, function};
      return [=](Context& ctx) { activation::backward(t, ctx); };
    });
  }
  clock.time(name("swiglu.forward"), [&](Arena& a) {
    const swiglu::Forward t{a.make("gate_up", type, {rows, 2 * c.ffn}), a.make("act", type, {rows, c.ffn})};
    return [=](Context& ctx) { swiglu::forward(t, ctx); };
  });
  clock.time(name("swiglu.backward"), [&](Arena& a) {
    const Tensor gate_up = a.make("gate_up", type, {rows, 2 * c.ffn}), dact = a.make("dact", type, {rows, c.ffn});
    return [=](Context& ctx) { swiglu::backward({gate_up, dact, gate_up}, ctx); };
  });
  for (const ScaleKind kind : {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block})
    for (const auto& [as_is, transposed] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const char* copies = as_is && transposed ? "both" : as_is ? "as is" : "transposed";
      clock.time(name(fmt::format("quantise {}, {}", name_of(kind), copies).c_str()),
                 [&, as_is = as_is, transposed = transposed](Arena& a) {
                   Context ctx{a, clock.device()};
                   const Tensor x = a.make("x", type, {rows, c.ffn}), counts = a.make("counts", DType::i64, {quantise::count_size});
                   const Scaled y = as_is ? quantise::make("y", {DType::e4m3, kind}, rows, c.ffn, ctx) : Scaled(),
                                t = transposed ? quantise::make("t", {DType::e4m3, kind}, c.ffn, rows, ctx) : Scaled();
                   return [=](Context& on) { quantise::quantise({x, y, t, counts}, on); };
                 });
    }
  if (type == DType::bf16)
    for (const ScaleKind kind : {ScaleKind::row, ScaleKind::run}) {
      for (const quantise::Of of : {quantise::Of::swiglu, quantise::Of::swiglu_gradient}) {
        const char* what = of == quantise::Of::swiglu ? "quantise swiglu" : "quantise swiglu's d";
        clock.time(name(fmt::format("{}, {}", what, name_of(kind)).c_str()), [&](Arena& a) {
          Context ctx{a, clock.device()};
          const Tensor x = a.make("gate_up", type, {rows, 2 * c.ffn}), dact = a.make("dact", type, {rows, c.ffn}),
                       counts = a.make("counts", DType::i64, {quantise::count_size});
          const std::int64_t columns = of == quantise::Of::swiglu ? c.ffn : 2 * c.ffn;
          const Scaled y = quantise::make("y", {DType::e4m3, kind}, rows, columns, ctx),
                       t = quantise::make("t", {DType::e4m3, kind}, columns, rows, ctx);
          return [=](Context& on) {
            quantise::quantise(
                {.x = x, .as_is = y, .transposed = t, .counts = counts, .of = of, .dact = of == quantise::Of::swiglu ? Tensor() : dact},
                on);
          };
        });
      }
    }
  clock.time(name("rope of q and k"), [&](Arena& a) {
    Tensor x = a.make("qkv", type, {rows, qkv_width});
    const Tensor table = a.make("table", DType::f32, {len, c.head_dim});
    x.shape = {batch, len, c.heads + c.kv_heads, c.head_dim};
    x.stride = {len * qkv_width, qkv_width, c.head_dim, 1};
    return [=](Context& ctx) { rope::rotate(x, table, rope::Turn::forward, ctx); };
  });
  clock.time(name("head_norm.forward of q"), [&](Arena& a) {
    const Tensor weight = a.make("w", DType::f32, {c.head_dim}), table = a.make("table", DType::f32, {len, c.head_dim}),
                 y = a.make("q", type, {batch, len, c.heads, c.head_dim});
    Tensor x = a.make("qkv", type, {rows, qkv_width});
    x.shape = y.shape, x.stride = {len * qkv_width, qkv_width, c.head_dim, 1};
    return [=](Context& ctx) { head_norm::forward({x, weight, table, y}, ctx); };
  });
  clock.time(name("head_norm.backward of q"), [&](Arena& a) {
    const Tensor weight = a.make("w", DType::f32, {c.head_dim}), table = a.make("table", DType::f32, {len, c.head_dim}),
                 dweight = a.make("dw", DType::f32, {c.head_dim}), d = a.make("dq", type, {batch, len, c.heads, c.head_dim});
    Tensor x = a.make("qkv", type, {rows, qkv_width});
    x.shape = d.shape, x.stride = {len * qkv_width, qkv_width, c.head_dim, 1};
    return [=](Context& ctx) { head_norm::backward({x, weight, table, d, dweight}, ctx); };
  });
  clock.time(name("bias"), [&](Arena& a) {
    const Tensor y = a.make("qkv", type, {rows, qkv_width}), b = a.make("bias", DType::f32, {qkv_width});
    return [=](Context& ctx) { bias::add(y, b, ctx); };
  });
  clock.time(name("bias.backward"), [&](Arena& a) {
    const Tensor dy = a.make("dqkv", type, {rows, qkv_width}), db = a.make("db", DType::f32, {qkv_width});
    return [=](Context& ctx) { bias::backward(dy, db, Gradient::overwrite, ctx); };
  });
  clock.time(name("embedding.forward"), [&](Arena& a) {
    const Tensor table = a.make("table", DType::f32, {c.vocab, w}), x = a.make("x", type, {rows, w});
    const Tensor t = tokens_in(a, tokens, clock.stream());
    return [=](Context& ctx) { embedding::forward(table, t, x, ctx); };
  });
  clock.time(name("embedding.backward"), [&](Arena& a) {
    const Tensor table = a.make("dtable", DType::f32, {c.vocab, w}), x = a.make("dx", type, {rows, w});
    const Tensor t = tokens_in(a, tokens, clock.stream());
    return [=](Context& ctx) { embedding::backward(t, x, table, Gradient::overwrite, ctx); };
  });
  for (const std::int64_t vocab : {c.vocab, std::int64_t(151936)}) {
    engine::Decoder of_vocab = model;
    of_vocab.vocab = vocab;
    const std::int64_t chunk = engine::chunk_of(of_vocab, type, DType::f32, clock.device(), rows);
    for (const float cap : {0.0f, 30.0f})
      clock.time(name(fmt::format("cross_entropy{} {}x{}", cap > 0 ? " capped" : "", chunk, vocab).c_str()), [&](Arena& a) {
        const Tensor logits = a.make("logits", DType::f32, {chunk, vocab}), losses = a.make("losses", DType::f32, {chunk});
        const Tensor t = tokens_in(a, {tokens.begin(), tokens.begin() + chunk}, clock.stream());
        return [=](Context& ctx) {
          cross_entropy::run(
              {.logits = logits, .targets = t, .losses = losses, .dlogits = cross_entropy::gradient_inside(logits, type), .softcap = cap},
              ctx);
        };
      });
  }
  clock.time(name("adamw, norm and step"), [&](Arena& a) {
    std::vector<adamw::Update> all;
    for (const engine::ParamSpec& s : engine::param_table(model)) {
      const auto make = [&](DType t) { return a.make(s.name, t, s.shape); };
      all.push_back({make(DType::f32), make(DType::f32), make(DType::f32), make(DType::f32),
                     s.multiplied && type != DType::f32 ? make(type) : Tensor(), s.decay});
    }
    const Tensor state = a.make("state", DType::f64, {adamw::state_size});
    return [=](Context& ctx) {
      adamw::start(state, 1, ctx);
      adamw::update(all, state, {}, ctx);
    };
  });
  for (const engine::Moments moments : {engine::Moments::whole, engine::Moments::half, engine::Moments::eight}) {
    if (type != DType::bf16) break;
    const std::string what = fmt::format("adamw, halves, {}", name_of(moments));
    clock.time(name(what.c_str()), [&](Arena& a) {  // as --update during has it
      const engine::Optimizer optimizer(moments);
      std::vector<adamw::Update> all;
      for (const engine::ParamSpec& s : engine::param_table(model)) {
        const auto make = [&](DType t) { return a.make(s.name, t, s.shape); };
        engine::Updated u{.grad = make(s.multiplied ? type : DType::f32),
                          .master = s.multiplied ? Tensor() : make(DType::f32),
                          .copy = s.multiplied ? make(type) : Tensor(),
                          .rest = s.multiplied ? make(DType::u16) : Tensor(),
                          .state = {}};
        for (const engine::StateTensor& t : optimizer.states(s)) u.state.push_back(a.make(s.name, t.type, t.shape_for(s.shape)));
        all.push_back(optimizer.update(u));
      }
      const Tensor state = a.make("state", DType::f64, {adamw::state_size});
      return [=](Context& ctx) {
        auto scope = ctx.arena.scope();
        adamw::start(state, 1, ctx);
        engine::Optimizer::advance(all, engine::Optimizer::begin(state, {.clip = 0}, ctx), ctx);
      };
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Device device = cuda_device(0);
    Clock clock(device, argc > 1 ? argv[1] : "");
    for (const char* model : {"small", "large", "2.7B"})
      for (const DType type : {DType::bf16, DType::f32})
        for (const auto& c : engine::presets())
          if (c.name == model) time_model(clock, c, type);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
