// What models ask of attention beside masks: the same cases for every variant, on any device.
#pragma once
#include "tests/attention_cases.h"

namespace headroom::attention::cases {

inline Case plain_case(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask,
                       Precision precision, std::uint64_t seed) {
  Case c;
  c.problem.batch = 2;
  c.problem.heads = heads;
  c.problem.kv_heads = kv_heads;
  c.problem.len_q = len_q;
  c.problem.len_k = len_k;
  c.problem.head_dim = dim;
  c.problem.mask = mask;
  c.problem.precision = precision;
  c.with_dlse = true;
  c.seed = seed;
  return c;
}

// f(case) for every feature alone, some of them together, and where they hurt.
template <class F>
void each_feature(Precision precision, F&& f) {
  const auto make = [&](std::int64_t len_q, std::int64_t len_k, Mask mask, std::uint64_t seed) {
    return plain_case(4, 2, len_q, len_k, 32, mask, precision, seed);
  };
  for (std::int64_t ahead : {1, 7, 64, 1000})  // windows on both sides
    for (Align align : {Align::bottom_right, Align::top_left}) {
      f(make(150, 150, Mask::sliding(1, align, ahead), 31));
      f(make(70, 201, Mask::sliding(40, align, ahead), 32));
      f(make(201, 70, Mask::sliding(200, align, ahead), 33));
    }
  for (float cap : {0.1f, 2.0f, 50.0f, 1e4f})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(30)}) {
      Case c = make(130, 150, mask, 34);
      c.problem.softcap = cap;
      f(c);
    }
  constexpr float infinite = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& sinks : {std::vector<float>{}, {40, -40, 1, 0}, {infinite, -infinite, 0, 300}})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(3)}) {
      Case c = make(140, 90, mask, 35);  // rows that see nothing, too
      c.problem.sink = true;
      c.sinks = sinks;
      f(c);
      c.problem.len_k = 0;
      f(c);
    }
  for (auto [dim, dim_v] : {std::pair{24, 8}, {8, 40}, {64, 16}, {192, 128}, {40, 72}}) {
    Case c = make(100, 90, Mask::causal(), 36);
    c.problem.head_dim = dim;
    c.problem.dim_v = dim_v;
    f(c);
  }
  const std::vector<int> fives(40, 5);
  std::vector<int> borders;  // in every place of a tile of 64
  for (int i = 0; i < 16; ++i) borders.push_back(60 + i);
  for (Mask mask :
       {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(4), Mask::sliding(30, Align::bottom_right, 9)}) {
    f(packed(make(0, 0, mask, 37), {5, 1, 0, 90, 17}, {5, 1, 0, 90, 17}));
    f(packed(make(0, 0, mask, 38), {0, 0, 7, 130, 0, 3}, {4, 0, 30, 66, 9, 0}, 3));
    f(packed(make(0, 0, mask, 39), fives, fives));
    f(packed(make(0, 0, mask, 40), {0}, {0}, 5));  // positions that belong to no document
  }
  f(packed(make(0, 0, Mask::causal(), 41), borders, borders));
  Case all = packed(make(0, 0, Mask::sliding(20, Align::bottom_right, 3), 42), {33, 0, 70, 1}, {40, 5, 64, 1});
  all.problem.softcap = 3;
  all.problem.sink = true;
  all.problem.head_dim = 40;
  all.problem.dim_v = 24;
  f(all);
}

// f(case) for dropout alone and with the rest, in every shape of tiles that a variant may choose.
template <class F>
void each_dropout(Precision precision, F&& f) {
  const auto make = [&](std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask, float dropout, std::uint64_t seed) {
    Case c = plain_case(4, 2, len_q, len_k, dim, mask, precision, seed);
    c.problem.dropout = dropout;
    return c;
  };
  for (std::int64_t dim : {8, 40, 64, 100, 128, 256})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(30, Align::top_left, 9)})
      f(make(140, 75, dim, mask, 0.2f, 100 + std::uint64_t(dim)));
  for (float dropout : {1e-6f, 0.5f, 0.9f, 0.96875f, 0.99999f}) f(make(70, 170, 64, Mask::causal(), dropout, 101));
  for (auto [len_q, len_k] : {std::pair{1, 1}, {1, 300}, {300, 1}, {17, 33}, {0, 5}, {5, 0}, {257, 129}})
    f(make(len_q, len_k, 64, Mask::full(), 0.3f, 102));
  Case all = packed(make(0, 0, 40, Mask::sliding(20, Align::bottom_right, 3), 0.25f, 103), {33, 0, 70, 1, 90}, {40, 5, 64, 1, 90}, 4);
  all.problem.softcap = 3;
  all.problem.sink = true;
  all.problem.dim_v = 24;
  f(all);
  Case strided = make(90, 90, 72, Mask::causal(), 0.1f, 104);
  strided.layout = Layout::heads_first;
  strided.problem.deterministic = true;
  f(strided);
}

// f(case) for slopes of ALiBi alone and with the rest, in every shape of tiles that a variant may choose.
template <class F>
void each_alibi(Precision precision, F&& f) {
  const auto make = [&](std::int64_t len_q, std::int64_t len_k, std::int64_t dim, Mask mask, std::uint64_t seed) {
    Case c = plain_case(4, 2, len_q, len_k, dim, mask, precision, seed);
    c.problem.alibi = true;
    c.slopes_rank = 1 + int(seed % 2);
    return c;
  };
  for (std::int64_t dim : {8, 40, 64, 100, 128, 256})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(30, Align::top_left, 9)})
      f(make(140, 75, dim, mask, 110 + std::uint64_t(dim) % 7));
  for (Align align : {Align::bottom_right, Align::top_left})
    for (auto [len_q, len_k] : {std::pair{1, 1}, {1, 300}, {300, 1}, {17, 33}, {0, 5}, {5, 0}, {257, 129}})
      f(make(len_q, len_k, 64, Mask::causal(align), 112));
  for (float steep : {0.0f, 30.0f, -0.5f, 1e6f}) {
    Case c = make(90, 130, 64, Mask::full(), 113);
    c.steep = steep;
    f(c);
  }
  for (Mask mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(20, Align::bottom_right, 3)}) {
    Case c = packed(make(0, 0, 40, mask, 114), {33, 0, 70, 1, 90}, {40, 5, 64, 1, 90}, 4);
    f(c);
    c.problem.softcap = 3;
    c.problem.sink = true;
    c.problem.dim_v = 24;
    c.problem.dropout = 0.25f;
    c.slopes_rank = 3;
    f(c);
  }
  Case strided = make(90, 90, 72, Mask::causal(), 115);
  strided.layout = Layout::heads_first;
  strided.problem.deterministic = true;
  strided.problem.scale = 0.3f;
  f(strided);
}

// A few new positions against a cache: lengths that differ per sequence (a document each), pages, or both. Forward.
template <class F>
void each_cache(Precision precision, F&& f) {
  for (std::int64_t new_positions : {1, 3, 16})
    for (std::int64_t page : {0, 1, 16, 64, 100}) {
      Case c = plain_case(8, 2, new_positions, 333, 64, Mask::causal(), precision, 50 + std::uint64_t(page));
      c.with_dlse = false;
      if (page) {
        c.problem.page = page;
        c.problem.pages = c.problem.batch * c.problem.pages_of_sequence() + 7 - c.problem.batch * c.problem.pages_of_sequence() % 7 + 1;
        while (c.problem.pages % 7 == 0) ++c.problem.pages;  // tables step by 7
      }
      f(c);
      c = packed(c, {int(new_positions)}, {333});
      f(c);
      c.problem.len_k = 400;  // the cache has room for more than there is
      if (page) c.problem.pages += 2 * (400 / page);
      while (page && c.problem.pages % 7 == 0) ++c.problem.pages;
      f(c);
      c.cached = {57, page ? 1 : 399};
      f(c);
    }
}

}  // namespace headroom::attention::cases
