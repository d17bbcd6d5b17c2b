// A sequence's tokens shared out over ranks in stripes. Of 2·N equal stripes rank r has number r and number 2·N − 1 − r, so that causal
// work is even. Rows of tokens lie either in order, [batch, tokens], or by rank, [ranks, batch, 2, tokens of a stripe]: as a gather of
// every rank's own brings them, and as an exchange takes them.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

#ifdef __CUDACC__
#define HEADROOM_STRIPES_HD __host__ __device__
#else
#define HEADROOM_STRIPES_HD
#endif

namespace headroom::stripes {

struct Stripes {
  std::int64_t batch = 1, ranks = 1;
  std::int64_t rows = 1;  // tokens of one stripe

  std::int64_t len() const { return 2 * ranks * rows; }
  std::int64_t rows_of_rank() const { return batch * 2 * rows; }
  // The number of a rank's first or second stripe.
  std::int64_t number(int rank, int which) const { return which == 0 ? rank : 2 * ranks - 1 - rank; }
  std::int64_t first_token(int rank, int which) const { return number(rank, which) * rows; }

  HEADROOM_STRIPES_HD std::int64_t by_rank(std::int64_t sequence, std::int64_t token) const {  // the row where it lies
    const std::int64_t stripe = token / rows, rank = stripe < ranks ? stripe : 2 * ranks - 1 - stripe;
    return ((rank * batch + sequence) * 2 + (stripe < ranks ? 0 : 1)) * rows + token % rows;
  }
};

// Tensors are matrices of rows; `from` and `to` of pack and `to` of add_up may have gaps between their rows, the others are contiguous.
void pack(const Tensor& from, const Tensor& to, Context&);                         // to = from, of one type
void in_order(const Stripes&, const Tensor& by_rank, const Tensor& to, Context&);  // one type of 2 or 4 bytes
// by_rank FP32 = `first`, the rows of as many first tokens of every sequence, and 0 for those behind them; or they are added.
void add_by_rank(const Stripes&, const Tensor& first, const Tensor& by_rank, Gradient, Context&);
void add_up(const Tensor& parts, int count, const Tensor& to,
            Context&);  // to = the FP32 parts, one below the other, added in order and rounded once

}  // namespace headroom::stripes
