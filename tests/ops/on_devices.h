// Tests that run for every device: each TEST_P of a *_devices_test.cpp runs on the CPU, and again on the GPU where there is one.
// The CPU is held to a plain FP32 version of the formula, the GPU to the CPU: at most twice the error and a few roundings.
#pragma once
#include <algorithm>
#include <string>

#include "tests/ops/on_card.h"

namespace headroom::on_card {

enum class Where : std::uint8_t { cpu, gpu };
inline void PrintTo(Where w, std::ostream* out) { *out << (w == Where::cpu ? "cpu" : "gpu"); }  // GoogleTest's name for it

using On = std::function<Tensor(Twin&)>;  // the tensor on the device that runs

// In the arithmetic of Real, in 16 lanes and then those: what a vector unit does without further care.
template <class Real, class Term>
Real sum_in_lanes(std::size_t count, const Term& term) {
  Real lane[16] = {};
  for (std::size_t i = 0; i < count; ++i) lane[i % 16] += Real(term(i));
  for (std::size_t width = 8; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

inline double stored_as(DType type, double x) {
  double stored = x;
  if (type != DType::f64) with_float(type, [&]<class T>() { stored = double(widen(narrow<T>(float(x)))); });
  return stored;
}

class OnDevices : public OnCard, public testing::WithParamInterface<Where> {
 protected:
  using DeviceWork = std::function<void(Context&, const On&)>;
  using Twins = std::vector<Twin*>;

  void SetUp() override {
    if (GetParam() == Where::gpu) OnCard::SetUp();
  }
  // The CPU, and after it the GPU where that is the parameter: hold() makes each device's result the measure of the next.
  std::vector<Where> devices() const { return GetParam() == Where::gpu ? std::vector{Where::cpu, Where::gpu} : std::vector{Where::cpu}; }
  const Device& device_of(Where where) const { return where == Where::gpu ? device : cpu; }

  void run(Where where, const Twins& all, const DeviceWork& work) {
    if (where == Where::cpu) {
      run_on_cpu(threads, work);
    } else {
      for (Twin* t : all)
        if (*t) t->up(*stream);
      on_gpu([&](Context& ctx) { work(ctx, [](Twin& t) { return t.there(); }); });
      for (Twin* t : all)
        if (*t) t->down(*stream);
    }
    for (Twin* t : all) EXPECT_TRUE(!*t || t->guards_intact()) << "written outside a tensor";
  }

  // At most twice the error of `honest`, and a few roundings. `got` is the honest one from then on.
  void hold(const char* what, Twin& got, std::vector<double>& honest, const std::vector<double>& oracle, DType type, double least = 1e-30) {
    auto values = got.values();
    expect_honest(what, values, honest, oracle, type, least);
    honest = std::move(values);
  }

  // Again from the same inputs: on the CPU with another number of threads, on the GPU anew and as a recorded graph.
  void expect_same_bits(const Twins& all, const DeviceWork& work) {
    std::vector<std::vector<std::byte>> before, first;
    for (Twin* t : all) before.push_back(t->bytes());
    const auto reset = [&] {
      for (std::size_t i = 0; i < all.size(); ++i) all[i]->bytes() = before[i];
    };
    if (GetParam() == Where::gpu) {
      OnCard::expect_same_bits([&](Context& ctx) { work(ctx, [](Twin& t) { return t.there(); }); },
                               [&] {
                                 reset();
                                 for (Twin* t : all) t->up(*stream);
                               },
                               all);
      return;
    }
    for (int count : {1, 2, 3, 7}) {
      Threads some(count);
      reset();
      run_on_cpu(some, work);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (first.size() < all.size())
          first.push_back(all[i]->bytes());
        else
          ASSERT_TRUE(first[i] == all[i]->bytes()) << count << " threads: other bits in tensor " << i;
      }
    }
  }

 private:
  void run_on_cpu(Threads& pool, const DeviceWork& work) {
    const On here = [](Twin& t) { return t.here(); };
    const auto bytes = scratch_of(
        cpu, [&](Context& ctx) { work(ctx, here); }, pool.count());
    const Block memory(bytes + 1);
    std::memset(memory.data(), 0xff, memory.bytes());
    Arena arena(memory.data(), memory.bytes());
    Context ctx{arena, cpu, &pool};
    work(ctx, here);
    EXPECT_EQ(arena.peak(), bytes) << "the dry run promised other scratch";
  }
};

// tests/CMakeLists.txt labels a test by this first word: cpu is fast, gpu is gpu.
#define HEADROOM_ON_DEVICES(Suite)                                   \
  INSTANTIATE_TEST_SUITE_P(cpu, Suite, testing::Values(Where::cpu)); \
  INSTANTIATE_TEST_SUITE_P(gpu, Suite, testing::Values(Where::gpu))

}  // namespace headroom::on_card
