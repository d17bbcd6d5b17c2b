// Runs an attention variant on this machine's GPU: a case's tensors in device memory, and calls in arenas of exactly a dry run's size.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "gpu/buffer.h"
#include "gpu/device.h"
#include "tests/attention_cases.h"

namespace headroom::attention::cases {

struct OnDevice {  // a case's tensors, guard bands and all, in device memory
  Tensors& here;
  const Stream& stream;
  std::vector<std::pair<Guarded*, Buffer>> there;

  OnDevice(Tensors& x, const Stream& s) : here(x), stream(s) {
    for (Guarded* g : x.all()) {
      if (g->bytes().empty()) continue;
      there.emplace_back(g, Buffer(g->bytes().size()));
      copy_to_device(there.back().second.data(), g->bytes().data(), g->bytes().size(), s);
    }
  }
  Tensor operator()(Guarded& g) const {
    for (const auto& [from, buffer] : there)
      if (from == &g) return g.at(buffer.data());
    return {};
  }
  Extras extras() const {
    return {.sink = (*this)(here.sink),
            .cu_q = (*this)(here.cu_q),
            .cu_k = (*this)(here.cu_k),
            .pages = (*this)(here.pages),
            .seed = here.seed,
            .offset = here.offset,
            .alibi = (*this)(here.alibi),
            .random = (*this)(here.random)};
  }
  void back() {
    for (auto& [to, buffer] : there) copy_to_host(to->bytes().data(), buffer.data(), buffer.bytes(), stream);
    stream.wait();
  }
};

// One variant on one case: scratch of exactly the size that a dry run asked for, all of it poisoned; each call puts one pass on the stream.
class Wet {
 public:
  Wet(const Variant& variant, const Case& c, Tensors& x, const Device& device, const Stream& stream)
      : t(x, stream), v_(variant), c_(c), x_(x), device_(device), stream_(stream), saved_(saved_bytes()) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const auto bytes = v_.supports(c.problem, device, pass).ok ? workspace_bytes(v_, c.problem, device, pass, 1) : 0;
      scratch_.emplace_back(bytes + 256), scratch_bytes_.push_back(bytes);
      fill_bytes(scratch_.back().data(), 0xff, scratch_.back().bytes(), stream);
    }
  }
  void forward() {
    in(Pass::forward, [&](const Saved& saved, Context& ctx) {
      attention::forward(v_, c_.problem, {t(x_.q), t(x_.k), t(x_.v), t(x_.o), t(x_.lse), saved, t.extras()}, ctx);
    });
  }
  void backward() {
    in(Pass::backward, [&](const Saved& saved, Context& ctx) {
      attention::backward(v_, c_.problem,
                          {t(x_.q), t(x_.k), t(x_.v), t(x_.o), t(x_.lse), t(x_.d_o), c_.with_dlse ? t(x_.dlse) : Tensor(), t(x_.dq),
                           t(x_.dk), t(x_.dv), saved, t.extras(), t(x_.dsink), turned_by},
                          ctx);
    });
  }

  OnDevice t;
  Tensor turned_by = {};  // of backward

 private:
  std::size_t saved_bytes() const {
    Arena dry;
    Context ctx{dry, device_};
    make_saved(v_, c_.problem, ctx);
    return dry.peak() + 256;
  }
  template <class Body>
  void in(Pass pass, Body&& body) {
    Arena saved_arena(saved_.data(), saved_.bytes()), arena(scratch_[std::size_t(pass)].data(), scratch_bytes_[std::size_t(pass)]);
    Context saving{saved_arena, device_}, ctx{arena, device_};
    ctx.stream = stream_.raw();
    body(make_saved(v_, c_.problem, saving), ctx);
    EXPECT_EQ(arena.peak(), scratch_bytes_[std::size_t(pass)]) << "the dry run promised other scratch: " << v_.name << " " << in_words(c_);
  }

  const Variant& v_;
  const Case& c_;
  Tensors& x_;
  const Device& device_;
  const Stream& stream_;
  Buffer saved_;
  std::vector<Buffer> scratch_;
  std::vector<std::size_t> scratch_bytes_;
};

}  // namespace headroom::attention::cases
