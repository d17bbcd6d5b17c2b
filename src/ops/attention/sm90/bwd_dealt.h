// In which order key tiles of attention's backward are taken up to head dim 128. The host deals tiles by it, and forecasts time them.
#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90::backward {

struct TileShape {
  int dim, rows;
};
template <class Tiles>
constexpr TileShape shape_of() {
  return {Tiles::dim, Tiles::rows};
}

// How the key tiles of all heads are dealt in a fixed order (find_tile): `count` rounds, in each of them `together` key tiles of `heads` heads.
struct Rounds {
  std::int64_t together, heads, count;
  int spread;
};
Rounds rounds_of(std::int64_t pairs, std::int64_t key_tiles, std::int64_t query_tiles, bool causal, std::int64_t units);

// Steps of a block: the row tiles that its key tile meets, in all query heads of the key head, and `ends` for a tile's beginning and end.
struct Walks {
  double longest = 0, shortest = 0, all = 0;  // all: of the key tiles of one key head
};
Walks walks_of(const Problem&, int rows, double ends);

bool better_asked(const Problem&, TileShape, int units);
bool better_in_order(const Problem&, TileShape, int units);

}  // namespace headroom::attention::sm90::backward
