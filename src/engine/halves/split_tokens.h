// TokenSplit — attention of ranks that each hold a part of every sequence's tokens (context parallel). Of 2·N stripes of a sequence rank r
// has two, r and 2·N − 1 − r, so that causal work is even. The keys and values of all ranks are gathered; the queries of a stripe see
// those up to its own end, which is attention with a causal mask over the beginning of a sequence. Backward gathers them again; each stripe's
// dK and dV, as its kernel rounded them, are added in FP32 where their rank looks for them, exchanged, added in rank order, and rounded once.
//
// Every rank takes the same bytes from the arena, in the same order: for scratch, those of the rank that needs most.
#pragma once
#include <array>

#include "dist/comm.h"
#include "ops/attention/attention.h"
#include "ops/stripes/stripes.h"

namespace headroom::engine {

class TokenSplit {
 public:
  // whole: of whole sequences.
  TokenSplit(const attention::Variant&, const attention::Problem& whole, dist::Comm&, const Context&);

  const stripes::Stripes& stripes() const { return stripes_; }
  std::int64_t first_token(int which) const { return stripes_.first_token(comm_.rank(), which); }  // this rank's first or second stripe

  attention::Saved make_saved(Context&) const;
  // Views of this rank's tokens; LSE is [2, batch, heads, tokens of a stripe]. dK and dV lie side by side in one matrix.
  void forward(const attention::Forward&, int layer, Context&) const;
  void backward(const attention::Backward&, int layer, Context&) const;

  void gather_losses(const Tensor& mine, const Tensor& in_order, Context&) const;  // FP32, of this rank's tokens; of all, in order

 private:
  using Others = std::array<std::array<std::size_t, 2>, 2>;  // by pass and stripe: scratch that only another rank's stripe takes
  Others scratch_of_others(const Context&) const;
  attention::Problem stripe_of(int rank, int which) const;
  attention::Problem stripe(int which) const { return stripe_of(comm_.rank(), which); }
  std::int64_t longest(int which) const { return (which == 0 ? 1 : 2) * stripes_.ranks * stripes_.rows; }  // keys that any rank's sees
  Tensor rows_of(const Tensor& mine, int which) const;
  Tensor lse_of(const Tensor& mine, int which) const;
  attention::Saved saved_of(const attention::Saved&, int which) const;
  Tensor keys_of(const Tensor& kv, std::int64_t from, std::int64_t seen, int column) const;
  Tensor gather_keys(const Tensor& k, const Tensor& v, int layer, Context&) const;
  void take_as_others(attention::Pass, int which, Context&) const;

  const attention::Variant& variant_;
  attention::Problem whole_;
  dist::Comm& comm_;
  stripes::Stripes stripes_;
  std::int64_t kv_width_;  // width of the keys alone, and of the values alone
  Others others_;
};

}  // namespace headroom::engine
