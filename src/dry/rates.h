// Rates — what a card and its host were measured to take, from which the clock (clock.h) makes times. Recorded of the H200 (rates.cpp); another
// card's are these, scaled by its ceilings.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "dry/record.h"

namespace headroom::dry {

// A product's time: tiles come in waves over the units, a wave takes as long as one tile, and nothing is faster than memory. Libraries have several
// sizes of tiles, and split sums into pieces where tiles leave units idle: the best of these counts.
struct ProductRate {
  double large = 0, middle = 0, small = 0, least = 0;  // flops/s of full waves, by tiles: 256 x 128, 128 x 128, 128 x 64, 64 x 64
  double start_s = 0, wave_s = 0, split_s = 0;         // for a product, for each wave, for adding the pieces of a sum
  double data = 1, weights = 1;                        // how much longer gradients take: neither side transposed, the right one
  double odd = 1;                                      // how much longer a product takes that has an odd side in memory
  double most = 0;                                     // flops/s that a step's products do not pass; 0: not known
};

// Attention's time is its operations at a rate of the head dimension. A causal mask leaves more than half of them: tiles on the diagonal are whole.
struct AttentionRate {
  double start_s = 0, start_backward_s = 0;
  double left = 0.5, left_length = 0;  // left + left_length / len
  double of_64 = 0, of_64_backward = 0, of_128 = 0, of_128_backward = 0, of_256 = 0, of_256_backward = 0;
};

// Kernels that read and write: at least so long, then bytes from the cache or from memory.
struct KernelRate {
  double start_s = 0, cached_bytes_per_s = 0, bytes_per_s = 0;
};

// Kernels that go by elements whose operands lie differently in memory: what an element takes, more where it is converted and for each dimension whose
// size is divided by; their bytes, the sectors of the second-level cache, and lines that are looked up. All of them hide each other a little.
struct TouchedRate {
  double start_s = 0;
  double element_s = 0, converted_s = 0, dimension_s = 0;
  double bytes_per_s = 0, sector_bytes_per_s = 0, lines_per_s = 0;
  double reread_cache_bytes = 0, reread_bytes_per_s = 0;  // where more than that goes by, a sector comes from memory again
};

// The host: what it takes for each thing that a dry run counts. A call of Python, an operation, a node and a block of memory cost by themselves,
// whether or not they end in work for the card.
struct HostRate {
  double function_s = 0, builtin_s = 0;  // called by Python: one of its own functions, one of C
  double operation_s = 0, node_s = 0;    // a call of PyTorch's dispatcher; a node of autograd, with the engine around it
  double block_s = 0;                    // a block of PyTorch's allocator, taken and given back
  double byte_s = 0;                     // for a tensor of the host: its pages, and random numbers or a copy in them
  double launch_s = 0, generated_s = 0, convolution_s = 0, product_s = 0, attention_s = 0,
         copy_s = 0;  // for work: the call that gives it to the card
  double wait_s = 0, graph_s = 0;
};
double seconds_of(const HostWork&, const HostRate&);
// Seconds of the call that gives the card a kernel or a product; its name is a kernel's, or that of the function that was called.
double call_of_kernel(std::string_view name, const HostRate&);
double call_of_product(std::string_view name, const HostRate&);

struct Rates {
  std::string source;
  // What was seen beside what was told, at least and at most: of the card's own work, and of the host's.
  double low = 1, high = 1, host_low = 1, host_high = 1;
  int units = 132;
  ProductRate half, brain, tf32, single, eight, twice;      // fp16, bf16, tf32, FP32, 8 bits, FP64
  AttentionRate cudnn, flash, efficient, efficient_single;  // PyTorch's memory-efficient kernels, in FP32 too
  KernelRate pointwise, strided, converting, reducing, norm, norm_backward, norm_weights, softmax, lists, joining, other;
  KernelRate generated, generated_sums;                    // by torch.compile
  KernelRate single_channels;                              // for convolutions with one channel in each group
  double strided_per_s = 0, strided_converting_per_s = 0;  // elements that are not neighbours in memory, where their strides are not known
  TouchedRate touched;                                     // where they are
  double looking_up = 1;  // how much longer than an H200's kernels take that look up a place for each element
  double reducing_block_s = 0, reducing_narrow_block_s = 0;  // of the whole card for a block of a sum: of 512 threads, of fewer
  double reduced_part_s = 0;                                 // for what another block found of a result
  double long_row_bytes = 0, long_row_bytes_per_s = 0;       // for a softmax whose rows are longer than a block holds
  double cache_bytes = 0;                                    // what a kernel finds in the second-level cache
  double unit_bytes_per_s = 0;                               // what one unit moves: a small grid leaves the others idle
  double gap_s = 0;                                          // between two kernels of a stream
  double link_bytes_per_s = 0;                               // for collectives
  double collective_s = 0;                                   // the least that a collective takes
  double host_bytes_per_s = 0;                               // for copies to and from the host
  double host_copy_s = 0;                                    // the least that such a copy takes
  HostRate host;
  // Where a record has no counts of the host: a launch, with the Python and C++ around it; a wait for the card, with what programs do around one.
  double bare_launch_s = 0, bare_wait_s = 0;
  double bare_low = 1, bare_high = 1;  // for such a host
};

void scale_host(Rates&, double by);  // every time of the host takes so many times as long
Rates rates_of_h200();               // with PyTorch 2.11 and CUDA 13.0, 2026-11-24

}  // namespace headroom::dry
