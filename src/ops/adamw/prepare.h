// The scalar part of an update, the same code on CPU and GPU: from the sum of the squares of all gradients to the numbers
// that the elements use, and the state's next values.
#pragma once
#include <cmath>

#include "base/convert.h"
#include "ops/adamw/moments.h"

namespace headroom::adamw {

HEADROOM_CONVERT Numbers prepare(double* s, double sum, const Hyper& h) {
  const double scale = s[loss_scale];
  const bool good = std::isfinite(sum);
  s[grad_norm] = std::sqrt(sum) / scale;
  s[skipped] = good ? 0 : 1;
  s[factor] = good ? (h.clip > 0 && s[grad_norm] > h.clip ? h.clip / s[grad_norm] : 1.0) / scale : 0.0;
  if (good) s[updates] += 1;
  if (h.dynamic_scale) {
    s[good_updates] = good ? s[good_updates] + 1 : 0;
    if (!good) s[loss_scale] = scale / 2 > 1 ? scale / 2 : 1;
    if (s[good_updates] >= h.growth_interval) {
      s[loss_scale] = scale * 2 < 0x1p24 ? scale * 2 : 0x1p24;
      s[good_updates] = 0;
    }
  }
  const double correct1 = 1 - std::pow(h.beta1, s[updates]), correct2 = 1 - std::pow(h.beta2, s[updates]);
  return {float(s[factor]),
          float(h.beta1),
          float(h.beta2),
          float(1 - h.beta1),
          float(1 - h.beta2),
          float(s[rate] / correct1),
          float(1 / std::sqrt(correct2)),
          float(h.eps),
          float(1 - s[rate] * h.decay),
          good ? 1.0f : 0.0f,
          scrambled(std::uint32_t(s[seed]) ^ scrambled(std::uint32_t(s[updates])))};
}

}  // namespace headroom::adamw
