#include "studies/device/ceilings_gpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/convert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "gpu/blas.h"
#include "gpu/clocks.h"
#include "gpu/event.h"
#include "gpu/place.h"
#include "gpu/staging.h"
#include "instruments/bench/gpu_timer.h"

namespace headroom::studies {

namespace {

constexpr std::int64_t copies[] = {256ll << 20, 1ll << 30, 4ll << 30};  // far past any cache
constexpr std::int64_t products[] = {2048, 4096, 8192, 16384};
constexpr Precision precisions[] = {
    {DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}, {DType::f16, Math::exact}, {DType::e4m3, Math::exact}};

// So many normal numbers in 8 bits, from a million of them.
void fill_normal_in_8_bits(void* to, std::int64_t count, const Place& place) {
  std::vector<e4m3> some(std::size_t(std::min<std::int64_t>(count, 1 << 20)));
  const Random random{1};
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = narrow<e4m3>(random.normal(i));
  for (std::int64_t at = 0; at < count; at += std::int64_t(some.size()))
    place.copy_in(static_cast<char*>(to) + at, some.data(), std::size_t(std::min(count - at, std::int64_t(some.size()))));
  place.wait();
}

// The clock while the work runs: read in the middle of a quarter of a second of it.
void read_clock_under_load(const Device& d, const Place& place, const std::function<void()>& call, CeilingRow& r) {
  constexpr double load_ms = 250;
  if (r.ms.median < 0.5 || !clocks_of(d)) return;  // shorter calls: the host could not keep the card busy
  for (int i = 0; i < int(std::ceil(load_ms / r.ms.median)); ++i) call();
  std::this_thread::sleep_for(std::chrono::milliseconds(int(load_ms / 2)));
  const auto clocks = clocks_of(d);
  place.wait();
  if (!clocks) return;
  if (clocks->sm_mhz > 0) r.sm_mhz = clocks->sm_mhz;
  r.held_back = joined(clocks->held_back);
}

}  // namespace

std::vector<CeilingRow> measure_on_gpu(const Device& d, const bench::Protocol& protocol, const std::function<bool()>& stop) {
  Place place(d);
  std::vector<CeilingRow> rows;
  const auto fits = [&](std::int64_t bytes) { return std::uint64_t(bytes) < d.memory_bytes / 4 * 3; };
  const auto measured = [&](CeilingRow r, const std::function<void()>& call) {
    r.ms = bench::measure(call, protocol, bench::timer_at(place), stop).ms;
    if (r.what == "matmul") read_clock_under_load(d, place, call, r);
    rows.push_back(std::move(r));
    return rows.back().ms.count > 0 ? 1e3 / rows.back().ms.median : 0;  // calls per second
  };
  for (const auto bytes : copies) {
    if (!fits(2 * bytes) || stop()) continue;
    const PlaceMemory from = place.take(std::size_t(bytes)), to = place.take(std::size_t(bytes));
    place.fill_normal({from.data(), DType::f32, {bytes / 4}}, Random{1});
    const double rate =
        measured({"copy", "bytes", bytes, {}}, [&] { copy_on_device(to.data(), from.data(), std::size_t(bytes), place.queue()); });
    if (rate > 0) rows.back().copy_bytes_per_s = 2 * double(bytes) * rate;
  }
  const PlaceMemory workspace = place.take(blas::workspace_bytes);
  for (const Precision p : precisions)
    for (const auto n : products) {
      const bool eight = size_of(p.dtype) == 1;  // their product is in bf16
      const std::int64_t bytes = n * n * std::int64_t(size_of(p.dtype)), all = (eight ? 4 : 3) * bytes;
      if (!fits(all) || stop() || (eight && d.sm < 89)) continue;
      const PlaceMemory memory = place.take(std::size_t(all));
      const auto matrix = [&](int i) { return blas::Matrix{static_cast<char*>(memory.data()) + i * bytes, p.dtype, n, 0}; };
      if (eight)  // zeros would draw less power, and run faster
        fill_normal_in_8_bits(memory.data(), 2 * n * n, place);
      else
        place.fill_normal({memory.data(), p.dtype, {2, n, n}}, Random{1});
      blas::Gemm product{matrix(0), matrix(1), matrix(2), n, n, n, 1};
      product.math = p.math;
      if (eight) product.b.transposed = true, product.c.dtype = DType::bf16, product.whole_sums = true;
      const double rate =
          measured({"matmul", std::string(name_of(p)), n, {}}, [&] { blas::multiply(product, workspace.data(), place.stream()); });
      if (rate > 0) rows.back().flops_per_s = 2 * std::pow(double(n), 3) * rate;
    }
  return rows;
}

std::string measure_host_link(const Device& d, const bench::Protocol& protocol, const std::function<bool()>& stop,
                              std::vector<CeilingRow>& rows) {
  constexpr std::size_t bytes = 256 << 20;
  try {
    Place place(d);
    const Stream beside(d.index);
    const Event begin, end;
    const PlaceMemory sent = place.take(bytes), got = place.take(bytes);
    place.fill_normal({sent.data(), DType::f32, {std::int64_t(bytes / sizeof(float))}}, Random{1});
    const Pinned to(bytes), from(bytes);
    void* const main = place.stream();
    const auto send = [&](void* stream) { copy_across(to.data(), sent.data(), bytes, stream); };
    const auto fetch = [&](void* stream) { copy_across(got.data(), from.data(), bytes, stream); };
    const auto both = [&] {
      begin.record(main);
      begin.hold_up(beside.raw());
      send(main);
      fetch(beside.raw());
      end.record(beside.raw());
      end.hold_up(main);
    };
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"to host", [&] { send(main); }}, {"from host", [&] { fetch(main); }}, {both_ways, both}};
    for (const auto& [what, call] : calls) {
      if (stop()) break;
      CeilingRow r{what, "bytes", std::int64_t(bytes), bench::measure(call, protocol, bench::timer_at(place), stop).ms};
      if (r.ms.count > 0) r.host_bytes_per_s = double(bytes) / (r.ms.median / 1e3);
      rows.push_back(std::move(r));
    }
    return "";
  } catch (const Error& e) {
    if (e.at.code != Code::out_of_memory) throw;
    return e.what();
  }
}

}  // namespace headroom::studies
