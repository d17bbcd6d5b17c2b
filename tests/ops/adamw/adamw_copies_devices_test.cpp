// An update that writes a weight's 8-bit copies: they are what ops/quantise makes of the updated copy, and nothing else changes by it.
#include "ops/adamw/impl.h"
#include "ops/copy/split.h"
#include "ops/quantise/quantise.h"
#include "tests/ops/on_devices.h"

namespace headroom::adamw {
namespace {

using namespace on_card;

struct WayOfCopies {
  std::int64_t rows, columns;
  DType moments, grad;
  bool halves;
};

struct Copies {
  Twin as_is, as_is_scale, transposed, transposed_scale, counts{DType::i64, {quantise::count_size}};
  ScaleKind kind;

  Copies(std::int64_t rows, std::int64_t columns, ScaleKind of)
      : as_is(DType::e4m3, {rows, columns}),
        as_is_scale(DType::f32, scale_shape(of, rows, columns)),
        transposed(DType::e4m3, {columns, rows}),
        transposed_scale(DType::f32, scale_shape(of, columns, rows)),
        kind(of) {
    std::memset(counts.here().data, 0, counts.here().bytes());
  }
  std::vector<Twin*> all() { return {&as_is, &as_is_scale, &transposed, &transposed_scale, &counts}; }
  void expect_same(Copies& other) {
    const char* names[] = {"as it is", "its scales", "transposed", "its scales", "counts"};
    const auto mine = all(), theirs = other.all();
    for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(mine[i]->bytes() == theirs[i]->bytes()) << names[i];
  }
};

struct CopiedWeight {
  Twin grad, master, copy, rest, m, v, m_scale, v_scale, state{DType::f64, {state_size}};

  explicit CopiedWeight(const WayOfCopies& w)
      : grad(w.grad, {w.rows, w.columns}), copy(DType::bf16, {w.rows, w.columns}), m(w.moments, grad.here().shape), v(m) {
    const std::int64_t n = w.rows * w.columns;
    grad.normal(1);
    Twin weight(DType::f32, {w.rows, w.columns});
    weight.normal(2, 0.02);
    auto* values = weight.here().as<float>();
    for (std::int64_t i = 0; i < n; i += 97) values[i] = 0;
    for (std::int64_t i = 11; i < n; i += 1013) values[i] *= 1e-7f;  // flushed
    std::vector<Twin*> zeros{&m, &v};
    if (w.moments == DType::u8) {
      m_scale = Twin(DType::f32, {ceil_div(n, moments_block)}), v_scale = m_scale;
      zeros.push_back(&m_scale), zeros.push_back(&v_scale);
    }
    for (Twin* t : zeros) std::memset(t->here().data, 0, t->here().bytes());
    if (!w.halves) {
      master = weight;
      return;
    }
    rest = Twin(DType::u16, {w.rows, w.columns});
    for (std::int64_t i = 0; i < n; ++i) {
      const auto h = copy::split(values[i]);
      copy.here().as<bf16>()[i] = h.upper, rest.here().as<std::uint16_t>()[i] = h.rest;
    }
  }
  Update update(const On& at) {
    const auto of = [&](Twin& t) { return t ? at(t) : Tensor(); };
    return {.grad = of(grad),
            .master = of(master),
            .m = of(m),
            .v = of(v),
            .copy = of(copy),
            .rest = of(rest),
            .m_scale = of(m_scale),
            .v_scale = of(v_scale),
            .parameter = 3};
  }
  std::vector<Twin*> all() { return {&grad, &master, &copy, &rest, &m, &v, &m_scale, &v_scale, &state}; }
  void set(std::int64_t i, float value) {  // its weight before the update
    if (!rest) return master.set(i, value);
    const auto h = copy::split(value);
    copy.here().as<bf16>()[i] = h.upper, rest.here().as<std::uint16_t>()[i] = h.rest;
  }
};

class AdamwCopies : public OnDevices {
 protected:
  void step(Where where, CopiedWeight& w, Copies* copies) {
    auto all = w.all();
    if (copies)
      for (Twin* t : copies->all()) all.push_back(t);
    run(where, all, [&](Context& ctx, const On& at) {
      start(at(w.state), 1, ctx), set_rate(at(w.state), 1e-2, ctx), set_seed(at(w.state), 11, ctx);
      Update u = w.update(at);
      if (copies) {
        u.as_is = {at(copies->as_is), at(copies->as_is_scale), copies->kind};
        u.transposed = {at(copies->transposed), at(copies->transposed_scale), copies->kind};
        u.counts = at(copies->counts);
      }
      advance({&u, 1}, begin(at(w.state), {.clip = 0}, ctx), ctx);
    });
  }
  void quantise_after(CopiedWeight& w, Copies& copies) {
    auto all = copies.all();
    all.push_back(&w.copy);
    run(Where::cpu, all, [&](Context& ctx, const On& at) {
      quantise::quantise({.x = at(w.copy),
                          .as_is = {at(copies.as_is), at(copies.as_is_scale), copies.kind},
                          .transposed = {at(copies.transposed), at(copies.transposed_scale), copies.kind},
                          .counts = at(copies.counts)},
                         ctx);
    });
  }
  void expect_copies(const WayOfCopies& way, ScaleKind kind, const std::function<void(CopiedWeight&)>& change = {}) {
    SCOPED_TRACE(fmt::format("{} x {}, moments {}, gradients {}, scales {}{}", way.rows, way.columns, name_of(way.moments),
                             name_of(way.grad), name_of(kind), way.halves ? ", halves" : ""));
    CopiedWeight with(way);
    if (change) change(with);
    CopiedWeight without = with;
    Copies made(way.rows, way.columns, kind), after(way.rows, way.columns, kind);
    step(GetParam(), with, &made);
    step(GetParam(), without, nullptr);
    const auto a = with.all(), b = without.all();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i]->bytes() == b[i]->bytes()) << "the update changed tensor " << i;
    quantise_after(with, after);
    made.expect_same(after);
    EXPECT_EQ(made.counts.here().as<std::int64_t>()[quantise::Count::numbers], 2 * way.rows * way.columns);
  }
};
HEADROOM_ON_DEVICES(AdamwCopies);

// Tiles of 128 x 256 as a card updates them, several in each direction and one alone; and sides that have none.
TEST_P(AdamwCopies, AreWhatQuantiseMakesOfTheUpdatedWeight) {
  for (const auto& [rows, columns] :
       {std::pair{128, 256}, std::pair{256, 768}, std::pair{384, 256}, std::pair{144, 80}, std::pair{128, 128}})
    for (const DType moments : {DType::f32, DType::bf16, DType::u8})
      for (const DType grad : {DType::f32, DType::bf16})
        for (const bool halves : {false, true}) expect_copies({rows, columns, moments, grad, halves}, ScaleKind::block);
}

TEST_P(AdamwCopies, OfOtherScalesFollowTheUpdate) {
  for (const ScaleKind kind : {ScaleKind::one, ScaleKind::row}) expect_copies({128, 256, DType::bf16, DType::bf16, true}, kind);
}

TEST_P(AdamwCopies, OfNumbersThatAreNotFinite) {
  for (const DType moments : {DType::bf16, DType::u8})
    for (const bool halves : {false, true}) {
      const WayOfCopies way{256, 512, moments, DType::bf16, halves};
      expect_copies(way, ScaleKind::block, [](CopiedWeight& w) {
        w.set(5, INFINITY), w.set(6, -INFINITY), w.set(130, NAN), w.set(131, -NAN), w.set(140 * 512 + 300, -INFINITY);
      });
      expect_copies(way, ScaleKind::block,
                    [&](CopiedWeight& w) {  // a block of zeros, one that is infinite, and one of the smallest numbers
                      for (std::int64_t i = 0; i < 128; ++i)
                        for (std::int64_t j = 0; j < 512; ++j) {
                          w.set(i * 512 + j, j < 128 ? 0.0f : j < 256 ? INFINITY : j < 384 ? 1e-39f : 1e-30f);
                          w.grad.set(i * 512 + j, 0);
                        }
                    });
    }
}

}  // namespace
}  // namespace headroom::adamw
