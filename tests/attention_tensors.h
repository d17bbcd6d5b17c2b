// Problems that attention variants are asked in tests, on any device: inputs of several characters, in memory with guard bands.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "ops/attention/attention.h"
#include "tests/each_element.h"

namespace headroom::attention::cases {

enum class Layout { rows, heads_first, padded };  // [b, len, h, d] · memory of [b, h, len, d] · gaps between rows and batches
enum class Values {
  normal,
  one_hot,
  far_above,
  far_below,
  huge
};  // one_hot: a key takes all; far: scores around ±300; huge: of Case::reach

struct Case {
  Problem problem;
  Layout layout = Layout::rows;
  Values values = Values::normal;
  bool with_dlse = false;
  std::uint64_t seed = 1;
  float reach = 0;                            // Values::huge: how large scores become
  std::vector<int> docs_q = {}, docs_k = {};  // lengths of documents; row b of the batch has them rotated by b
  std::vector<int> cached = {};               // one document: how many keys each row of the batch has; empty: as docs_k says
  std::vector<float> sinks = {};              // one for each head, in turn; none: normal
  int slopes_rank = 1;                        // ALiBi's slopes are of each head; 2: and row of the batch; 3: and document
  float steep = 1;                            // its slopes are so many times 2^(-8 (head + 1) / heads)
  Pass last = Pass::backward;                 // forward: no gradients are made or expected
};

// The same problem with documents: their lengths make the rows' length, `spare` positions more belong to none.
inline Case packed(Case c, std::vector<int> docs_q, std::vector<int> docs_k, std::int64_t spare = 0) {
  const auto sum = [](const std::vector<int>& x) { return std::accumulate(x.begin(), x.end(), std::int64_t(0)); };
  c.problem.documents = std::int64_t(docs_q.size());
  c.problem.len_q = sum(docs_q) + spare;
  c.problem.len_k = sum(docs_k) + spare;
  c.docs_q = std::move(docs_q);
  c.docs_k = std::move(docs_k);
  return c;
}

inline std::string in_words(const Case& c) {
  constexpr const char* layouts[] = {"rows", "heads_first", "padded"};
  constexpr const char* values[] = {"normal", "one_hot", "far_above", "far_below", "huge"};
  const Problem& p = c.problem;
  std::string more;
  if (p.value_dim() != p.head_dim) more += fmt::format("dim_v {} ", p.value_dim());
  if (p.softcap != 0) more += fmt::format("softcap {} ", p.softcap);
  if (p.sink) more += "sink ";
  if (p.dropout != 0) more += fmt::format("dropout {} ", p.dropout);
  if (p.alibi) more += fmt::format("alibi {} of rank {} ", c.steep, c.slopes_rank);
  if (p.page != 0) more += fmt::format("pages {} of {} ", p.pages, p.page);
  if (p.documents != 0) {
    more += "documents";
    for (std::size_t d = 0; d < std::min<std::size_t>(c.docs_q.size(), 12); ++d) more += fmt::format(" {}x{}", c.docs_q[d], c.docs_k[d]);
    more += " ";
  }
  return fmt::format("{} batch {} heads {}/{} len {}x{} dim {} {} scale {} {} {} dlse {} {}{}seed {}", name_of(p.precision), p.batch,
                     p.heads, p.kv_heads, p.len_q, p.len_k, p.head_dim, name_of(p.mask), p.scale_or_default(), layouts[int(c.layout)],
                     values[int(c.values)], c.with_dlse, p.deterministic ? "deterministic " : "", more, c.seed);
}

// A tensor with its own memory, every byte of it 0xff (a NaN in every format) until written; guard bands before, behind and in the gaps.
class Guarded {
 public:
  Guarded() = default;
  Guarded(DType dtype, Shape shape, Layout layout = Layout::rows) : view_(nullptr, dtype, shape) {
    if (layout == Layout::heads_first && shape.rank == 4) view_.stride = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
    if (layout == Layout::padded && shape.rank == 4) {
      const auto head = shape[3] + 5, row = shape[2] * head + 3;
      view_.stride = {shape[1] * row + 7, row, head, 1};
    }
    std::int64_t end = shape.count() == 0 ? 0 : 1;
    for (int d = 0; d < shape.rank && end; ++d) end += (shape[d] - 1) * view_.stride[std::size_t(d)];
    bytes_.assign(std::size_t(end + 2 * band) * size_of(dtype), std::byte{0xff});
  }
  Tensor view() { return at(bytes_.data()); }
  Tensor at(void* base) const {  // the same view in a copy of the bytes, on any device
    Tensor t = view_;
    t.data = static_cast<std::byte*>(base) + std::size_t(band) * size_of(t.dtype);
    return t;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

  template <class F>
  void each(F&& f) {  // f(flat index, offset in elements)
    each_element(view_, f);
  }
  void set(std::int64_t offset, float x) {
    with_float(view_.dtype, [&]<class T>() { view().as<T>()[offset] = narrow<T>(x); });
  }
  void set_int(std::int64_t at, std::int32_t x) { view().as<std::int32_t>()[at] = x; }
  std::vector<double> values() {
    std::vector<double> out(std::size_t(view_.count()));
    each([&](std::int64_t flat, std::int64_t offset) { out[std::size_t(flat)] = load_element(view().data, view_.dtype, offset); });
    return out;
  }
  bool guards_intact() {              // every byte that is no element is still 0xff
    if (bytes_.empty()) return true;  // the problem has no such tensor
    const auto size = std::int64_t(size_of(view_.dtype));
    std::vector<std::byte> rest = bytes_;
    each([&](std::int64_t, std::int64_t offset) { std::fill_n(rest.begin() + (offset + band) * size, size, std::byte{0xff}); });
    return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0xff}; });
  }

 private:
  static constexpr std::int64_t band = 64;  // elements
  Tensor view_;
  std::vector<std::byte> bytes_;
};

struct Tensors {  // one case's; outputs are poisoned
  Guarded q, k, v, d_o, dlse, o, lse, dq, dk, dv;
  Guarded sink, dsink, cu_q, cu_k, pages, random, alibi;  // for problems that have them
  std::uint64_t seed = 0, offset = 0;                     // dropout's, where `random` is not there

  std::vector<Guarded*> all() {
    return {&q, &k, &v, &d_o, &dlse, &o, &lse, &dq, &dk, &dv, &sink, &dsink, &cu_q, &cu_k, &pages, &random, &alibi};
  }
  void drop_by(std::uint64_t its_seed, std::uint64_t its_offset, bool in_memory) {
    seed = in_memory ? 1 : its_seed;  // not looked at then
    offset = in_memory ? 2 : its_offset;
    random = {};
    if (!in_memory) return;
    random = Guarded(DType::i32, {4});
    for (const auto& [at, x] : {std::pair{0, its_seed}, {2, its_offset}}) {
      random.set_int(at, std::int32_t(std::uint32_t(x)));
      random.set_int(at + 1, std::int32_t(std::uint32_t(x >> 32)));
    }
  }
};

inline Tensors tensors_of(const Case& c) {
  const Problem& p = c.problem;
  const DType t = p.precision.dtype;
  const auto make = [&](const Shape& s) { return Guarded(t, s, c.layout); };
  Tensors x{make(p.q_shape()),
            make(p.k_shape()),
            make(p.v_shape()),
            make(p.o_shape()),
            Guarded(DType::f32, p.lse_shape()),
            make(p.o_shape()),
            Guarded(DType::f32, p.lse_shape()),
            make(p.q_shape()),
            make(p.k_shape()),
            make(p.v_shape()),
            {},
            {},
            {},
            {},
            {},
            {},
            {}};
  const Random random{c.seed};
  const auto fill = [&](Guarded& g, std::uint64_t stream, float factor, float first) {
    const Random r = random.stream(stream);
    g.each([&](std::int64_t flat, std::int64_t offset) {
      g.set(offset, flat % g.view().shape[3] == 0 && first != 0 ? first : factor * r.normal(std::uint64_t(flat)));
    });
  };
  const float shift = std::sqrt(300.0f / p.scale_or_default());  // the first dimension alone moves every score by ±300
  const bool far = c.values == Values::far_above || c.values == Values::far_below;
  const float large = c.values == Values::huge ? c.reach / (3 * p.scale_or_default() * std::sqrt(float(p.head_dim))) : 1.0f;
  fill(x.q, 1, c.values == Values::one_hot ? 12.0f : large, far ? shift : 0);
  fill(x.k, 2, c.values == Values::one_hot ? 4.0f : 1.0f, !far ? 0 : c.values == Values::far_above ? shift : -shift);
  fill(x.v, 3, 1, 0);
  fill(x.d_o, 4, 1, 0);
  const Random r = random.stream(5);
  x.dlse.each([&](std::int64_t flat, std::int64_t offset) { x.dlse.set(offset, r.normal(std::uint64_t(flat))); });
  if (p.sink) {
    x.sink = Guarded(DType::f32, {p.heads});
    x.dsink = Guarded(DType::f32, {p.heads});
    for (std::int64_t h = 0; h < p.heads; ++h)
      x.sink.set(h, c.sinks.empty() ? random.stream(6).normal(std::uint64_t(h)) : c.sinks[std::size_t(h) % c.sinks.size()]);
  }
  if (p.alibi) {
    const Shape shapes[] = {{p.heads}, {p.batch, p.heads}, {p.batch, p.documents, p.heads}};
    x.alibi = Guarded(DType::f32, shapes[c.slopes_rank - 1]);
    for (std::int64_t n = 0; n < x.alibi.view().count(); ++n)
      x.alibi.set(n, c.steep * float(n / p.heads + 1) * std::exp2(-8.0f * float(n % p.heads + 1) / float(p.heads)));
  }
  if (p.documents != 0) {
    const auto list = [&](Guarded& g, const std::vector<int>& lengths) {
      g = Guarded(DType::i32, {p.batch, p.documents + 1});
      for (std::int64_t b = 0; b < p.batch; ++b) {
        std::int32_t at = 0;
        for (std::int64_t d = 0; d <= p.documents; ++d) {
          g.set_int(b * (p.documents + 1) + d, at);
          if (d < p.documents) at += lengths[std::size_t((d + b) % p.documents)];
        }
      }
    };
    list(x.cu_q, c.docs_q);
    list(x.cu_k, c.docs_k);
    if (!c.cached.empty())
      for (std::int64_t b = 0; b < p.batch; ++b) x.cu_k.set_int(2 * b + 1, c.cached[std::size_t(b) % c.cached.size()]);
  }
  if (p.page != 0) {  // every sequence its own pages, scattered
    x.pages = Guarded(DType::i32, {p.batch, p.pages_of_sequence()});
    const std::int64_t needed = p.batch * p.pages_of_sequence();
    for (std::int64_t n = 0; n < needed; ++n) x.pages.set_int(n, std::int32_t((n * 7 + 3) % p.pages));
  }
  if (p.dropout != 0) x.drop_by(c.seed * 0x9e3779b97f4a7c15, c.seed * 0xd1b54a32d192ed03, c.seed % 2 == 1);
  return x;
}

inline Extras extras_of(Tensors& x) {
  const auto view = [](Guarded& g) { return g.bytes().empty() ? Tensor() : g.view(); };
  return {.sink = view(x.sink),
          .cu_q = view(x.cu_q),
          .cu_k = view(x.cu_k),
          .pages = view(x.pages),
          .seed = x.seed,
          .offset = x.offset,
          .alibi = view(x.alibi),
          .random = view(x.random)};
}

}  // namespace headroom::attention::cases
