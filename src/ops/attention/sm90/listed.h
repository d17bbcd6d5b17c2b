// Where what rows see is listed (packed documents): the lists of one row of the batch.
#pragma once
#include "ops/attention/mask.h"

namespace headroom::attention::sm90 {

template <Reach reach>
HEADROOM_HD BandOf<int> band_in(BandOf<int> band, int batch) {
  if (reach == Reach::listed) band.keys_of += (long long)batch * band.len_q, band.rows_of += (long long)batch * band.len_k;
  return band;
}

// Key tiles that rows top … bottom touch, counted from key `from`, which lies before all that they see.
template <Reach reach>
HEADROOM_HD TileSpan tiles_from(const BandOf<int>& band, int from, int top, int bottom, int width) {
  if (reach != Reach::listed) return band.keys_between<reach>(top, bottom, width);
  TileSpan keys = band.keys_between<reach>(top, bottom, 1);
  if (keys.end == keys.begin) return keys;
  keys.begin = (keys.begin - from) / width, keys.end = (keys.end - from + width - 1) / width;
  keys.plain_begin = (keys.plain_begin - from + width - 1) / width, keys.plain_end = (keys.plain_end - from) / width;
  return keys;
}

// Backward in a fixed order: which query tiles a key tile comes by, and who comes by before it. Key tiles of a head begin from the last one down, and each
// walks up. A query tile that only masked pairs connect to a key tile is visited too where the lists' ends, which never move left, say so: then counting
// needs no search.
struct Visits {
  int first, count;
};
HEADROOM_HD Visits visits_of(const BandOf<int>& band, int n, int keys, int rows) {
  const int end = (n + 1) * keys <= band.len_k ? (n + 1) * keys - 1 : band.len_k - 1;
  const int first = band.rows_of[n * keys].first / rows, past = (band.rows_of[end].last + rows - 1) / rows;
  return {first, past > first ? past - first : 0};
}

class ListedTurns {
 public:
  HEADROOM_HD ListedTurns(const BandOf<int>& band, int n, int keys) : first_of_(band.rows_of), len_k_(band.len_k), n_(n), keys_(keys) {
    begin_head();
  }
  HEADROOM_HD void begin_head() {
    highest_ = n_;
    next_ = first_row(n_ + 1), after_ = first_row(n_ + 2);
  }
  // How many key tiles add to query tile m before this one: those behind it that begin at m or sooner. Asked with m that grow. What is loaded here is
  // needed at the next query tile only.
  HEADROOM_HD int before(int m, int rows) {
    while (next_ < (m + 1) * rows) {
      ++highest_;
      next_ = after_, after_ = first_row(highest_ + 2);
    }
    return highest_ - n_;
  }

 private:
  HEADROOM_HD int first_row(int n) const { return n * keys_ < len_k_ ? first_of_[n * keys_].first : 1 << 30; }
  const Run* first_of_;
  int len_k_, n_, keys_, highest_, next_, after_;
};

}  // namespace headroom::attention::sm90
