#include "studies/device/ceilings.h"

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/random.h"
#include "base/threads.h"
#include "memory/block.h"
#include "ops/matmul/matmul.h"
#include "studies/device/ceilings_gpu.h"

namespace headroom::studies {

namespace {

constexpr std::int64_t copied_bytes = 256ll << 20;  // far past any cache
constexpr std::int64_t matmul_n = 2048;             // its three FP32 matrices are 48 MiB

CeilingRow measure_copy(Threads& threads, const bench::Protocol& protocol, const std::function<bool()>& stop) {
  const Block from(copied_bytes), to(copied_bytes);
  constexpr std::int64_t piece = 4 << 20;
  const auto share = [&](auto&& body) { threads.share(copied_bytes / piece, [&](std::int64_t n, int) { body(std::size_t(n * piece)); }); };
  share([&](std::size_t at) { std::memset(static_cast<char*>(from.data()) + at, 1, piece); });
  const auto copy = [&] {
    share([&](std::size_t at) { std::memcpy(static_cast<char*>(to.data()) + at, static_cast<const char*>(from.data()) + at, piece); });
  };
  CeilingRow r{"copy", "bytes", copied_bytes, bench::measure(copy, protocol, bench::host_timer(), stop).ms};
  if (r.ms.count > 0) r.copy_bytes_per_s = 2.0 * copied_bytes / (r.ms.min / 1e3);
  return r;
}

CeilingRow measure_matmul(DType dtype, const Device& device, Threads& threads, const bench::Protocol& protocol,
                          const std::function<bool()>& stop) {
  const auto walk = [&](Context& ctx, const std::function<void(const matmul::Product&)>& run) {
    const Shape square{matmul_n, matmul_n};
    const matmul::Product p{ctx.arena.make("a", dtype, square), ctx.arena.make("b", dtype, square), ctx.arena.make("c", dtype, square)};
    run(p);
  };
  Arena dry;
  Context planned{.arena = dry, .device = device, .dry_workers = threads.count()};
  walk(planned, [&](const matmul::Product& p) { matmul::multiply(p, planned); });
  const Block block(dry.peak());
  Arena arena(block.data(), block.bytes());
  Context ctx{.arena = arena, .device = device, .threads = &threads};
  CeilingRow r{"matmul", std::string(name_of(dtype)), matmul_n, {}};
  walk(ctx, [&](const matmul::Product& p) {
    with_float(dtype, [&]<class T>() {
      const Random random{1};
      threads.share(2 * matmul_n, [&](std::int64_t row, int) {
        T* out = (row < matmul_n ? p.a : p.b).values.template as<T>() + row % matmul_n * matmul_n;
        for (std::int64_t i = 0; i < matmul_n; ++i) out[i] = narrow<T>(random.normal(std::uint64_t(row * matmul_n + i)));
      });
    });
    r.ms = bench::measure(
               [&] {
                 const auto scratch = arena.scope();
                 matmul::multiply(p, ctx);
               },
               protocol, bench::host_timer(), stop)
               .ms;
    if (r.ms.count > 0) r.flops_per_s = matmul::flops(p) / (r.ms.min / 1e3);
  });
  return r;
}

}  // namespace

Ceilings best_of(const std::vector<CeilingRow>& rows) {
  Ceilings c;
  for (const CeilingRow& r : rows) {
    if (r.host_bytes_per_s) continue;
    double& best = r.what == "copy"    ? c.copy_bytes_per_s
                   : r.dtype == "tf32" ? c.tf32_flops
                   : r.dtype == "bf16" ? c.bf16_flops
                   : r.dtype == "fp16" ? c.fp16_flops
                   : r.dtype == "fp8"  ? c.fp8_flops
                                       : c.fp32_flops;
    best = std::max(best, (r.what == "copy" ? r.copy_bytes_per_s : r.flops_per_s).value_or(0));
  }
  return c;
}

std::optional<double> host_link_of(const std::vector<CeilingRow>& rows) {
  std::optional<double> slower;
  for (const CeilingRow& r : rows)
    if (r.host_bytes_per_s && r.what != both_ways) slower = std::min(slower.value_or(*r.host_bytes_per_s), *r.host_bytes_per_s);
  return slower;
}

MeasuredCeilings measure_ceilings(const Device& device, const bench::Protocol& protocol, const std::function<bool()>& stop) {
  MeasuredCeilings m;
  if (device.kind == DeviceKind::cuda) {
    m.rows = measure_on_gpu(device, protocol, stop);
    m.how = "the median of the samples";
    if (!stop()) m.without_host_link = measure_host_link(device, protocol, stop, m.rows);
  } else {
    Threads threads;
    m.rows.push_back(measure_copy(threads, protocol, stop));
    for (const DType dtype : {DType::f32, DType::bf16})
      if (!stop()) m.rows.push_back(measure_matmul(dtype, device, threads, protocol, stop));
    m.how = "the fastest of the samples";
    m.without_host_link = "a CPU computes in host memory itself";
  }
  std::erase_if(m.rows, [](const CeilingRow& r) { return r.ms.count == 0; });  // asked to stop before its first call
  for (CeilingRow& r : m.rows) {
    r.steps = r.ms.count;
    if (r.ms.count > 0) {
      r.time_ms = r.ms.mean;
      r.time_ms_std = r.ms.spread();
    }
  }
  m.ceilings = best_of(m.rows);
  m.ceilings.source = "measured";
  return m;
}

}  // namespace headroom::studies
