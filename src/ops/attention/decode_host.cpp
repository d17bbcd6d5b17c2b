// flash_decode — a few new positions against a cache of keys and values, host side: what it serves, how its work is dealt, scratch.
//
// Workspace: for each block of threads two partial outputs (FP32), each with its maxima, sums and the word that says that it is there.
// Backward is flash_sm90's or flash_sm80's: they need O and LSE alone, whoever made them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <atomic>

#include "base/random.h"
#include "gpu/architecture.h"
#include "ops/attention/decode.h"
#include "ops/attention/impl.h"
#include "ops/attention/on_stream.h"

namespace headroom::attention {

namespace {

using namespace decode;

constexpr std::int64_t most_positions = 16, most_rows_beside_hopper = 64;

int dim_of(const Problem& p) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
int row_tiles_of(const Problem& p) {
  const std::int64_t rows = p.group() * p.len_q;
  return rows <= 16 ? 1 : rows <= 32 ? 2 : 4;
}
int bytes_of(int dim) { return dim == 64 ? shared_bytes<64> : dim == 128 ? shared_bytes<128> : shared_bytes<256>; }

struct Deal {
  int cluster;
  std::int64_t clusters, steps;  // steps: of one unit, where all sequences are alike
};

Deal deal_of(const Problem& p, const Device& device, std::int64_t units) {
  constexpr int kept_by_cuda = 1024;  // of shared memory, a block
  const int dim = dim_of(p),
            at_once = dim == 256
                          ? 1
                          : std::clamp((architecture_of(device.sm).shared_bytes + kept_by_cuda) / (bytes_of(dim) + kept_by_cuda), 1, 2);
  std::int64_t keys = p.len_k;
  if (p.documents == 0 && p.len_q > 0) {
    const Band band = p.band();
    keys = std::max<std::int64_t>(band.last(p.len_q - 1) - band.first(0), 0);
  }
  int cluster = 1, most = 0;
  if (const char* lab = std::getenv("DECODE_LAB")) std::sscanf(lab, "%d,%d", &cluster, &most);
  if (device.sm != 90) cluster = 1;
  const std::int64_t steps = std::max<std::int64_t>(ceil_div(keys, step_keys * cluster), 1), all = units * steps;
  check(all < (1ll << 31), Code::unsupported, "flash_decode: {} steps of {} keys are too many for one launch", all, step_keys * cluster);
  return {cluster, std::min<std::int64_t>(all, most ? most : std::int64_t(device.units) * at_once / cluster), steps};
}

Strided strided(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }
void check_reached(const char* name, const Tensor& t) {  // 16 bytes at a time
  check(reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0, Code::unsupported,
        "flash_decode: {} must start on 16 bytes; copy it, or ask for flash_sm80", name);
  for (int i = 0; i < 3; ++i)
    check(t.shape[i] <= 1 || t.stride[std::size_t(i)] % 8 == 0, Code::unsupported,
          "flash_decode: {} has stride {} in dimension {}, it must be a multiple of 8 elements; copy it, or ask for flash_sm80", name,
          t.stride[std::size_t(i)], i);
}

template <class T, int dim>
void start_tiles(int tiles, const Args& a, cudaStream_t stream) {
  switch (tiles) {
    case 1: return start<T, dim, 1>(a, stream);
    case 2: return start<T, dim, 2>(a, stream);
    default: return start<T, dim, 4>(a, stream);
  }
}
template <class T>
void start_dim(int dim, int tiles, const Args& a, cudaStream_t stream) {
  switch (dim) {
    case 64: return start_tiles<T, 64>(tiles, a, stream);
    case 128: return start_tiles<T, 128>(tiles, a, stream);
    default: return start_tiles<T, 256>(tiles, a, stream);
  }
}

std::uint64_t next_number() {  // of a launch; never 0
  static std::atomic<std::uint64_t> launches{0};
  const std::uint64_t number = Random{.seed = 0x6465636f6465}.bits(launches++);
  return number ? number : 1;
}

}  // namespace

Support decode_supports(const Problem& p, const Device& device, Pass pass) {
  if (pass == Pass::backward) {
    const Support forward = decode_supports(p, device, Pass::forward);
    return !forward || sm90_supports(p, device, pass) ? forward : sm80_supports(p, device, pass);
  }
  if (device.kind != DeviceKind::cuda) return Support::no("needs a CUDA device");
  if (device.sm < 80) return Support::no(fmt::format("needs sm_80 or newer, this is sm_{}", device.sm));
  if (p.precision.dtype != DType::bf16 && p.precision.dtype != DType::f16)
    return Support::no(fmt::format("needs bf16 or fp16, {} was asked", name_of(p.precision)));
  if (p.len_q > most_positions) return Support::no(fmt::format("serves up to {} new positions, there are {}", most_positions, p.len_q));
  if (p.len_k > longest_in_32_bits) return Support::no("serves lengths up to 2^29");
  const std::int64_t dim = std::max(p.head_dim, p.value_dim()), rows = p.group() * p.len_q;
  for (const std::int64_t one : {p.head_dim, p.value_dim()})
    if (one % 8 != 0) return Support::no(fmt::format("needs head_dim to be a multiple of 8 (16 bytes), it is {}", one));
  if (dim > 256) return Support::no(fmt::format("serves head_dim up to 256, it is {}", dim));
  if (p.scale_or_default() <= 0) return Support::no(fmt::format("needs a positive scale, it is {}", p.scale_or_default()));
  if (bytes_of(dim_of(p)) > architecture_of(device.sm).shared_bytes)
    return Support::no(fmt::format("needs {} bytes of shared memory a block, this card has {}", bytes_of(dim_of(p)),
                                   architecture_of(device.sm).shared_bytes));
  if (rows > most_rows_beside_hopper && sm90_supports(p, device, pass))
    return Support::no(fmt::format("leaves {} rows for each key head to flash_sm90", rows));
  return {};
}

void decode_forward(const Problem& p, const Forward& t, Context& ctx) {
  const auto op = ctx.note("attention.flash_decode.forward", p.precision, forward_cost(p), Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  const int dim = dim_of(p), tiles = row_tiles_of(p);
  const std::int64_t rows = p.group() * p.len_q, row_blocks = ceil_div(rows, 16 * tiles), units = p.batch * p.kv_heads * row_blocks;
  const Deal deal = deal_of(p, ctx.device, units);
  const std::int64_t kept_rows = std::min<std::int64_t>(rows, 16 * tiles);
  const Tensor words = ctx.arena.make("attention.partial_o", DType::f32, {2 * deal.clusters, kept_rows, dim / 2 + 1, 4});
  if (ctx.dry()) return;
  for (auto [name, tensor] : {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}, {"o", &t.o}}) check_reached(name, *tensor);
  Args a{.q = strided(t.q),
         .k = strided(t.k),
         .v = strided(t.v),
         .o = strided(t.o),
         .lse = t.lse.as<float>(),
         .sink = p.sink ? t.with.sink.as<float>() : nullptr,
         .paged = {.table = p.page ? t.with.pages.as<int>() : nullptr,
                   .of_sequence = int(p.pages_of_sequence()),
                   .size = int(p.page),
                   .count = int(p.pages)},
         .by_page = Divisor::of(unsigned(std::max<std::int64_t>(p.page, 1))),
         .band = in_32_bits(p.band()),
         .documents = {},
         .batch = int(p.batch),
         .heads = int(p.heads),
         .kv_heads = int(p.kv_heads),
         .group = int(p.group()),
         .rows = int(rows),
         .row_blocks = int(row_blocks),
         .head_dim = int(p.head_dim),
         .dim_v = int(p.value_dim()),
         .scale_log2 = (p.softcap == 0 ? p.scale_or_default() : p.softcap) * 1.44269504f,
         .to_cap = p.softcap == 0 ? 0 : p.scale_or_default() / p.softcap,
         .cluster = deal.cluster,
         .clusters = int(deal.clusters),
         .span = step_keys * deal.cluster,
         .by_span = Divisor::of(unsigned(step_keys * deal.cluster)),
         .by_units = Divisor::of(unsigned(p.kv_heads * row_blocks)),
         .by_steps = Divisor::of(unsigned(deal.steps)),
         .by_clusters = Divisor::of(unsigned(deal.clusters)),
         .by_group = Divisor::of(unsigned(p.group())),
         .by_row_blocks = Divisor::of(unsigned(row_blocks)),
         .early = ctx.device.sm >= 90 && std::getenv("DECODE_EARLY"),
         .words = words.as<Word>(),
         .kept_rows = int(kept_rows),
         .number = next_number()};
  if (p.documents) a.documents = documents_args(p, t.with, {});
  if (p.precision.dtype == DType::bf16)
    start_dim<__nv_bfloat16>(dim, tiles, a, cuda_stream(ctx.stream));
  else
    start_dim<__half>(dim, tiles, a, cuda_stream(ctx.stream));
}

void decode_backward(const Problem& p, const Backward& t, Context& ctx) {
  return sm90_supports(p, ctx.device, Pass::backward) ? sm90_backward(p, t, ctx) : sm80_backward(p, t, ctx);
}

}  // namespace headroom::attention
