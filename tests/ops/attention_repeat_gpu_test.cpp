// Variants that promise the same bits on every run, held to it: a thousand runs, and runs beside work that fills the card.
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "tests/attention_cases.h"

namespace headroom::attention {
namespace {

using namespace cases;

// One problem's tensors in device memory and the calls on them.
class Placed {
 public:
  Placed(const Variant& v, const Problem& p, const Device& device, const Stream& stream)
      : variant_(v), problem_(p), device_(device), stream_(stream), host_(tensors_of({p})) {
    for (Guarded* g : {&host_.q, &host_.k, &host_.v, &host_.d_o, &host_.o, &host_.lse, &host_.dq, &host_.dk, &host_.dv}) {
      memory_.emplace_back(g->bytes().size());
      tensors_.push_back(g->at(memory_.back().data()));
      copy_to_device(memory_.back().data(), g->bytes().data(), g->bytes().size(), stream);
    }
    scratch_.reserve(2);
    for (const Pass pass : {Pass::forward, Pass::backward}) scratch_.emplace_back(workspace_bytes(v, p, device, pass, 1) + 256);
    stream.wait();
  }
  void forward() {
    with_context(Pass::forward, [&](Context& ctx) { attention::forward(variant_, problem_, {q(), k(), v(), o(), lse(), {}}, ctx); });
  }
  void backward() {
    with_context(Pass::backward, [&](Context& ctx) {
      attention::backward(variant_, problem_, {q(), k(), v(), o(), lse(), d_o(), {}, tensors_[6], tensors_[7], tensors_[8], {}}, ctx);
    });
  }
  // The bytes of O, LSE, dQ, dK, dV; what the next run does not write is NaN.
  std::vector<std::byte> results() {
    std::vector<std::byte> all;
    for (std::size_t i = 4; i < memory_.size(); ++i) {
      const std::size_t at = all.size();
      all.resize(at + memory_[i].bytes());
      copy_to_host(all.data() + at, memory_[i].data(), memory_[i].bytes(), stream_);
    }
    stream_.wait();
    for (std::size_t i = 4; i < memory_.size(); ++i) fill_bytes(memory_[i].data(), 0xff, memory_[i].bytes(), stream_);
    return all;
  }

 private:
  const Tensor& q() { return tensors_[0]; }
  const Tensor& k() { return tensors_[1]; }
  const Tensor& v() { return tensors_[2]; }
  const Tensor& d_o() { return tensors_[3]; }
  const Tensor& o() { return tensors_[4]; }
  const Tensor& lse() { return tensors_[5]; }
  template <class Call>
  void with_context(Pass pass, Call&& call) {
    Buffer& scratch = scratch_[std::size_t(pass)];
    Arena arena(scratch.data(), scratch.bytes());
    Context ctx{arena, device_};
    ctx.stream = stream_.raw();
    call(ctx);
  }

  const Variant& variant_;
  Problem problem_;
  const Device& device_;
  const Stream& stream_;
  Tensors host_;
  std::vector<Buffer> memory_, scratch_;
  std::vector<Tensor> tensors_;
};

Problem problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask) {
  Problem p;
  p.batch = 1, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim, p.mask = mask;
  p.precision.dtype = DType::bf16, p.deterministic = true;
  return p;
}

// Of each way that work is dealt one: a cluster for a row tile, parts of rows added through the workspace, whole rows, packed heads.
const Problem problems[] = {problem(3, 3, 500, 500, 64, Mask::causal()), problem(2, 1, 260, 700, 128, Mask::full()),
                            problem(140, 1, 70, 1030, 64, Mask::full()), problem(70, 7, 130, 300, 128, Mask::sliding(90)),
                            problem(8, 2, 3, 900, 64, Mask::causal()),   problem(2, 2, 400, 400, 256, Mask::causal())};

class AttentionRepeatGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    device = cuda_device(0);
    stream = std::make_unique<Stream>(0);
  }
  // Walks the variants that keep nothing between the passes: plain's P would say no more.
  template <class Body>
  void each(Body&& body) {
    for (const Variant& v : variants())
      for (const Problem& p : problems) {
        if (v.family != "flash" || !v.deterministic || !v.supports(p, device, Pass::forward).ok ||
            !v.supports(p, device, Pass::backward).ok)
          continue;
        SCOPED_TRACE(std::string(v.name) + " " + in_words({p}));
        Placed placed(v, p, device, *stream);
        body(v, placed);
        ++checked;
      }
    EXPECT_GT(checked, 0);
  }
  Device device;
  std::unique_ptr<Stream> stream;
  int checked = 0;
};

TEST_F(AttentionRepeatGpu, AThousandRunsGiveTheSameBits) {
  each([&](const Variant&, Placed& placed) {
    placed.results();
    placed.forward(), placed.backward();
    const auto first = placed.results();
    for (int run = 1; run < 1000; ++run) {
      placed.forward(), placed.backward();
      ASSERT_TRUE(placed.results() == first) << "run " << run;
    }
  });
}

TEST_F(AttentionRepeatGpu, OtherWorkOnTheCardChangesNoBits) {
  const Stream other(0);
  each([&](const Variant& v, Placed& placed) {
    placed.results();
    placed.forward(), placed.backward();
    const auto alone = placed.results();
    Problem heavy = problem(33, 33, 1024, 1024, 64, Mask::causal());
    heavy.deterministic = false;
    Placed load(v, heavy, device, other);
    for (int run = 0; run < 20; ++run) {
      for (int i = 0; i <= run % 4; ++i) load.forward(), load.backward();  // goes on while ours runs
      placed.forward(), placed.backward();
      ASSERT_TRUE(placed.results() == alone) << "run " << run;
    }
    other.wait();
  });
}

}  // namespace
}  // namespace headroom::attention
