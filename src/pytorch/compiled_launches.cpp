// What code that torch.compile made gives to the card: products and attention as they are, and between them one generated kernel for all elementwise
// work, with a sum over rows where there is a norm. Bytes are those that a kernel has to read and write; which work is fused is Inductor's choice
// with PyTorch 2.11 (bench/peers/pytorch_steps.py).
#include "pytorch/compiled.h"

namespace headroom::pytorch {

struct Compiled::Given {
  struct Weights {
    std::int64_t out, in;
  };
  Launches& to;
  const Sizes& s;
  std::int64_t rows = s.batch * s.len, all = s.heads * s.dim, kv = s.kv_heads * s.dim;
  DType stream = s.casts ? DType::f32 : s.low;
  double low = double(size_of(s.low)), wide = double(size_of(stream));

  void elementwise(double numbers, double bytes) const { to.kernel(Kernel::generated, std::int64_t(numbers), bytes); }
  void sums(double numbers, double bytes) const { to.kernel(Kernel::generated_sums, std::int64_t(numbers), bytes); }
  // A weight's copy in the products' type, and its gradient's way back.
  void cast(Weights w) const {
    if (s.casts) elementwise(double(w.out * w.in), double(w.out * w.in) * (4 + low));
  }
  void product(Weights w) const {
    cast(w);
    to.product(w.out, rows, w.in, s.low, 1);
  }
  void gradients(Weights w) const {
    to.product(w.in, w.out, rows, s.low, 2);
    to.product(w.in, rows, w.out, s.low, 0);
    cast(w);
  }
  double of_stream() const { return double(rows * s.width); }
  double of_hidden() const { return double(rows * s.ffn); }
  double of_heads() const { return double(rows * (all + kv)); }
  void attention(bool backward) const {
    if (s.kv_heads != s.heads && !backward) elementwise(2 * double(rows * all), 2 * low * double(rows * (all + kv)));
    to.attention({s.batch, s.heads, s.len, s.dim}, s.len, s.low, backward);
    if (s.kv_heads != s.heads && backward) sums(2 * double(rows * all), 2 * low * double(rows * (all + kv)));
  }

  void forward() const {
    sums(of_stream(), of_stream() * (wide + low));  // norm
    for (const Weights w : {Weights{all, s.width}, {kv, s.width}, {kv, s.width}}) product(w);
    elementwise(of_heads(), 2 * low * of_heads());  // rotary positions
    attention(false);
    product({s.width, all});
    sums(of_stream(), of_stream() * (2 * wide + 2 * low));  // residual, norm
    product({s.ffn, s.width}), product({s.ffn, s.width});
    elementwise(of_hidden(), 3 * low * of_hidden());
    product({s.width, s.ffn});
    elementwise(of_stream(), of_stream() * (2 * wide + low));  // residual
  }
  void backward() const {
    if (s.casts) elementwise(of_stream(), of_stream() * (wide + low));
    gradients({s.width, s.ffn});
    elementwise(of_hidden(), 6 * low * of_hidden());
    gradients({s.ffn, s.width}), gradients({s.ffn, s.width});
    sums(of_stream(), of_stream() * (3 * wide + 3 * low));        // both parts of the gradient through the norm
    to.kernel(Kernel::norm_weights, s.width, low * of_stream());  // the norm's weights
    gradients({s.width, all});
    attention(true);
    elementwise(of_heads(), 2 * low * of_heads());
    for (const Weights w : {Weights{all, s.width}, {kv, s.width}, {kv, s.width}}) gradients(w);
    sums(of_stream(), of_stream() * (3 * wide + 4 * low));
    to.kernel(Kernel::norm_weights, s.width, low * of_stream());
  }
  void end() const {
    sums(of_stream(), of_stream() * (wide + low));
    product({s.vocab, s.width});
    sums(double(rows * s.vocab), 2 * low * double(rows * s.vocab));  // the rows' maximum, then their sum
  }
  void end_backward() const {
    elementwise(double(rows * s.vocab), 2 * low * double(rows * s.vocab));
    gradients({s.vocab, s.width});
    sums(of_stream(), of_stream() * (2 * wide + 2 * low));
  }
  void embedding() const { elementwise(of_stream(), of_stream() * (4 + wide)); }
  void embedding_backward() const { to.embedding_gradient(rows, s.vocab, s.width, s.casts ? DType::f32 : s.low); }
};

void Compiled::give(What what) {
  torch_.launched([&](Launches& to) {
    const Given g{to, s_};
    switch (what) {
      case What::embedding: return g.embedding();
      case What::block: return g.forward();
      case What::end: return g.end();
      case What::end_backward: return g.end_backward();
      case What::block_backward: return g.backward();
      case What::embedding_backward: return g.embedding_backward();
    }
  });
}

}  // namespace headroom::pytorch
