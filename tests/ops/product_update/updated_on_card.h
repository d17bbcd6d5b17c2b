// Shared by the GPU tests of products that update their weights: weights go up, are updated in one launch, and come back.
//
// W has a size, the factors' twins as inputs(), `updated` and item(of), what product_update::advance takes.
#pragma once
#include <algorithm>

#include "base/divide.h"
#include "ops/adamw/prepare.h"
#include "ops/copy/split.h"
#include "ops/matmul/matmul.h"
#include "ops/product_update/product_update.h"
#include "tests/ops/on_card.h"

namespace headroom::on_card {

struct UpdateSize {
  std::int64_t tokens, out, in;
};

struct Updated {  // what an update changes, of a weight in halves
  Twin m, v, upper, rest, m_scale, v_scale;
  explicit Updated(const UpdateSize& s)
      : m(DType::f32, {s.out, s.in}), v(DType::f32, {s.out, s.in}), upper(DType::bf16, {s.out, s.in}), rest(DType::u16, {s.out, s.in}) {}

  void set(std::int64_t i, float weight, float first, float second) {
    const auto halves = copy::split(weight);
    m.set(i, first), v.set(i, second);
    upper.here().as<bf16>()[i] = halves.upper, rest.here().as<std::uint16_t>()[i] = halves.rest;
  }
  float value(std::int64_t i) { return copy::join({upper.here().as<bf16>()[i], rest.here().as<std::uint16_t>()[i]}); }
  std::vector<Twin*> all() { return m_scale ? std::vector{&m, &v, &upper, &rest, &m_scale, &v_scale} : std::vector{&m, &v, &upper, &rest}; }
  template <class Of>
  adamw::Update update(Of&& of) {
    adamw::Update u{.grad = {}, .master = {}, .m = of(m), .v = of(v), .copy = of(upper), .rest = of(rest)};
    if (m_scale) u.m_scale = of(m_scale), u.v_scale = of(v_scale);
    u.parameter = 5;
    return u;
  }
  // The moments that were set, in bf16 or in 8 bits, rounded to the nearest.
  void narrow_to(DType moments) {
    const std::vector<double> first = m.values(), second = v.values();
    const Shape shape = m.here().shape;
    m = Twin(moments, shape), v = Twin(moments, shape);
    const std::int64_t count = shape.count(), each = adamw::moments_block;
    if (moments == DType::bf16) {
      for (std::int64_t i = 0; i < count; ++i) m.set(i, float(first[std::size_t(i)])), v.set(i, float(second[std::size_t(i)]));
      return;
    }
    m_scale = Twin(DType::f32, {ceil_div(count, each)}), v_scale = m_scale;
    for (std::int64_t b = 0; b < count; b += each) {
      double m_most = 0, v_most = 0;
      const std::int64_t end = std::min(count, b + each);
      for (std::int64_t i = b; i < end; ++i)
        m_most = std::max(m_most, std::fabs(first[std::size_t(i)])), v_most = std::max(v_most, second[std::size_t(i)]);
      const float of_m = adamw::FirstMoment::Of::scale(float(m_most)), of_v = adamw::SecondMoment::Of::scale(float(v_most));
      m_scale.set(b / each, of_m), v_scale.set(b / each, of_v);
      for (std::int64_t i = b; i < end; ++i) {
        m.here().as<std::uint8_t>()[i] = adamw::FirstMoment::code(float(first[std::size_t(i)]), adamw::inverse_of(of_m), 0x8000);
        v.here().as<std::uint8_t>()[i] = adamw::SecondMoment::code(float(second[std::size_t(i)]), adamw::inverse_of(of_v), 0x8000);
      }
    }
  }
};

inline Tensor here(Twin& t) { return t.here(); }
inline Tensor there(Twin& t) { return t.there(); }

template <class W>
class UpdatedOnCard : public OnCard {
 protected:
  static constexpr adamw::Hyper hyper{.clip = 0};

  void SetUp() override {
    OnCard::SetUp();
    if (IsSkipped()) return;
    if (const Support s = product_update::supports(256, 256, device); !s.ok) GTEST_SKIP() << s.why;
    on_cpu([&](Context& ctx) { adamw::start(state.here(), 8, ctx), adamw::set_rate(state.here(), 1e-2, ctx); });
  }
  adamw::Numbers first_update() {
    double fields[adamw::state_size] = {};
    std::memcpy(fields, state.here().data, sizeof fields);
    return adamw::prepare(fields, 0, hyper);
  }
  template <class Update>
  Work with_first_numbers(Update&& update) {
    return [this, update](Context& ctx) {
      auto scope = ctx.arena.scope();
      update(product_update::begin(state.there(), hyper, ctx), ctx);
    };
  }
  Work fused(std::vector<W>& all) {
    return with_first_numbers([&all](const Tensor& numbers, Context& ctx) {
      std::vector<product_update::Item> items;
      for (W& w : all) items.push_back(w.item(there));
      product_update::advance(items, numbers, ctx);
    });
  }
  void up(std::vector<W>& all) {
    state.up(*stream);
    for (W& w : all) {
      for (Twin* t : w.inputs()) t->up(*stream);
      for (Twin* t : w.updated.all()) t->up(*stream);
    }
  }
  void down(std::vector<W>& all) {
    for (W& w : all) {
      for (Twin* t : w.inputs()) {
        const auto before = t->bytes();
        t->down(*stream);
        EXPECT_TRUE(before == t->bytes()) << "an input was written";
      }
      for (Twin* t : w.updated.all()) {
        t->down(*stream);
        EXPECT_TRUE(t->guards_intact()) << "written past the end";
      }
    }
  }
  void run(std::vector<W>& all) { up(all), on_gpu(fused(all)), down(all); }
  static std::vector<std::vector<std::byte>> bits_of(std::vector<W>& all) {
    std::vector<std::vector<std::byte>> bits;
    for (W& w : all)
      for (Twin* t : w.updated.all()) bits.push_back(t->bytes());
    return bits;
  }
  // The bits of adamw's own kernel, given each weight's gradient: one that is exact in any order of sums.
  template <class GradientOf>
  void expect_adamws(std::vector<W>& all, GradientOf&& gradient_of) {
    std::vector<W> apart = all;
    std::vector<Twin> grads;
    for (W& w : apart) {
      const auto g = gradient_of(w);
      grads.emplace_back(DType::bf16, Shape{w.size.out, w.size.in});
      for (std::size_t i = 0; i < g.size(); ++i) grads.back().set(std::int64_t(i), g[i]);
      grads.back().up(*stream);
    }
    run(all);
    up(apart);
    on_gpu(with_first_numbers([&](const Tensor& numbers, Context& ctx) {
      for (std::size_t i = 0; i < apart.size(); ++i) {
        adamw::Update u = apart[i].updated.update(there);
        u.grad = grads[i].there();
        adamw::advance({&u, 1}, numbers, ctx);
      }
    }));
    down(apart);
    constexpr const char* names[] = {"m", "v", "upper", "rest", "m's scales", "v's scales"};
    for (std::size_t w = 0; w < all.size(); ++w) {
      const auto got = all[w].updated.all(), expected = apart[w].updated.all();
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i]->bytes() == expected[i]->bytes()) << names[i] << " of weight " << w;
    }
  }
  // make(): the weights anew.
  template <class Make>
  void expect_bits_of_any_number_of_blocks(Make&& make, std::initializer_list<int> fewer) {
    std::vector<W> all = make();
    run(all);
    const auto first = bits_of(all);
    const int real = device.units;
    std::vector<int> counts(fewer);
    counts.push_back(real);
    for (const int units : counts) {
      all = make();
      device.units = units;
      run(all);
      EXPECT_TRUE(first == bits_of(all)) << units << " multiprocessors";
    }
    device.units = real;
  }

  Twin state{DType::f64, {adamw::state_size}};
};

}  // namespace headroom::on_card
