#include "studies/attention/row.h"

namespace headroom::studies {

RowObject samples_json(const AttentionRow& r) {
  const auto stats = [](const bench::Stats& s) {
    return RowObject{{"count", s.count},      {"mean_ms", s.mean}, {"std_ms", s.std},
                     {"median_ms", s.median}, {"min_ms", s.min},   {"drift", s.drift}};
  };
  return {{"forward", stats(r.fwd)}, {"backward", stats(r.bwd)}};
}

}  // namespace headroom::studies
