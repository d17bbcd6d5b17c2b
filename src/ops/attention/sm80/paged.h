// Where keys and values lie in pages, as kernels read it.
#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/sm80/blocks.h"

namespace headroom::attention::blocks {

inline Paged paged_of(const Problem& p, const Extras& with) {
  return {.table = p.page ? with.pages.as<int>() : nullptr,
          .of_sequence = int(p.pages_of_sequence()),
          .size = int(p.page),
          .count = int(p.pages)};
}

}  // namespace headroom::attention::blocks
