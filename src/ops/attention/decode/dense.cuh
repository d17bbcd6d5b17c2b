// Blocks of 8 rows that read a dense cache: no clusters, pages, lists or caps, so the loop over its steps has no branch that is taken.
//
// Threads fetch one tile at each half of a step: keys and values take turns in the ring, and the copies stay a whole ring ahead. All parts of a unit are
// collected in one round, a part by each warp.
#pragma once
#include "ops/attention/decode/dense_keys.cuh"

namespace headroom::attention::decode {

template <class T, class S>
struct DenseBlock : DenseKeys<T, S, false> {
  using Base = Block<T, S>;
  using Keys = DenseKeys<T, S, false>;
  using Base::a, Base::dim, Base::warps, Base::slots, Base::tile_bytes, Base::pitch, Base::lane, Base::warp, Base::units, Base::cluster,
      Base::whole;
  using typename Keys::State, typename Keys::Unseen;
  static constexpr int span = S::step_keys, rows_a_copy = Keys::rows_a_copy, copies = 16 / rows_a_copy;
  char* const shared;

  __device__ __forceinline__ DenseBlock(const Args& args, char* shared_memory) : Keys(args, shared_memory), shared(shared_memory) {}

  // ---- in ------------------------------------------------------------------------------------------------------------
  struct Ahead {
    const char *k, *v;  // this lane's first row and columns of the tile that is fetched next
    int todo, left;     // steps to fetch: of this block, and of the unit
    int valid;          // keys that the cache still has from the tile's first one on
    int batch, unit;
  };
  __device__ __forceinline__ void reach(Ahead& x, const Sequence& keys, int step) const {
    const int key = keys.first + step * span + warp * 16, column = lane % Base::chunks * 8;
    const long long row = key + lane / Base::chunks;
    x.left = keys.steps - step, x.valid = keys.last - key;
    x.k = reinterpret_cast<const char*>(static_cast<const T*>(a.k.data) + x.batch * a.k.batch + row * a.k.row + x.unit * a.k.head + column);
    x.v = reinterpret_cast<const char*>(static_cast<const T*>(a.v.data) + x.batch * a.v.batch + row * a.v.row + x.unit * a.v.head + column);
  }
  __device__ __forceinline__ void next_unit(int& batch, int& unit) const {
    batch += a.units.batches, unit += a.units.more;
    if (unit >= units) unit -= units, ++batch;
  }
  __device__ __forceinline__ void step_on(Ahead& x, const Sequence& keys) const {
    --x.todo, x.valid -= span;
    x.k += span * (a.k.row * 2), x.v += span * (a.v.row * 2);
    if (--x.left) return;
    next_unit(x.batch, x.unit);
    if (x.todo > 0) reach(x, keys, 0);
  }
  // This warp's 16 keys or values of a step; what lies past the last key becomes zeros. Each call is a group of copies, also where nothing is left to fetch.
  template <bool values>
  __device__ __forceinline__ void fetch(int slot, Ahead& x, const Sequence& keys) const {
    if (x.todo > 0) {
      const long long stride = (values ? a.v.row : a.k.row) * 2;
      const char* const from = values ? x.v : x.k;
      const std::uint32_t to = Keys::copies_at + slot;
      const auto copy = [&](int i, bool exists) {
        warp::copy_16((to ^ i * rows_a_copy % 8 << 4) + i * rows_a_copy * pitch, from + i * rows_a_copy * stride, exists);
      };
      if (x.valid >= 16) {
#pragma unroll
        for (int i = 0; i < copies; ++i) copy(i, true);
      } else {
        const int valid = x.valid - lane / Base::chunks;
#pragma unroll 1
        for (int i = 0; i < copies; ++i) copy(i, i * rows_a_copy < valid);
      }
      if (values) step_on(x, keys);
    }
    warp::copies_commit();
  }
  __device__ __forceinline__ void landed() const {  // the oldest tile of the ring
    warp::copies_wait<slots - 1>();
    __syncwarp();
  }

  // ---- parts of a unit -----------------------------------------------------------------------------------------------
  // All words of a part, to shared memory, by one warp. They are on their way together, and asked for again until all have come.
  __device__ __forceinline__ void collect_part(int part, float2* to, int words) const {
    constexpr int at_once = dim == 64 ? 5 : 9;  // a lane's loads in flight: 4 rows of a part
    Word* const from = Base::words_of(part, 0);
#pragma unroll 1
    for (int begin = lane; begin < words; begin += 32 * at_once) {
      Word word[at_once];
      bool all;
      do {
        all = true;
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (begin + 32 * i < words) word[i] = get(from + begin + 32 * i);
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (begin + 32 * i < words) all &= word[i].number == a.number;
      } while (!all);
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (begin + 32 * i < words) to[begin + 32 * i] = {word[i].x, word[i].y}, from[begin + 32 * i].number = 0;
    }
  }
  // As many parts as there are warps in a round; then a thread adds up two columns of a row, in the order of the line. The ring is free: all tiles were read
  // before the barriers of give_all.
  __device__ __forceinline__ void collect(const Place& at, int first, int parts) const {
    constexpr int threads = warps * 32, sums_a_thread = ceil_div(8 * dim / 2, threads), at_once = 8;
    const int row_words = dim / 2 + 1, words = a.kept_rows * row_words;
    float2* const found = reinterpret_cast<float2*>(shared);  // [warps][words]
    static_assert(8 * (dim / 2 + 1) * int(sizeof(float2)) <= slots * tile_bytes);
    Sum sums[sums_a_thread];
#pragma unroll 1
    for (int base = 0; base < parts; base += warps) {
      if (base + warp < parts) collect_part(Base::part_of(first, base + warp), found + warp * words, words);
      __syncthreads();
#pragma unroll
      for (int n = 0; n < sums_a_thread; ++n) {
        const int item = int(threadIdx.x) + n * threads;
        if (item >= a.kept_rows * (dim / 2)) continue;
        const float2* const row = found + item / (dim / 2) * row_words;
#pragma unroll 1
        for (int begin = 0; begin < min(warps, parts - base); begin += at_once) {
          float2 stat[at_once], two[at_once];
#pragma unroll
          for (int i = 0; i < at_once; ++i) {
            const bool there = base + begin + i < parts;
            stat[i] = there ? row[(begin + i) * words + dim / 2] : float2{-INFINITY, 0};
            two[i] = there ? row[(begin + i) * words + item % (dim / 2)] : float2{};
          }
          sums[n].add(stat, two, a.scale_log2);
        }
      }
      if (base + warps < parts) __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < sums_a_thread; ++n)
      if (const int item = int(threadIdx.x) + n * threads; item < a.kept_rows * (dim / 2))
        Base::give(at, item / (dim / 2), item % (dim / 2) * 2, sums[n], whole);
  }

  __device__ __forceinline__ void run() const {
    allow_dependent_launch();
    const Sequence keys = sequence(a, 0);  // every sequence has the same
    const Runs runs(a, keys.steps * units * a.batch);
    if (cluster >= runs.blocks) return;
    const int begin = runs.begin(cluster), end = runs.begin(cluster + 1);
    const int on_line = int(a.by_steps.of_number(unsigned(begin))), first_step = begin - on_line * keys.steps;
    const int first_unit = a.units.apart ? cluster : on_line;
    const int first_batch = int(a.by_units.of_number(unsigned(first_unit)));
    int batch = first_batch, unit = first_unit - batch * units, step = first_step;
    Ahead ahead{};
    ahead.batch = batch, ahead.unit = unit, ahead.todo = end - begin;
    reach(ahead, keys, step);
    const Unseen unseen = Keys::unseen_of(keys);
    wait_for_earlier_kernels();

    const auto next = [](int slot) { return slot == (slots - 1) * tile_bytes ? 0 : slot + tile_bytes; };
    int in = 0, out = 0;  // slots, in bytes: filled next, read next
#pragma unroll 1
    for (int i = 0; i < (slots - 1) / 2; ++i) {
      fetch<false>(in, ahead, keys), in = next(in);
      fetch<true>(in, ahead, keys), in = next(in);
    }
    if constexpr (slots % 2 == 0) fetch<false>(in, ahead, keys), in = next(in);
    State s;
    bool late = false;  // the unit in which this block begins began before it, and ends in it
#pragma unroll 1
    for (int at = begin; at < end; step = 0) {
      Keys::start_rows(s, batch, unit);
      const int walked = min(keys.steps - step, end - at);
      int valid = keys.last - keys.first - step * span - warp * 16;
#pragma unroll 1
      for (int left = walked; left; --left) {
        float x[4];
        __syncwarp();  // the values of the step before have been read
        fetch<slots % 2 == 0>(in, ahead, keys), in = next(in);
        landed();
        Keys::scores(x, s, out);
        out = next(out);
        __syncwarp();  // the keys have been read
        fetch<slots % 2 != 0>(in, ahead, keys), in = next(in);
        landed();
        Keys::weigh(s, x, out, [&](float(&scores)[4]) { Keys::limit(scores, valid, unseen); });
        out = next(out);
        valid -= span;
      }
      at += walked;
      const bool begins_here = step == 0, ends_here = step + walked == keys.steps;
      late |= !begins_here && ends_here;
      Keys::give_all(s, Place{batch, unit, step, keys}, begins_here && ends_here ? whole : 2 * cluster + begins_here);
      next_unit(batch, unit);
    }
    if (!late) return;
    const int first = runs.block_of(begin - first_step);
    collect(Place{first_batch, first_unit - first_batch * units, 0, keys}, first, cluster - first + 1);
  }
};

}  // namespace headroom::attention::decode
