// flash_decode, between its host side (decode_host.cpp) and its kernels (decode.cu).
//
// All pairs of a step of keys and a unit (sequence, key head, block of rows) are one line; every block of threads walks an even run of it,
// whatever the sequences' lengths. A unit that several blocks share is added up by the one that arrives last, in the order of the line.
#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention/documents.h"
#include "ops/attention/sm80/blocks.h"

namespace headroom::attention::decode {

using blocks::Paged;
using blocks::Strided;

// n / d for n below 2^31 by a multiplication: of page lengths that are no powers of two.
struct Divisor {
  unsigned multiplier = 0;
  int shift = 0;
  static Divisor of(unsigned d) {
    int bits = 0;
    while (1ull << bits < d) ++bits;
    return {unsigned((1ull << (31 + bits)) / d + 1), 31 + bits};
  }
  HEADROOM_HD unsigned of_number(unsigned n) const { return unsigned((unsigned long long)n * multiplier >> shift); }
};

struct Args {
  Strided q, k, v, o;  // paged: k and v are [pages, page, kv_heads, dim]
  float* lse;
  const float* sink;  // [heads]; null: none
  Paged paged;
  Divisor by_page;
  BandOf<int> band;         // without documents
  DocumentsArgs documents;  // count 0: none; its lists are not used
  int batch, heads, kv_heads, group, rows, row_blocks, head_dim, dim_v;
  float scale_log2;  // softmax scale · log2(e); capped: cap · log2(e)
  float to_cap;      // capped: softmax scale / cap; else 0
  float* partial_o;  // two for each block [16 · tiles, dim]: of the unit that began before its run, and of the one that goes on after it
  float2* partial_stats;  // maximum and sum of each of their rows
  // Per part: the launch's number once it is written. Nothing has to be zeroed before: memory that nobody wrote holds this number with a chance of 2⁻⁶⁴.
  unsigned long long* arrivals;
  unsigned long long number;
};

constexpr int warps = 4, step_keys = 16 * warps;  // of a block of threads; keys that it walks at once
constexpr int row_tiles[] = {1, 2, 4};            // of 16 rows, in a block of rows
constexpr int dims[] = {64, 128, 256};

template <int dim>
constexpr int stages = dim == 64 ? 6 : 3;
template <int dim>
constexpr int shared_bytes =
    stages<dim>* step_keys* dim * 4 /* K and V */ + 2 * 16 * dim * 4 /* sums of two warps */ + step_keys * 8 /* maxima and sums */ + 16;

template <class T, int dim, int tiles>
void start(const Args&, int blocks, cudaStream_t);

}  // namespace headroom::attention::decode
