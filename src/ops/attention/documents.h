// Documents packed into one row of the batch. Where they begin is known only when a kernel runs, so the keys that each row sees, and the rows that
// see each key, are listed first, in scratch; a Band then looks its answers up (Reach::listed), and kernels walk them like any other mask.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

struct DocumentsArgs {
  const std::int32_t *cu_q, *cu_k;  // [batch, count + 1]
  std::int32_t count, len_q, len_k, batch;
  std::int32_t low, high;  // of a row, counted from its own position in its document
  bool from_the_end;       // the last query's position is the last key's
  Run *keys_of, *rows_of;  // [batch, len_q], [batch, len_k]

  static HEADROOM_HD std::int32_t between(std::int64_t x, std::int32_t end) { return x < 0 ? 0 : x > end ? end : std::int32_t(x); }

  struct One {  // a document, and whether there is one
    bool exists;
    std::int32_t q, len_q, k, len_k;
  };
  // The document whose part of `cu` holds `at`: the last that begins there or before, as long as it does not end before.
  HEADROOM_HD One holding(const std::int32_t* cu, std::int32_t at, std::int32_t row) const {
    const std::int32_t *q = cu_q + std::int64_t(row) * (count + 1), *k = cu_k + std::int64_t(row) * (count + 1);
    std::int32_t low_end = 0, high_end = count + 1;  // how many begin at `at` or before
    while (low_end < high_end) {
      const std::int32_t middle = (low_end + high_end) / 2;
      if (cu[std::int64_t(row) * (count + 1) + middle] <= at)
        low_end = middle + 1;
      else
        high_end = middle;
    }
    const std::int32_t d = low_end - 1;
    const auto in_q = [&](std::int32_t x) { return between(x, len_q); };
    const auto in_k = [&](std::int32_t x) { return between(x, len_k); };
    if (d < 0) return {false, 0, 0, 0, 0};
    if (d == count) return {false, in_q(q[count]), 0, in_k(k[count]), 0};
    const std::int32_t q0 = in_q(q[d]), k0 = in_k(k[d]), q1 = in_q(q[d + 1]), k1 = in_k(k[d + 1]);
    return {true, q0, q1 > q0 ? q1 - q0 : 0, k0, k1 > k0 ? k1 - k0 : 0};
  }
  HEADROOM_HD Run keys_of_row(std::int32_t row, std::int32_t i) const {
    const One d = holding(cu_q, i, row);
    if (!d.exists) return {d.k, d.k};
    const std::int64_t position = i - d.q + (from_the_end ? d.len_k - d.len_q : 0);
    return {d.k + between(position + low, d.len_k), d.k + between(position + high + 1, d.len_k)};
  }
  HEADROOM_HD Run rows_of_key(std::int32_t row, std::int32_t j) const {
    const One d = holding(cu_k, j, row);
    if (!d.exists) return {d.q, d.q};
    const std::int64_t position = j - d.k - (from_the_end ? d.len_k - d.len_q : 0);
    return {d.q + between(position - high, d.len_q), d.q + between(position - low + 1, d.len_q)};
  }
};

struct Lists {              // nothing where a problem has no documents
  Tensor keys_of, rows_of;  // i32 [batch, len_q, 2], [batch, len_k, 2]
};
Lists make_lists(const Problem&, Context&);  // from the arena, unfilled
DocumentsArgs documents_args(const Problem&, const Extras&, const Lists&);
void list_documents(const Problem&, const Extras&, const Lists&, Context&);         // fills them on the CPU
void list_documents_on_gpu(const Problem&, const Extras&, const Lists&, Context&,  // or on the context's stream,
                           int* zero = nullptr);                                      // beside a counter that is set to 0

// The band of one row of the batch; and of them all, for kernels, which know how to go on to the next.
Band band_of(const Problem&, const Lists&, std::int64_t batch);

// For code on the host that has no arena: lists of its own.
class HostLists {
 public:
  HostLists(const Problem&, const Extras&);  // cu_q and cu_k lie in the host's memory
  Band band(std::int64_t batch) const { return band_of(problem_, lists_, batch); }
  double visible() const;  // pairs that see each other, in all rows of the batch and one head

 private:
  Problem problem_;
  std::vector<Run> runs_;
  Lists lists_;
};

}  // namespace headroom::attention
