// Every attention variant of this machine's GPU against the FP64 oracle: the cases of the CPU suite, and what only a GPU can get wrong.
#include <cstdlib>

#include "gpu/buffer.h"
#include "gpu/device.h"
#include "tests/attention_cases.h"

namespace headroom::attention {
namespace {

using namespace cases;

struct OnDevice {  // a case's tensors, guard bands and all, in device memory
  Tensors& here;
  const Stream& stream;
  std::vector<std::pair<Guarded*, Buffer>> there;

  OnDevice(Tensors& x, const Stream& s) : here(x), stream(s) {
    for (Guarded* g : {&x.q, &x.k, &x.v, &x.d_o, &x.dlse, &x.o, &x.lse, &x.dq, &x.dk, &x.dv}) {
      there.emplace_back(g, Buffer(g->bytes().size()));
      copy_to_device(there.back().second.data(), g->bytes().data(), g->bytes().size(), s);
    }
  }
  Tensor operator()(Guarded& g) const {
    for (const auto& [from, buffer] : there)
      if (from == &g) return g.at(buffer.data());
    return {};
  }
  void back() {
    for (auto& [to, buffer] : there) copy_to_host(to->bytes().data(), buffer.data(), buffer.bytes(), stream);
    stream.wait();
  }
};

class AttentionGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    device = cuda_device(0);
    stream = std::make_unique<Stream>(0);
  }

  bool serves(const Variant& v, const Problem& p, Pass pass) const { return v.supports(p, device, pass).ok; }

  // Forward, and backward where there is one, in arenas of exactly the size that a dry run asked for, all of it poisoned.
  bool run(const Variant& v, const Case& c, Tensors& x) {
    const Problem& p = c.problem;
    const bool backward_too = serves(v, p, Pass::backward);
    OnDevice t(x, *stream);
    Arena dry;
    Context dry_ctx{dry, device};
    make_saved(v, p, dry_ctx);
    Buffer saved_memory(dry.peak() + 256);
    Arena saved_arena(saved_memory.data(), saved_memory.bytes());
    Context saving{saved_arena, device};
    const Saved saved = make_saved(v, p, saving);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (pass == Pass::backward && !backward_too) continue;
      const auto bytes = workspace_bytes(v, p, device, pass, 1);
      Buffer memory(bytes + 256);
      fill_bytes(memory.data(), 0xff, memory.bytes(), *stream);
      Arena arena(memory.data(), bytes);
      Context ctx{arena, device};
      ctx.stream = stream->raw();
      if (pass == Pass::forward)
        forward(v, p, {t(x.q), t(x.k), t(x.v), t(x.o), t(x.lse), saved}, ctx);
      else
        backward(v, p,
                 {t(x.q), t(x.k), t(x.v), t(x.o), t(x.lse), t(x.d_o), c.with_dlse ? t(x.dlse) : Tensor(), t(x.dq), t(x.dk), t(x.dv), saved},
                 ctx);
      EXPECT_EQ(arena.peak(), bytes) << "the dry run promised other scratch: " << v.name << " " << in_words(c);
      stream->wait();
    }
    t.back();
    return backward_too;
  }

  void check_case(const Case& c) {
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem, Pass::forward)) continue;
      SCOPED_TRACE(v.name);
      Tensors x = tensors_of(c);
      try {
        const bool gradients = run(v, c, x);
        judge(c, x, true, gradients);
        ++checked;
      } catch (const Error& e) {  // strides that a kernel cannot reach are refused with a sentence, and nothing else is
        EXPECT_TRUE(e.at.code == Code::unsupported && c.layout == Layout::padded) << e.what() << "\n" << in_words(c);
      }
    }
  }

  Device device;
  std::unique_ptr<Stream> stream;
  int checked = 0;
};

Problem problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask = {},
                DType dtype = DType::bf16) {
  Problem p;
  p.batch = 2, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim, p.mask = mask;
  p.precision.dtype = dtype;
  return p;
}

constexpr DType types[] = {DType::bf16, DType::f16, DType::f32};

TEST_F(AttentionGpu, EveryMaskAndTypeAndLayout) {
  for (DType dtype : types)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(70),
                      Mask::sliding(9, Align::top_left)})
      for (Layout layout : {Layout::rows, Layout::heads_first, Layout::padded}) {
        check_case({problem(2, 1, 97, 97, 24, mask, dtype), layout, Values::normal, true, 3});
        check_case({problem(1, 1, 65, 330, 16, mask, dtype), layout, Values::normal, true, 4});
        check_case({problem(1, 1, 330, 33, 16, mask, dtype), layout, Values::normal, false, 5});
      }
  EXPECT_GT(checked, 0);
}

TEST_F(AttentionGpu, EveryHeadDimension) {
  for (DType dtype : types)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(40)})
      for (std::int64_t dim : {8, 16, 32, 40, 64, 80, 96, 128, 160, 192, 256})
        check_case({problem(2, 2, 150, 170, dim, mask, dtype), Layout::rows, Values::normal, true, 6});
}

TEST_F(AttentionGpu, LengthsThatNoTileDivides) {
  for (Mask mask : {Mask::full(), Mask::causal()})
    for (std::int64_t len : {1, 2, 63, 64, 65, 79, 80, 81, 127, 128, 129, 191, 192, 193, 255, 257, 385}) {
      check_case({problem(1, 1, len, len, 64, mask), Layout::rows, Values::normal, true, std::uint64_t(len)});
      check_case({problem(1, 1, len, len + 3, 128, mask, DType::f16), Layout::rows, Values::normal, true, std::uint64_t(len)});
    }
}

TEST_F(AttentionGpu, NothingToAttend) {
  for (DType dtype : types)
    for (auto [lq, lk] : {std::pair{0, 0}, {0, 5}, {5, 0}, {1, 1}, {1, 0}, {0, 1}, {1, 200}, {200, 1}})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(3)})
        check_case({problem(2, 1, lq, lk, 8, mask, dtype), Layout::rows, Values::normal, true, 9});
  Problem none = problem(1, 1, 4, 4, 8);
  none.batch = 0;
  check_case({none});
}

// Few rows, many blocks: keys of a row are dealt to several blocks, query heads of a key head are packed as rows of one tile.
TEST_F(AttentionGpu, FewRowsFillTheCard) {
  const auto shared = [&](std::int64_t dim, Mask mask, std::initializer_list<std::pair<int, int>> heads_and_rows) {
    check_case({problem(1, 1, 100, 600, dim, mask), Layout::heads_first, Values::normal, false, 20});
    for (auto [heads, len_q] : heads_and_rows)
      check_case({problem(heads, 2, len_q, 400, dim, mask, DType::f16), Layout(len_q % 2), Values::normal, false, 21});
  };
  for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(300), Mask::causal(Align::top_left)})
    shared(64, mask, {{8, 1}, {16, 5}, {4, 37}, {6, 9}, {64, 2}});
  for (std::int64_t dim : {128, 256})
    for (Mask mask : {Mask::causal(), Mask::sliding(300)}) shared(dim, mask, {{8, 1}, {6, 9}});
  for (auto [dim, len_q, len_k, mask] :  // 140 row tiles on 132 multiprocessors: added up in parts
       {std::tuple{16, 10, 1030, Mask::full()}, {128, 1, 1100, Mask::causal()}, {256, 1, 700, Mask::sliding(500)}})
    check_case({problem(70, 70, len_q, len_k, dim, mask), Layout::rows, Values::normal, false, 22});
}

TEST_F(AttentionGpu, ScoresFarAboveAndBelow) {
  for (Values values : {Values::one_hot, Values::far_above, Values::far_below})
    for (Mask mask : {Mask::full(), Mask::causal()}) check_case({problem(1, 1, 150, 150, 32, mask), Layout::rows, values, true, 8});
}

// HEADROOM_CASE=<seed> runs one configuration; HEADROOM_CASES=<count> another number of them.
TEST_F(AttentionGpu, RandomConfigurations) {
  const char *one = std::getenv("HEADROOM_CASE"), *many = std::getenv("HEADROOM_CASES");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1, count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 600;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Case c = random_case(seed);
    if (seed % 4) c.problem.head_dim = (c.problem.head_dim + 7) / 8 * 8, c.layout = Layout(seed % 2);  // what 16-byte copies can reach
    if (seed % 4 && c.problem.precision.dtype == DType::f32) c.problem.precision.dtype = DType::bf16;
    check_case(c);
    ASSERT_FALSE(HasFailure()) << "rerun with HEADROOM_CASE=" << seed << ": " << in_words(c);
  }
}

TEST_F(AttentionGpu, SameBitsEveryTimeAndInAGraph) {
  for (const Variant& v : variants())
    for (std::int64_t len : {200, 1500}) {  // the second one is split over its keys
      const Case c{problem(2, 1, 130, len, 64, Mask::causal()), Layout::rows, Values::normal, false, 12};
      if (!v.deterministic || !serves(v, c.problem, Pass::forward)) continue;
      SCOPED_TRACE(v.name);
      Tensors x = tensors_of(c);
      run(v, c, x);
      const auto o = x.o.bytes(), lse = x.lse.bytes();
      for (int i = 0; i < 100; ++i) {
        run(v, c, x);
        ASSERT_TRUE(o == x.o.bytes() && lse == x.lse.bytes()) << "run " << i;
      }
      OnDevice t(x, *stream);
      const auto bytes = workspace_bytes(v, c.problem, device, Pass::forward, 1);
      Buffer memory(bytes + 256), saved_memory(64 << 20);
      Arena saved_arena(saved_memory.data(), saved_memory.bytes());
      Context saving{saved_arena, device};
      const Saved saved = make_saved(v, c.problem, saving);
      const Graph graph(*stream, [&] {
        Arena arena(memory.data(), bytes);
        Context ctx{arena, device};
        ctx.stream = stream->raw();
        forward(v, c.problem, {t(x.q), t(x.k), t(x.v), t(x.o), t(x.lse), saved}, ctx);
      });
      for (int i = 0; i < 3; ++i) {
        fill_bytes(t(x.o).data, 0xff, std::size_t(t(x.o).bytes()), *stream);
        graph.launch(*stream);
      }
      t.back();
      EXPECT_TRUE(o == x.o.bytes() && lse == x.lse.bytes()) << "the graph gives other bits";
    }
}

// Key tiles add to dQ one after another, whichever blocks they lie in: the ways round (full), from the diagonal and back (causal), window.
TEST_F(AttentionGpu, GradientsSameBitsWhenAskedAndInAGraph) {
  for (const Variant& v : variants())
    for (std::int64_t dim : {64, 128, 256})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(200)}) {
        Case c{problem(6, 2, 700, 900, dim, mask), Layout::rows, Values::normal, false, 13};
        c.problem.deterministic = true;
        if (!serves(v, c.problem, Pass::backward)) continue;
        SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
        Tensors x = tensors_of(c);
        ASSERT_TRUE(run(v, c, x));
        const auto dq = x.dq.bytes(), dk = x.dk.bytes(), dv = x.dv.bytes();
        for (int i = 0; i < 50; ++i) {
          run(v, c, x);
          ASSERT_TRUE(dq == x.dq.bytes() && dk == x.dk.bytes() && dv == x.dv.bytes()) << "run " << i;
        }
        OnDevice t(x, *stream);
        const auto bytes = workspace_bytes(v, c.problem, device, Pass::backward, 1);
        Buffer memory(bytes + 256), saved_memory(64 << 20);
        Arena saved_arena(saved_memory.data(), saved_memory.bytes());
        Context saving{saved_arena, device};
        const Saved saved = make_saved(v, c.problem, saving);
        const auto forward_bytes = workspace_bytes(v, c.problem, device, Pass::forward, 1);
        Buffer forward_memory(forward_bytes + 256);
        Arena forward_arena(forward_memory.data(), forward_bytes);
        Context forward_ctx{forward_arena, device};
        forward_ctx.stream = stream->raw();
        forward(v, c.problem, {t(x.q), t(x.k), t(x.v), t(x.o), t(x.lse), saved}, forward_ctx);
        const Graph graph(*stream, [&] {
          Arena arena(memory.data(), bytes);
          Context ctx{arena, device};
          ctx.stream = stream->raw();
          backward(v, c.problem, {t(x.q), t(x.k), t(x.v), t(x.o), t(x.lse), t(x.d_o), Tensor(), t(x.dq), t(x.dk), t(x.dv), saved}, ctx);
        });
        for (int i = 0; i < 3; ++i) {
          fill_bytes(t(x.dq).data, 0xff, std::size_t(t(x.dq).bytes()), *stream);
          graph.launch(*stream);
        }
        t.back();
        EXPECT_TRUE(dq == x.dq.bytes() && dk == x.dk.bytes() && dv == x.dv.bytes()) << "the graph gives other bits";
      }
}

}  // namespace
}  // namespace headroom::attention
