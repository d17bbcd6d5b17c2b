// What a row does not see may be anything: the same problem with NaN wherever no document lies, and in one of the documents. All else must come out
// as without them.
#pragma once
#include "tests/attention_features.h"

namespace headroom::attention::cases {

struct Poison {
  int document = -1;  // the one that holds NaN; -1: none

  // Sequence `b`'s position `at` on one side, where `cu` says which documents there are.
  bool takes(const Case& c, Guarded& cu, std::int64_t b, std::int64_t at) const {
    const auto* const begin = cu.view().as<std::int32_t>() + b * (c.problem.documents + 1);
    return at >= begin[c.problem.documents] || (document >= 0 && at >= begin[document] && at < begin[document + 1]);
  }
  bool query(const Case& c, Tensors& x, std::int64_t b, std::int64_t at) const { return takes(c, x.cu_q, b, at); }
  bool key(const Case& c, Tensors& x, std::int64_t b, std::int64_t at) const {  // paged: b is a page, `at` a position in it
    const Problem& p = c.problem;
    if (p.page == 0) return takes(c, x.cu_k, b, at);
    for (std::int64_t sequence = 0; sequence < p.batch; ++sequence)
      for (std::int64_t j = 0; j < p.pages_of_sequence(); ++j)
        if (x.pages.view().as<std::int32_t>()[sequence * p.pages_of_sequence() + j] == b)
          return takes(c, x.cu_k, sequence, j * p.page + at);
    return true;
  }

  // f(tensor, flat index, offset) of every element of [b, position, …] that is poisoned.
  template <class F>
  void each(const Case& c, Tensors& x, std::initializer_list<Guarded*> of_queries, std::initializer_list<Guarded*> of_keys, F&& f) const {
    const auto walk = [&](Guarded& g, auto&& taken) {
      const Shape& s = g.view().shape;
      std::vector<char> known(std::size_t(s[0] * s[1]));
      for (std::int64_t i = 0; i < s[0] * s[1]; ++i) known[std::size_t(i)] = taken(i / s[1], i % s[1]);
      g.each([&](std::int64_t flat, std::int64_t offset) {
        if (known[std::size_t(flat / (s[2] * s[3]))]) f(g, flat, offset);
      });
    };
    for (Guarded* g : of_queries) walk(*g, [&](auto b, auto at) { return query(c, x, b, at); });
    for (Guarded* g : of_keys) walk(*g, [&](auto b, auto at) { return key(c, x, b, at); });
  }
  void into(const Case& c, Tensors& x) const {
    each(c, x, {&x.q, &x.d_o}, {&x.k, &x.v},
         [](Guarded& g, std::int64_t, std::int64_t offset) { g.set(offset, std::numeric_limits<float>::quiet_NaN()); });
  }
  // The document's own results are taken for right, so that the others can be judged.
  void forgive(const Case& c, Tensors& x, const Reference& right, bool gradients) const {
    const auto as_expected = [&](Guarded& of, const std::vector<double>& values) {
      return [&](Guarded& g, std::int64_t flat, std::int64_t offset) {
        if (&g == &of) g.set(offset, float(values[std::size_t(flat)]));
      };
    };
    if (document < 0) return;
    each(c, x, {&x.o}, {}, as_expected(x.o, right.o));
    const Problem& p = c.problem;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (std::int64_t i = 0; i < p.len_q; ++i)
          if (const auto at = (b * p.heads + h) * p.len_q + i; query(c, x, b, i)) x.lse.set(at, float(right.lse[std::size_t(at)]));
    if (!gradients) return;
    each(c, x, {&x.dq}, {}, as_expected(x.dq, right.dq));
    each(c, x, {}, {&x.dk}, as_expected(x.dk, right.dk));
    each(c, x, {}, {&x.dv}, as_expected(x.dv, right.dv));
  }
};

// f(case, poisons): what is right does not depend on where NaN lies, so it is computed once a case.
template <class F>
void each_bound(Precision precision, std::initializer_list<std::int64_t> dims, F&& f) {
  const auto make = [&](Mask mask, std::uint64_t seed, std::int64_t dim) { return plain_case(4, 2, 0, 0, dim, mask, precision, seed); };
  for (std::int64_t dim : dims)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(20)}) {
      const Case few = packed(make(mask, 91, dim), {5, 1, 90, 17}, {5, 1, 90, 17}, 6);  // short ones share a tile
      const Case tall = packed(make(mask, 92, dim), {70, 200, 33}, {70, 140, 97}, 50);
      const std::vector<Poison> anywhere{Poison{-1}, Poison{0}, Poison{2}}, inside{Poison{1}};
      f(few, anywhere);
      f(tall, anywhere);
      Case capped = few;
      capped.problem.softcap = 3;
      f(capped, inside);
      Case dropped = few;
      dropped.problem.dropout = 0.3f;
      f(dropped, inside);
    }
  for (std::int64_t new_positions : {1, 5, 17, 40, 130})
    for (std::int64_t page : {0, 16, 100}) {
      Case c = packed(plain_case(8, 2, new_positions, 333, 64, Mask::causal(), precision, 93), {int(new_positions)}, {333});
      c.with_dlse = false;
      c.cached = {157, 333 - 61};
      if (page) {
        c.problem.page = page;
        c.problem.pages = c.problem.batch * c.problem.pages_of_sequence() + 9;
        while (c.problem.pages % 7 == 0) ++c.problem.pages;
      }
      f(c, std::vector<Poison>{Poison{}});
    }
}

}  // namespace headroom::attention::cases
