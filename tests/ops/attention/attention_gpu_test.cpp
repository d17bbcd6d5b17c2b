// Every attention variant of this machine's GPU against the FP64 oracle: the cases of the CPU suite, and what only a GPU can get wrong.
#include "tests/ops/attention/on_gpu.h"

namespace headroom::attention {
namespace {

class AttentionGpu : public OnGpu {};

TEST_F(AttentionGpu, EveryMaskAndTypeAndLayout) {
  for (Precision precision : precisions)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(70),
                      Mask::sliding(9, Align::top_left)})
      for (Layout layout : {Layout::rows, Layout::heads_first, Layout::padded}) {
        check_case({problem(2, 1, 97, 97, 24, mask, precision), layout, Values::normal, true, 3});
        check_case({problem(1, 1, 65, 330, 16, mask, precision), layout, Values::normal, true, 4});
        check_case({problem(1, 1, 330, 33, 16, mask, precision), layout, Values::normal, false, 5});
      }
  EXPECT_GT(checked, 0);
}

TEST_F(AttentionGpu, EveryHeadDimension) {
  for (Precision precision : precisions)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(40)})
      for (std::int64_t dim : {8, 16, 32, 40, 64, 72, 80, 88, 96, 104, 128, 160, 192, 256}) {
        Case c{problem(2, 2, 150, 170, dim, mask, precision), Layout::rows, Values::normal, true, 6};
        c.problem.deterministic = mask == Mask::causal();
        check_case(c);
      }
}

// The tiles that cards with 99 KB of shared memory a block get: this card pretends to be one.
TEST_F(AttentionGpu, LittleSharedMemory) {
  device.sm = 89;
  for (Precision precision : precisions)
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(40)})
      for (std::int64_t dim : {40, 64, 80, 128, 200, 256})
        check_case({problem(2, 1, 150, 170, dim, mask, precision), Layout::rows, Values::normal, true, 7});
}

TEST_F(AttentionGpu, LengthsThatNoTileDivides) {
  for (Mask mask : {Mask::full(), Mask::causal()})
    for (std::int64_t len : {1, 2, 63, 64, 65, 79, 80, 81, 127, 128, 129, 191, 192, 193, 255, 257, 385}) {
      check_case({problem(1, 1, len, len, 64, mask), Layout::rows, Values::normal, true, std::uint64_t(len)});
      check_case({problem(1, 1, len, len + 3, 128, mask, {DType::f16}), Layout::rows, Values::normal, true, std::uint64_t(len)});
      check_case({problem(4, 2, len, len + 70, 80, mask), Layout::heads_first, Values::normal, true, std::uint64_t(len)});
      check_case({problem(2, 1, len + 150, len, 96, mask, {DType::f16}), Layout::rows, Values::normal, true, std::uint64_t(len)});
      check_case({problem(1, 1, len, len + 2, 32, mask, {DType::f32}), Layout::rows, Values::normal, true, std::uint64_t(len)});
      check_case({problem(1, 1, len + 1, len, 72, mask, {DType::f32, Math::tf32}), Layout::rows, Values::normal, true, std::uint64_t(len)});
    }
}

TEST_F(AttentionGpu, NothingToAttend) {
  for (Precision precision : precisions)
    for (auto [lq, lk] : {std::pair{0, 0}, {0, 5}, {5, 0}, {1, 1}, {1, 0}, {0, 1}, {1, 200}, {200, 1}})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(3)})
        check_case({problem(2, 1, lq, lk, 8, mask, precision), Layout::rows, Values::normal, true, 9});
  Problem none = problem(1, 1, 4, 4, 8);
  none.batch = 0;
  check_case({none});
}

// Few rows, many blocks: keys of a row are dealt to several blocks, query heads of a key head are packed as rows of one tile.
TEST_F(AttentionGpu, FewRowsFillTheCard) {
  const auto shared = [&](std::int64_t dim, Mask mask, std::initializer_list<std::pair<int, int>> heads_and_rows) {
    check_case({problem(1, 1, 100, 600, dim, mask), Layout::heads_first, Values::normal, false, 20});
    for (auto [heads, len_q] : heads_and_rows)
      check_case({problem(heads, 2, len_q, 400, dim, mask, {DType::f16}), Layout(len_q % 2), Values::normal, false, 21});
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
  for (Precision precision : {precisions[0], precisions[2], precisions[3]})
    for (Values values : {Values::one_hot, Values::far_above, Values::far_below})
      for (Mask mask : {Mask::full(), Mask::causal()})
        for (std::int64_t dim : {32, 200}) check_case({problem(1, 1, 150, 150, dim, mask, precision), Layout::rows, values, true, 8});
}

// Windows on both sides, soft capping, sinks, documents, values of another dimension: docs/attention.md says which variant serves what.
TEST_F(AttentionGpu, WhatModelsAskBeside) {
  for (Precision precision : precisions)
    each_feature(precision, [&](const Case& c) { EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c); });
}

// Documents that end anywhere in a tile, an empty one between full ones, keys that no row sees; caps that flatten all scores and that touch none.
TEST_F(AttentionGpu, DocumentsAndCapsOfEveryTileShape) {
  const std::vector<int> borders = {57, 66, 0, 75, 31}, keys = {90, 40, 12, 0, 70};
  for (std::int64_t dim : {64, 128, 256})
    for (Mask mask : {Mask::causal(), Mask::sliding(70, Align::bottom_right, 5)})
      for (Precision precision : {precisions[0], precisions[1]}) {
        check_case(packed(plain_case(2, 1, 0, 0, dim, mask, precision, 84), borders, borders, 9));
        Case c = packed(plain_case(1, 1, 0, 0, dim, mask, precision, 85), borders, keys);
        c.problem.deterministic = dim == 128;
        c.problem.softcap = 5;
        check_case(c);
        for (float cap : {0.1f, 60.f, 70.f, 1e4f}) {  // flash_sm90 forms the tanh in another way up to 64
          c = plain_case(2, 1, 130, 190, dim, mask, precision, 86);
          c.problem.softcap = cap;
          check_case(c);
        }
      }
  EXPECT_GE(checked, only.empty() ? 144 : 0);  // two variants at least serve each
}

// Documents of several tiles whose ends share a tile with short ones, many that share one, rows of no document; more tiles than blocks, and fewer.
TEST_F(AttentionGpu, DocumentsOfSeveralTiles) {
  const std::vector<int> many(150, 3);
  for (std::int64_t dim : {64, 96, 128, 256})
    for (bool grouped : {false, true})
      for (const auto& [q, k] :
           {std::pair{std::vector<int>{300, 1, 2, 0, 130, 5, 128, 193}, std::vector<int>{}}, {many, {}}, {{200, 140}, {20, 400}}}) {
        Case c = plain_case(grouped ? 4 : 2, 2, 0, 0, dim, grouped ? Mask::sliding(150, Align::bottom_right, 20) : Mask::causal(),
                            precisions[dim % 3 % 2], 87);
        c.problem.batch = grouped ? 2 : 1;
        c = packed(c, q, k.empty() ? q : k, grouped ? 0 : 70);
        c.problem.deterministic = !grouped && dim < 256;
        EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c);
      }
}

TEST_F(AttentionGpu, ACacheOfAnyLengthInAnyPages) {
  for (Precision precision : precisions)
    each_cache(precision, [&](const Case& c) { EXPECT_GE(check_case(c), only.empty() ? 1 : 0) << in_words(c); });
}

// NaN behind the end of a cache, behind the last document, and in a document beside others: it stays where it is.
TEST_F(AttentionGpu, WhatARowDoesNotSeeMayBeAnything) {
  for (Precision precision : precisions)
    each_bound(precision, {32, 64, 128, 192}, [&](const Case& c, const std::vector<Poison>& poisons) {
      Tensors clean = tensors_of(c);
      const Expected expected = expected_of(c, clean, true);
      for (const bool deterministic : {false, true}) {
        Case asked = c;
        asked.problem.deterministic = deterministic;
        for (const Variant& v : variants())
          for (const Poison& poison : poisons) {
            if (!serves(v, asked.problem, Pass::forward)) continue;
            SCOPED_TRACE(fmt::format("{} NaN in document {}", v.name, poison.document));
            Tensors x = clean;
            poison.into(c, x);
            const bool gradients = run(v, asked, x);
            poison.forgive(c, x, expected.exact, gradients);
            judge(c, x, expected, gradients);
            ++checked;
          }
      }
    });
  EXPECT_GT(checked, only.empty() ? 500 : 0);
}

TEST_F(AttentionGpu, ValuesOfAnotherDimension) {
  for (Precision precision : precisions)
    for (auto [dim, dim_v] : {std::pair{192, 128}, {64, 128}, {128, 64}, {256, 64}, {80, 96}, {576, 512}}) {
      Case c = plain_case(4, 2, 150, 330, dim, Mask::causal(), precision, 80);
      c.problem.dim_v = dim_v;
      EXPECT_GE(check_case(c), only.empty() ? 1 : 0) << in_words(c);
    }
}

TEST_F(AttentionGpu, SinksWhereWorkIsSharedOut) {  // keys of a row in several blocks, query heads packed as rows, parts added up
  for (auto [heads, kv_heads, len_q, len_k, dim] :
       {std::tuple{8, 2, 1, 400, 64}, {16, 2, 5, 400, 128}, {1, 1, 100, 900, 64}, {70, 70, 10, 1030, 64}, {4, 4, 600, 600, 256}}) {
    Case c = plain_case(heads, kv_heads, len_q, len_k, dim, Mask::causal(), {DType::bf16}, 81);
    c.problem.sink = true;
    c.sinks = {3, -2, 0, 12, std::numeric_limits<float>::infinity()};
    EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c);
  }
}

TEST_F(AttentionGpu, TenThousandDocuments) {
  std::vector<int> lengths;
  for (int d = 0; d < 10'000; ++d) lengths.push_back(d % 3);
  for (Precision precision : precisions) {
    Case c = packed(plain_case(1, 1, 0, 0, 32, Mask::causal(), precision, 82), lengths, lengths);
    c.problem.batch = 1;
    for (const Variant& v : variants()) {
      if (v.family == "plain" || !serves(v, c.problem, Pass::backward)) continue;
      SCOPED_TRACE(v.name);
      Tensors x = tensors_of(c);
      const Expected expected = expected_of(c, x, true);
      run(v, c, x);
      judge(c, x, expected);
      ++checked;
    }
  }
  EXPECT_GE(checked, only.empty() ? 4 : 0);
}

// P is formed again from an LSE of 24 bits; where scores are so large that this says little, it is still a probability.
TEST_F(AttentionGpu, ProbabilitiesOfHugeScoresAreNoMoreThanOne) {
  for (Precision precision : precisions)
    for (float reach : {1e4f, 1e6f, 1e8f})
      for (std::int64_t dim : {32, 64, 80, 128, 256})
        for (auto [len_q, len_k] : {std::pair{1, 90}, {200, 200}}) {
          Case c = plain_case(2, 2, len_q, len_k, dim, Mask::causal(), precision, 83);
          if (precision.dtype == DType::f16)
            reach = std::min(reach, 3e4f);  // fp16 holds no Q that is much larger: it is a third of it, times normal numbers
          c.values = Values::huge;
          c.reach = reach;
          c.with_dlse = false;
          for (const Variant& v : variants()) {
            if (!serves(v, c.problem, Pass::backward)) continue;
            SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
            Tensors x = tensors_of(c);
            run(v, c, x);
            const Problem& p = c.problem;
            const auto dv = x.dv.values(), d_o = x.d_o.values();
            for (std::size_t i = 0; i < dv.size(); ++i) {
              const auto d = std::int64_t(i) % p.head_dim, h = std::int64_t(i) / p.head_dim % p.heads,
                         b = std::int64_t(i) / (p.head_dim * p.heads * p.len_k);
              double most = 0;  // what a key could get if every row saw it alone
              for (std::int64_t row = 0; row < p.len_q; ++row)
                most += std::abs(d_o[std::size_t(((b * p.len_q + row) * p.heads + h) * p.head_dim + d)]);
              ASSERT_LE(std::abs(dv[i]), most * (1 + 0x1p-7)) << i;
            }
            if (precision.dtype == DType::f16) continue;  // its dQ and dK may be past its largest number
            for (Guarded* g : {&x.dq, &x.dk})
              for (double value : g->values()) ASSERT_TRUE(std::isfinite(value));
          }
        }
}

// HEADROOM_CASE=<seed> runs one configuration; HEADROOM_CASES=<count> another number of them; both: so many from that seed on.
TEST_F(AttentionGpu, RandomConfigurations) {
  const char *one = std::getenv("HEADROOM_CASE"), *many = std::getenv("HEADROOM_CASES");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1, count = many ? std::strtoull(many, nullptr, 10) : one ? 1 : 600;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Case c = random_case(seed);
    if (seed % 4) c.problem.head_dim = (c.problem.head_dim + 7) / 8 * 8, c.layout = Layout(seed % 2);  // what 16-byte copies can reach
    if (seed % 8 >= 5 && c.problem.precision.dtype == DType::f32) c.problem.precision.math = Math::tf32;
    check_case(c);
    ASSERT_FALSE(HasFailure()) << "rerun with HEADROOM_CASE=" << seed << ": " << in_words(c);
  }
}

TEST_F(AttentionGpu, FullyMaskedRowsAreZeroAndMinusInfinity) {
  for (Precision precision : precisions)
    for (std::int64_t dim : {16, 64, 80, 96, 128, 256}) {
      const Case c{problem(1, 1, 290, 20, dim, Mask::causal(), precision), Layout::rows, Values::normal, true,
                   2};  // rows 0 … 269 see nothing
      for (const Variant& v : variants()) {
        if (!serves(v, c.problem, Pass::forward)) continue;
        SCOPED_TRACE(v.name);
        Tensors x = tensors_of(c);
        const bool gradients = run(v, c, x);
        const auto o = x.o.values(), lse = x.lse.values(), dq = x.dq.values();
        for (std::size_t i = 0; i < std::size_t(270 * dim); ++i) ASSERT_TRUE(o[i] == 0 && (!gradients || dq[i] == 0)) << i;
        for (std::size_t i = 0; i < 270; ++i) ASSERT_EQ(lse[i], -std::numeric_limits<double>::infinity());
        ASSERT_TRUE(std::isfinite(lse[270]));
      }
    }
}

// dK of two queries, in 8 dimensions: a sum of two terms, each with the rounding of dS in it, where a test once saw 5 % over its budget.
TEST_F(AttentionGpu, TwoQueriesOfEightDimensionsInBf16) {
  Case c = random_case(829);
  c.problem.precision = {DType::bf16}, c.problem.head_dim = 8, c.layout = Layout::heads_first;
  for (c.seed = 829; c.seed < 929; ++c.seed) check_case(c);
}

// One head of 2^24 + 77 rows of 128, most of them zero: the last rows lie past 2^31 elements, and in a window no other row matters to them.
TEST_F(AttentionGpu, SizesPastTwoToThe31Elements) {
  constexpr std::int64_t len = (1 << 24) + 77, dim = 128, window = 70, tail = 300;
  int tried = 0;
  for (const Variant& v : variants())
    for (Precision precision : {precisions[0], precisions[2], precisions[3]}) {
      Problem p = problem(1, 1, len, len, dim, Mask::sliding(window), precision);
      p.batch = 1;
      if (v.family != "flash" || !serves(v, p, Pass::forward) || !serves(v, p, Pass::backward)) continue;
      const std::size_t size = size_of(precision.dtype), bytes = std::size_t(len * dim) * size;
      const std::size_t forward_bytes = workspace_bytes(v, p, device, Pass::forward, 1),
                        backward_bytes = workspace_bytes(v, p, device, Pass::backward, 1),
                        needed = 5 * bytes + forward_bytes + backward_bytes;
      if (device_memory().free_bytes < needed + (2ull << 30)) continue;
      SCOPED_TRACE(std::string(v.name) + " " + std::string(name_of(precision)));
      ++tried;
      Case small{p, Layout::rows, Values::normal, false, 21};
      small.problem.len_q = small.problem.len_k = tail;
      Tensors x = tensors_of(small);
      x.q.each([&](std::int64_t, std::int64_t at) { x.q.set(at, 0.3f * float(load_element(x.q.view().data, precision.dtype, at))); });
      Buffer in(bytes), o(bytes), dq(bytes), dk(bytes), dv(bytes), lse(std::size_t(len) * 4),
          work(std::max(forward_bytes, backward_bytes) + 256);
      fill_bytes(in.data(), 0, bytes, *stream);
      for (const Buffer* b : {&o, &dq, &dk, &dv}) fill_bytes(b->data(), 0xff, bytes, *stream);
      const auto tail_of = [&](const Buffer& b) { return static_cast<std::byte*>(b.data()) + std::size_t((len - tail) * dim) * size; };
      const Tensor rows = x.q.view();  // Q, K, V and dO are one tensor
      copy_to_device(tail_of(in), rows.data, rows.bytes(), *stream);
      const auto view = [&](const Buffer& b) { return Tensor(b.data(), precision.dtype, p.q_shape()); };
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        Arena arena(work.data(), pass == Pass::forward ? forward_bytes : backward_bytes);
        Context ctx{arena, device};
        ctx.stream = stream->raw();
        const Tensor t = view(in), stat(lse.data(), DType::f32, p.lse_shape());
        if (pass == Pass::forward)
          forward(v, p, {t, t, t, view(o), stat, {}}, ctx);
        else
          backward(v, p, {t, t, t, view(o), stat, t, {}, view(dq), view(dk), view(dv), {}}, ctx);
      }
      const Reference exact = reference(small.problem, rows, rows, rows, rows, Tensor());
      const double unit = precision.dtype == DType::bf16 ? 0x1p-7
                          : precision.math == Math::tf32 ? 0x1p-9
                                                         : 0x1p-18;  // indices are what is tested
      for (auto [buffer, right] : {std::pair{&o, &exact.o}, {&dq, &exact.dq}, {&dk, &exact.dk}, {&dv, &exact.dv}}) {
        std::vector<std::byte> got(std::size_t(tail * dim) * size);
        copy_to_host(got.data(), tail_of(*buffer), got.size(), *stream);
        stream->wait();
        double largest = 0, worst = 0;
        for (std::int64_t i = window * dim; i < tail * dim; ++i) {  // rows before see keys that the small problem has not
          const double e = std::abs(load_element(got.data(), precision.dtype, i) - (*right)[std::size_t(i)]);
          largest = std::max(largest, std::abs((*right)[std::size_t(i)])), worst = std::isfinite(e) ? std::max(worst, e) : 1e30;
        }
        EXPECT_LE(worst, 8 * unit * largest);
      }
    }
  if (tried == 0) GTEST_SKIP() << "no variant's five tensors of 2^31 elements fit the memory of " << device.name;
}

}  // namespace
}  // namespace headroom::attention
