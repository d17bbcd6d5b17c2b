// Where what rows see is listed (packed documents): the lists of one row of the batch.
#pragma once
#include "ops/attention/mask.h"

namespace headroom::attention::sm90 {

template <Reach reach>
HEADROOM_HD BandOf<int> band_in(BandOf<int> band, int batch) {
  if (reach == Reach::listed) band.keys_of += (long long)batch * band.len_q, band.rows_of += (long long)batch * band.len_k;
  return band;
}

}  // namespace headroom::attention::sm90
