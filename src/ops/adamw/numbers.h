// Of one update, in the arithmetic of the elements.
#pragma once

namespace headroom::adamw {

struct Numbers {
  float factor, beta1, beta2, rest1, rest2, step, root2, eps, keep;
};

}  // namespace headroom::adamw
