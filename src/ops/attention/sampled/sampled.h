// The FP64 oracle for some rows and keys of some heads: what a sweep can afford beside the measurement.
//
// A few (batch, key head) pairs are picked; for each, O and dQ are formed in FP64 for up to 64 rows and dK and dV for up to 64 keys.
// A key's gradients need the softmax of every row, 6·len_q·len_k·dim FLOPs per query head: at least one key head's are spent, and
// small problems are judged whole. A caller with tensors on a device may form these sums there (sampled_rows.h).
//
// An error is natural when it is below what an honest kernel of the problem's precision may make: a few roundings of the storage
// type plus the FP32 sums', each times the sum of magnitudes that the element was formed from.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "ops/attention/attention.h"
#include "ops/attention/documents/documents.h"

namespace headroom::attention {

struct Judged {
  double max_error = 0;  // largest |result − oracle|
  double worst = 0;      // largest error over what is natural; above 1 the result is wrong, NaN counts as infinity
};
struct Verdict {
  Judged o, lse, dq, dk, dv;
};

// One head of a tensor, [len, dim], widened. A caller with tensors outside the host's memory says how they are read.
using ReadHead = std::function<std::vector<double>(const Tensor&, std::int64_t batch, std::int64_t head)>;
std::vector<double> head_in_memory(const Tensor&, std::int64_t batch, std::int64_t head);

struct RowSums {                               // for every query row of a head
  std::vector<double> lse, delta, delta_size;  // Δ = Σ p·dp; delta_size is the sum of what it is formed from
};
using SumRows = std::function<RowSums(const Problem&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o,
                                      std::int64_t batch, std::int64_t head)>;

class SampledOracle {
 public:
  struct Work;  // the work of one key head
  // Reads q, k, v and, when gradients are wanted, d_o; forgets them afterwards.
  SampledOracle(const Problem&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, Threads&, std::uint64_t seed,
                ReadHead read = head_in_memory, const SumRows& sum_rows = nullptr,  // nullptr: on the CPU
                const Extras& with = {});                                           // in the host's memory
  ~SampledOracle();
  // Gradients without data are not judged; nor is a sink's, which sums over every row of every batch.
  Verdict judge(const Tensor& o, const Tensor& lse, const Tensor& dq, const Tensor& dk, const Tensor& dv) const;

 private:
  Problem problem_;
  HostLists lists_;
  Extras with_;
  ReadHead read_;
  double storage_budget_, sums_budget_, floor_;
  std::vector<std::unique_ptr<Work>> work_;
};

}  // namespace headroom::attention
