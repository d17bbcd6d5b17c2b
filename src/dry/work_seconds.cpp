#include "dry/work_seconds.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "dry/cuda_types.h"

namespace headroom::dry {

namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// The whole numbers among a mangled template's arguments behind `after`: "Li64E" is 64, "Lb1E" is 1.
std::vector<int> numbers_behind(std::string_view name, std::string_view after) {
  std::vector<int> out;
  auto at = name.find(after);
  if (at == name.npos) return out;
  for (at += after.size(); at + 2 < name.size(); ++at) {
    if (name[at] != 'L' || (name[at + 1] != 'i' && name[at + 1] != 'b' && name[at + 1] != 'j' && name[at + 1] != 'm')) continue;
    int value = 0;
    auto digit = at + 2;
    for (; digit < name.size() && std::isdigit(static_cast<unsigned char>(name[digit])); ++digit) value = value * 10 + (name[digit] - '0');
    if (digit > at + 2) out.push_back(value);
    at = digit;
  }
  return out;
}

double attention_flops(double batch_heads, double len_q, double len_k, double dim, bool backward) {
  return (backward ? 10 : 4) * batch_heads * len_q * len_k * dim;
}

// `flops`: without a mask. What a mask of positions leaves of them is right for as many queries as keys, and an upper bound for others.
double attention_seconds(const AttentionRate& rate, double flops, double len, double dim, bool masked, bool backward) {
  const double left = masked ? std::min(1.0, rate.left + rate.left_length / std::max(len, 1.0)) : 1;
  double flops_per_s = backward ? rate.of_256_backward : rate.of_256;
  if (dim <= 128) flops_per_s = backward ? rate.of_128_backward : rate.of_128;
  if (dim <= 64) flops_per_s = backward ? rate.of_64_backward : rate.of_64;
  return (backward ? rate.start_backward_s : rate.start_s) + left * flops / flops_per_s;
}

// Bytes at the rate of the cache, of memory, or of the few units that a small grid has.
double bytes_seconds(const KernelRate& rate, double bytes, double blocks, const Rates& r) {
  const double all = bytes / (bytes > r.cache_bytes ? rate.bytes_per_s : rate.cached_bytes_per_s);
  const double units = std::min(std::max(blocks, 1.0), double(r.units));
  return rate.start_s + std::max(all, bytes / (units * r.unit_bytes_per_s));
}

const KernelRate& rate_of(std::string_view name, const Rates& r) {
  struct Kind {
    std::string_view part;
    KernelRate Rates::*rate;
  };
  constexpr std::array kinds{Kind{"triton_poi", &Rates::generated},
                             Kind{"triton_red", &Rates::norm},
                             Kind{"triton_", &Rates::generated_sums},
                             Kind{"multi_tensor_apply_kernel", &Rates::lists},
                             Kind{"CatArrayBatchedCopy_vectorized", &Rates::pointwise},
                             Kind{"CatArrayBatchedCopy", &Rates::joining},
                             Kind{"unrolled_elementwise_kernel", &Rates::converting},
                             Kind{"vectorized_elementwise_kernel", &Rates::pointwise},
                             Kind{"elementwise_kernel", &Rates::strided},
                             Kind{"reduce_kernel", &Rates::reducing},
                             Kind{"layer_norm_grad", &Rates::norm_backward},
                             Kind{"GammaBetaBackward", &Rates::norm_weights},
                             Kind{"layer_norm", &Rates::norm},
                             Kind{"softmax_warp_backward", &Rates::pointwise},
                             Kind{"fused_dropout", &Rates::pointwise},
                             Kind{"oftMax", &Rates::softmax},
                             Kind{"softmax", &Rates::softmax}};
  for (const Kind& k : kinds)
    if (has(name, k.part)) return r.*k.rate;
  return r.other;
}

// Lists of tensors that are updated together: a block takes a piece of 65 536 elements.
double bytes_of_lists(const Launch& l, std::string_view name) {
  constexpr double piece = 65536;
  const double element = has(name, "BFloat16") || has(name, "c104Half") ? 2 : 4;
  double lists = 1, moved = 1;  // tensors of each entry; read and written
  if (has(name, "FusedAdam")) {
    lists = 4;
    moved = 7;
  } else if (has(name, "FusedSgd")) {
    lists = has(name, "Momentum") ? 3 : 2;
    moved = lists * 2 - 1;
  } else if (!has(name, "LpNorm")) {
    const auto last = numbers_behind(name, "Functor");  // depth of the lists, how many are read, which is written
    lists = last.size() >= 2 ? std::clamp(last[0], 1, 5) : 1;
    moved = last.size() >= 2 ? std::clamp(last[1], 1, 5) + 1.0 : 2;
  }
  return std::min(double(l.reached_bytes) * moved / lists, double(l.grid[0]) * piece * element * moved);
}

// What a rank sends of a collective: an all-reduce is a reduction, of which each rank gets a part, and a gather of the parts. The record has a gather's
// part, and the whole of the others.
double sent_bytes(const Collective& c, std::string_view name) {
  const double others = c.ranks > 1 ? c.ranks - 1.0 : 0, bytes = double(c.bytes);
  if (has(name, "AllReduce")) return 2 * others / std::max(c.ranks, 1u) * bytes;
  if (has(name, "AllGather")) return others * bytes;
  if (has(name, "ReduceScatter")) return others / std::max(c.ranks, 1u) * bytes;
  return others > 0 ? bytes : 0;
}

double blocks_of(const Launch& l) { return double(l.grid[0]) * l.grid[1] * l.grid[2]; }

double bytes_of(const Launch& l, std::string_view name) {
  // An upper bound: addresses reach to the ends of their blocks, which a small grid does not.
  const double of_thread = has(name, "reduce_kernel") ? 4096 : 1024;
  const double threads = blocks_of(l) * l.block[0] * l.block[1] * l.block[2];
  if (has(name, "multi_tensor_apply_kernel")) return bytes_of_lists(l, name);
  if (has(name, "vectorized_gather_kernel")) return std::min(double(l.reached_bytes), threads * 16 * 2);  // 16 bytes a thread
  if (has(name, "oftMax") || has(name, "GammaBetaBackward")) return double(l.reached_bytes);              // a block walks along rows
  return std::min(double(l.reached_bytes), threads * of_thread);
}

// Operands that are not neighbours in memory cost by the element: their addresses are computed. Bytes are bounded by three operands of four bytes.
double strided_seconds(const Launch& l, std::string_view name, double& bytes, const Rates& r) {
  const auto shape = numbers_behind(name, "18elementwise_kernelI");  // threads, elements of each
  if (shape.size() < 2) return 0;
  const double elements = blocks_of(l) * shape[0] * shape[1];
  bytes = std::min(bytes, elements * 3 * 4);
  return r.strided.start_s + elements / (has(name, "15gpu_kernel_implI") ? r.strided_converting_per_s : r.strided_per_s);
}

// The same where the strides are known.
double touched_seconds(const Touched& t, std::string_view name, const Rates& r) {
  const TouchedRate& rate = r.touched;
  const auto elements = double(t.elements), bytes = double(t.bytes), sector_bytes = 32 * double(t.block_sectors);
  const double each = rate.element_s + (has(name, "15gpu_kernel_implI") ? rate.converted_s : 0) + double(t.dimensions) * rate.dimension_s;
  double of_memory = bytes > r.cache_bytes ? bytes / rate.bytes_per_s : 0;
  if (double(t.reread_bytes) > rate.reread_cache_bytes) of_memory = std::max(of_memory, sector_bytes / rate.reread_bytes_per_s);
  constexpr double overlap = 1.5;  // fitted: how far they hide each other
  double sum = 0;
  for (const double s : {elements * each, of_memory, sector_bytes / rate.sector_bytes_per_s, double(t.warp_lines) / rate.lines_per_s})
    sum += std::pow(s, overlap);
  return rate.start_s + std::pow(sum, 1 / overlap);
}

// Kernels that look up a place for each element, or add at it: what a thread takes of the whole card, measured on an H200.
double looking_up_seconds(const Launch& l, std::string_view name, double bytes, const Rates& r) {
  struct Thread {
    std::string_view part, with;
    double s;
  };
  constexpr std::array threads{Thread{"_scatter_gather_elementwise_kernel", "ReduceAdd", 85e-12},  // atomically, eight elements
                               Thread{"_scatter_gather_elementwise_kernel", "", 33e-12},
                               Thread{"index_elementwise_kernel", "flip_kernel", 9.3e-12},
                               Thread{"index_elementwise_kernel", "gpu_index_kernel", 18e-12},
                               Thread{"reflection_pad2d_out_kernel", "", 5.9e-12},
                               Thread{"upsample_bilinear2d_nhwc_out_frame", "", 9.2e-12},
                               Thread{"upsample_nearest2d_nhwc_out_frame", "", 6.4e-12},
                               Thread{"upsample_nearest2d_out_frame", "", 9.5e-12},
                               Thread{"max_pool_forward_nchw", "", 13.6e-12},
                               Thread{"avg_pool2d_out_cuda_frame_nhwc", "", 18.8e-12},
                               Thread{"avg_pool2d_out_cuda_frame", "", 12.6e-12}};
  for (const Thread& t : threads)
    if (has(name, t.part) && has(name, t.with))
      return r.other.start_s / 2 + blocks_of(l) * l.block[0] * l.block[1] * l.block[2] * t.s * r.looking_up;
  constexpr double added_s = 3.6e-12;  // of an element that index_add reads, its threads walk
  if (has(name, "indexFuncLargeIndex")) return bytes / (has(name, "BFloat16") || has(name, "c104Half") ? 2 : 4) * added_s * r.looking_up;
  return 0;
}

// Sums. A block of 512 threads has a few short rows, and takes as long as with longer ones. Where several blocks have parts of a result, the last one adds
// them up, as many at once as its threads go along.
double reduction_seconds(const Launch& l, std::string_view name, double bytes, const Rates& r) {
  const auto shape = numbers_behind(name, "13reduce_kernelI");  // threads, results of each
  if (shape.empty()) return 0;
  const double of_blocks = blocks_of(l) * (shape[0] >= 512 ? r.reducing_block_s : r.reducing_narrow_block_s);
  const double of_bytes = bytes_seconds(r.reducing, bytes, blocks_of(l), r) - r.reducing.start_s;
  constexpr double overlap = 2.5;  // fitted: how far both hide each other
  const double both = std::pow(std::pow(of_bytes, overlap) + std::pow(of_blocks, overlap), 1 / overlap);
  const double parts = l.grid[1] > 1 ? std::ceil(double(l.grid[1]) / (l.block[1] > 1 ? l.block[1] : l.block[0])) : 0;
  return r.reducing.start_s + both + parts * r.reduced_part_s;
}

}  // namespace

const ProductRate& rate_of(const Product& p, const Rates& r) {
  switch (p.type_a) {
    case cuda_type::half: return r.half;
    case cuda_type::brain: return r.brain;
    case cuda_type::e4m3:
    case cuda_type::e5m2: return r.eight;
    case cuda_type::twice: return r.twice;
    default: return p.compute == cublas_compute::fast_tf32 ? r.tf32 : r.single;
  }
}

double seconds_of(const Product& p, const Rates& r) {
  const ProductRate& rate = rate_of(p, r);
  const auto m = double(p.m), n = double(p.n), k = double(p.k), batch = double(std::max<std::int64_t>(p.batch, 1));
  struct TileSides {
    double m, n, flops_per_s;
  };
  constexpr double accumulated_bytes = 2 * 4, step_k = 64, least_k = 128;
  double best = std::numeric_limits<double>::infinity();
  for (const TileSides& t : {TileSides{256, 128, rate.large},
                             {128, 256, rate.large},
                             {128, 128, rate.middle},
                             {128, 64, rate.small},
                             {64, 128, rate.small},
                             {64, 64, rate.least}})
    for (const double pieces : {1, 2, 3, 4, 6, 8, 16}) {
      const double depth = std::ceil(k / pieces / step_k) * step_k;
      if (pieces > 1 && depth < least_k) break;
      const double waves = std::ceil(std::ceil(m / t.m) * std::ceil(n / t.n) * batch * pieces / r.units);
      const double added = pieces > 1 ? rate.split_s + m * n * batch * accumulated_bytes * pieces / r.pointwise.cached_bytes_per_s : 0;
      best = std::min(best, waves * (2 * t.m * t.n * depth * r.units / t.flops_per_s + rate.wave_s) + added);
    }
  const auto odd = [](double side) { return std::fmod(side, 2) != 0; };
  if (cuda_type::bytes_of(p.type_a) == 2 && (odd(m) || odd((p.transposed & 1) != 0 ? k : m) || odd((p.transposed & 2) != 0 ? n : k)))
    best *= rate.odd;
  best *= (p.transposed & 2) != 0 ? rate.weights : p.transposed == 0 ? rate.data : 1;
  const double bytes =
      batch * (m * k * cuda_type::bytes_of(p.type_a) + k * n * cuda_type::bytes_of(p.type_b) + m * n * cuda_type::bytes_of(p.type_c));
  return rate.start_s + std::max(best, bytes / r.pointwise.bytes_per_s);
}

double seconds_of(const Product& p, std::string_view name, const Rates& r) {
  const bool single_channels =
      p.batch > 1 && p.n == 1 && name.starts_with("cuDNN convolution");  // no tile has work: as long as memory takes
  if (!single_channels) return seconds_of(p, r);
  return bytes_seconds(r.single_channels, double(p.m) * double(p.batch) * (cuda_type::bytes_of(p.type_a) + cuda_type::bytes_of(p.type_c)),
                       r.units, r);
}

double flops_without_mask(const Attention& a) {
  return attention_flops(double(a.batch * a.heads), double(a.len_q), double(a.len_k), double(a.head_dim), a.backward != 0);
}

double seconds_of(const Attention& a, const Rates& r) {
  return attention_seconds(r.cudnn, flops_without_mask(a), double(a.len_k), double(a.head_dim), a.masked != 0, a.backward != 0);
}

double seconds_of(const Copy& c, const Rates& r) {
  const auto bytes = double(c.bytes);
  const bool host = c.way == Way::to_device || c.way == Way::to_host;
  if (host || c.way == Way::between_devices) return r.host_copy_s + bytes / (host ? r.host_bytes_per_s : r.link_bytes_per_s);
  return bytes_seconds(r.pointwise, c.way == Way::fill ? bytes : 2 * bytes, r.units, r);
}

double seconds_of(const Collective& c, std::string_view name, const Rates& r) {
  return r.collective_s + sent_bytes(c, name) / r.link_bytes_per_s;
}

LaunchWork work_of(const Launch& l, std::string_view name, const Rates& r) {
  LaunchWork w;
  double groups = double(l.grid[1]) * l.grid[2];  // grid: tiles of rows, batch, heads
  const auto attention = [&](const AttentionRate& rate, double rows, double dim, bool masked, bool backward) {
    const double flops = attention_flops(groups, rows, rows, dim, backward);
    w.part = Part::attention;
    w.flops = masked ? flops / 2 : flops;
    w.s = attention_seconds(rate, flops, rows, dim, masked, backward);
    return w;
  };
  // Head dimension, rows and columns of a tile, warps; then the kernel's flags: dropout, causal, …; with parts of the keys: causal, …, in parts.
  const auto traits = numbers_behind(name, "19Flash_kernel_traits");
  const bool sums = has(name, "flash_bwd_dot_do_o");  // sums dO·O, else turns dQ's FP32 sums into its type: a block has the rows of a tile
  if (traits.size() > 1 && (sums || has(name, "flash_bwd_convert_dq"))) {
    w.bytes = blocks_of(l) * traits[0] * traits[1] * (sums ? 2 + 2 : 4 + 2);
    w.s = bytes_seconds(r.other, w.bytes, blocks_of(l), r);
    return w;
  }
  if (traits.size() > 5) {
    const bool parts = has(name, "flash_fwd_splitkv_kernel");
    if (parts && traits.size() > 10 && traits[10] != 0) groups = l.grid[2];
    if (parts || has(name, "flash_fwd_kernel"))
      return attention(r.flash, double(l.grid[0]) * traits[1], traits[0], traits[parts ? 4 : 5] != 0, false);
    if (has(name, "flash_bwd_dq_dk_dv")) return attention(r.flash, double(l.grid[0]) * traits[2], traits[0], traits[5] != 0, true);
  }
  // "fmha_cutlassF_bf16_aligned_64x128_rf": rows and columns of a tile, which has a whole head in it; backward goes along columns.
  if (const auto at = name.find("fmha_cutlass"); at != name.npos) {
    const bool backward = name.substr(at).starts_with("fmha_cutlassB");
    int rows = 64, columns = 64;
    if (const auto tile = name.find("aligned_", at); tile != name.npos) {
      const char *from = name.data() + tile + 8, *end = name.data() + name.size();
      if (const char* x = std::from_chars(from, end, rows).ptr; x != end && *x == 'x') std::from_chars(x + 1, end, columns);
    }
    const double dim = backward ? has(name, "_k64") ? 64 : has(name, "_k128") ? 128 : 256 : columns;
    return attention(has(name, "_f32_") ? r.efficient_single : r.efficient, double(l.grid[0]) * (backward ? columns : rows), dim, true,
                     backward);
  }
  if (l.touched.elements > 0) {
    w.bytes = double(l.touched.bytes);
    w.s = touched_seconds(l.touched, name, r);
    return w;
  }
  w.bytes = bytes_of(l, name);
  const double least =
      std::max({strided_seconds(l, name, w.bytes, r), reduction_seconds(l, name, w.bytes, r), looking_up_seconds(l, name, w.bytes, r)});
  KernelRate rate = rate_of(name, r);
  if (has(name, "SoftMaxForward") && w.bytes > blocks_of(l) * r.long_row_bytes)
    rate.bytes_per_s = std::min(rate.bytes_per_s, r.long_row_bytes_per_s);
  w.s = std::max(least, bytes_seconds(rate, w.bytes, blocks_of(l), r));
  return w;
}

}  // namespace headroom::dry
