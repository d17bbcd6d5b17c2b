#include "base/convert.h"
#include "ops/rank_sum/rank_sum.h"

namespace headroom::rank_sum {

void add_on_cpu(const Parts& p, const Sum& s) {
  with_float(p.type, [&]<class T>() {
    const auto part = [&](int r) { return r == p.rank ? static_cast<const T*>(p.own) : static_cast<const T*>(p.others) + r * p.apart; };
    for (std::int64_t i = 0; i < p.count; ++i) {
      float sum = widen(part(0)[i]);
      for (int r = 1; r < p.ranks; ++r) sum += widen(part(r)[i]);
      const T rounded = narrow<T>(sum / float(s.divisor));
      static_cast<T*>(s.to)[i] = rounded;
      if (s.also) static_cast<T*>(s.also)[i] = rounded;
    }
  });
}

}  // namespace headroom::rank_sum
