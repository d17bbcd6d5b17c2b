// Blocks whose warps are the key heads of a sequence. Eight heads of a position lie beside each other in a dense cache, and the copy engine reads 16 positions
// of them at once: memory is read in its own order, as fast as it can be, where a block for each head reads every eighth piece
// (bench/lab/attention_decode.md).
//
// One warp fetches, for all, into one ring; each of the others multiplies, gives and adds up the rows of its own head, and meets no other.
#pragma once
#include "ops/attention/decode/dense_keys.cuh"

namespace headroom::attention::decode {

template <class T, class S>
struct HeadsBlock : DenseKeys<T, S, true> {
  using Base = Block<T, S>;
  using Keys = DenseKeys<T, S, true>;
  using Base::a, Base::dim, Base::warp, Base::lane, Base::cluster, Base::whole;
  using typename Keys::State, typename Keys::Unseen;
  static constexpr int heads = S::warps, slots = S::slots, keys_a_step = S::step_keys;

  char* const slots_at;
  Barrier *const full, *const free;  // [slots]
  const int groups;                  // a sequence's, each of so many key heads

  __device__ __forceinline__ HeadsBlock(const BoxArgs& b, char* shared)
      : Keys(b.args, shared, &b.k, &b.v),
        slots_at(shared),
        full(reinterpret_cast<Barrier*>(Base::block_stats + heads * S::rows_at_once)),
        free(full + slots),
        groups(b.args.kv_heads / heads) {}

  // ---- in ------------------------------------------------------------------------------------------------------------
  struct Walk {  // a block's run of steps
    Sequence keys;
    int begin, end;
    int unit, step;  // where it begins: which group of heads of all sequences, and which of its steps
  };
  struct Group {
    int batch, first_head;
  };
  __device__ __forceinline__ Group group_of(int unit) const {
    const int batch = int(a.by_units.of_number(unsigned(unit)));
    return {batch, (unit - batch * groups) * heads};
  }
  __device__ __forceinline__ void fetch_all(const Walk& w) const {  // by one thread
    Turn<slots> turn;
    int unit = w.unit, step = w.step;
    Group of = group_of(unit);
#pragma unroll 1
    for (int at = w.begin; at < w.end; ++at) {
      const int key = w.keys.first + step * keys_a_step;
#pragma unroll
      for (int values = 0; values < 2; ++values, turn.next()) {
        free[turn.stage].wait(turn.parity ^ 1);
        full[turn.stage].arrive_and_expect(S::slot_bytes);
        const Map& map = values ? *Keys::v_map : *Keys::k_map;
        char* const to = slots_at + turn.stage * S::slot_bytes;
        if constexpr (dim == 64)
          load(to, map, full[turn.stage], CachePolicy::once, 0, key, of.first_head, of.batch);
        else
          load(to, map, full[turn.stage], CachePolicy::once, 0, key, 0, of.first_head, of.batch);
      }
      if (++step == w.keys.steps) step = 0, of = group_of(++unit);
    }
  }

  // ---- out -----------------------------------------------------------------------------------------------------------
  // What this warp saw of its head in a part of a unit: a row's maximum and sum of weights as a word, which is there once the sums of all rows are.
  struct Part {
    Word* stats;   // [rows]
    float2* sums;  // [rows][dim / 2]
  };
  __device__ __forceinline__ Part part_at(int part) const {
    Word* const words = Base::words_of(part * heads + warp, 0);
    return {words, reinterpret_cast<float2*>(words + a.rows)};
  }
  // What runs once is short code: its way from memory is longer than its work.
  __device__ __forceinline__ void give(State& s, const Place& at, int part) const {
    Keys::finish(s);
    const float2* const found = Base::sums + warp * (dim / 16) * 32;
#pragma unroll 1
    for (int half = 0; half < Base::halves(); ++half) {
      __syncwarp();
      Keys::leave(s, half);
      __syncwarp();
      const int row = 4 * half + lane / 8;
      if (row >= a.rows) continue;
      const float2 stat = Base::stats[warp * 4 + lane / 8];
      if (part == whole) {
        const typename Base::Row to = Base::row_of(at, row);
        const float inverse = Base::finish_row(at, to, stat.x, stat.y, lane % 8 == 0);
        T* const o = Base::o_of(at, to);
#pragma unroll
        for (int i = 0; i < dim / 16; ++i) {
          const float2 two = found[i * 32 + lane];
          Base::store_two(o, i * 16 + lane % 8 * 2, two.x * inverse, two.y * inverse);
        }
      } else {
        const Part to = part_at(part);
#pragma unroll
        for (int i = 0; i < dim / 16; ++i) to.sums[row * (dim / 2) + i * 8 + lane % 8] = found[i * 32 + lane];
      }
    }
    if (part == whole) return;
    float2 stat[2];  // rows 2 · (lane / 2) and the next
#pragma unroll
    for (int r = 0; r < 2; ++r) stat[r] = {__shfl_sync(~0u, s.maximum[r], lane / 2 % 4), __shfl_sync(~0u, s.sum[r], lane / 2 % 4)};
    const float2 mine = lane % 2 ? stat[1] : stat[0];
    __threadfence();  // each lane's sums are visible to all blocks before the warp meets, so before its words
    __syncwarp();
    if (lane < a.rows) put(part_at(part).stats + lane, {mine.x, mine.y, a.number});
  }
  // Adds up what the blocks first … first + parts − 1 gave of this warp's head, in that order.
  __device__ __forceinline__ void collect(const Place& at, int first, int parts) const {
    // [parts][rows]: maximum and sum of weights; then in x the factor of its sums. They take this warp's tile of the ring's first slot: the warp has read all
    // tiles that were fetched. A sequence has at most most_parts whole runs of blocks, and a piece of a run at each end.
    float2* const stats = reinterpret_cast<float2*>(Base::ring);
    static_assert((S::most_parts + 2) * S::rows * int(sizeof(float2)) <= Base::tile_bytes);
    const auto part_of = [&](int n) { return part_at(Base::part_of(first, n)); };
#pragma unroll 1
    for (int i = lane; i < parts * a.rows; i += 32) {
      Word* const from = part_of(i / a.rows).stats + i % a.rows;
      Word word;
      do word = get(from);
      while (word.number != a.number);
      from->number = 0;
      stats[i] = {word.x, word.y};
    }
    __threadfence();  // no lane reads sums before all words have come: the other half of the order in give
    __syncwarp();
    if (lane < a.rows) {
      float2* const mine = stats + lane;
      float most = -INFINITY, total = 0;
#pragma unroll 1
      for (int n = 0; n < parts; ++n) most = fmaxf(most, mine[n * a.rows].x);
      const float reference = most == -INFINITY ? 0 : most;
#pragma unroll 1
      for (int n = 0; n < parts; ++n) {
        float2& part = mine[n * a.rows];
        part.x = exp2_fast((part.x - reference) * a.scale_log2);
        total += part.x * part.y;
      }
      const float inverse = Base::finish_row(at, Base::row_of(at, lane), most, total, true);
#pragma unroll 1
      for (int n = 0; n < parts; ++n) mine[n * a.rows].x *= inverse;
    }
    __syncwarp();
    constexpr int items_at_once = 4, parts_at_once = 4;  // an item: two columns of a row
    const int items = a.rows * (dim / 2);
#pragma unroll 1
    for (int begin = lane; begin < items; begin += 32 * items_at_once) {
      float2 sum[items_at_once] = {};
#pragma unroll 1
      for (int part = 0; part < parts; part += parts_at_once) {
        float2 two[parts_at_once][items_at_once];
#pragma unroll
        for (int n = 0; n < parts_at_once; ++n) {
          const float2* const sums = part_of(min(part + n, parts - 1)).sums + begin;
#pragma unroll
          for (int i = 0; i < items_at_once; ++i) two[n][i] = begin + 32 * i < items ? __ldcg(sums + 32 * i) : float2{};
        }
#pragma unroll
        for (int n = 0; n < parts_at_once; ++n) {
          if (part + n >= parts) break;
          const float2* const factors = stats + (part + n) * a.rows;
#pragma unroll
          for (int i = 0; i < items_at_once; ++i) {
            const float factor = factors[min((begin + 32 * i) / (dim / 2), a.rows - 1)].x;
            sum[i].x = fmaf(two[n][i].x, factor, sum[i].x), sum[i].y = fmaf(two[n][i].y, factor, sum[i].y);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < items_at_once; ++i) {
        const int item = begin + 32 * i;
        if (item < items) Base::store_two(Base::o_of(at, Base::row_of(at, item / (dim / 2))), item % (dim / 2) * 2, sum[i].x, sum[i].y);
      }
    }
  }

  // ---- one head of a block's run -------------------------------------------------------------------------------------
  __device__ __forceinline__ void walk(const Walk& w, const Runs& runs) const {
    const Unseen unseen = Keys::unseen_of(w.keys);
    Turn<slots> turn;
    const auto read = [&](auto&& use) {
      full[turn.stage].wait_awake(turn.parity);
      __syncwarp();
      use(turn.stage * S::slot_bytes);
      __syncwarp();
      if (lane == 0) free[turn.stage].arrive();
      turn.next();
    };
    State s;
    bool late = false;  // the unit in which this block begins began before it, and ends in it
    int unit = w.unit, step = w.step;
#pragma unroll 1
    for (int at = w.begin; at < w.end; step = 0, ++unit) {
      const Group of = group_of(unit);
      const Place here{of.batch, of.first_head + warp, step, w.keys};
      Keys::start_rows(s, here.batch, here.unit);
      const int walked = min(w.keys.steps - step, w.end - at);
      int valid = w.keys.last - w.keys.first - step * keys_a_step;
#pragma unroll 1
      for (int left = walked; left; --left, valid -= keys_a_step) {
        float x[4];
        read([&](int slot) { Keys::scores(x, s, slot); });
        read([&](int slot) {
          if (valid < keys_a_step) Keys::clear_from(max(valid, 0), slot);
          Keys::weigh(s, x, slot, [&](float(&scores)[4]) { Keys::limit(scores, valid, unseen); });
        });
      }
      at += walked;
      const bool begins_here = step == 0, ends_here = step + walked == w.keys.steps;
      late |= !begins_here && ends_here;
      give(s, here, begins_here && ends_here ? whole : 2 * cluster + begins_here);
    }
    if (!late) return;
    const Group of = group_of(w.unit);
    const int first = runs.block_of(w.begin - w.step);
    collect(Place{of.batch, of.first_head + warp, 0, w.keys}, first, cluster - first + 1);
  }

  __device__ __forceinline__ void run() const {
    allow_dependent_launch();
    if (threadIdx.x == 0) {
      prefetch(*Keys::k_map), prefetch(*Keys::v_map);
      for (int i = 0; i < slots; ++i) full[i].init(1), free[i].init(heads);
      barriers_ready();
    }
    const Sequence keys = sequence(a, 0);  // every sequence has the same
    const Runs runs(a, keys.steps * groups * a.batch);
    __syncthreads();
    if (cluster >= runs.blocks) return;
    Walk w{keys, runs.begin(cluster), runs.begin(cluster + 1), 0, 0};
    w.unit = int(a.by_steps.of_number(unsigned(w.begin))), w.step = w.begin - w.unit * keys.steps;
    wait_for_earlier_kernels();
    if (warp < heads)
      walk(w, runs);
    else if (lane == 0)
      fetch_all(w);
  }
};

}  // namespace headroom::attention::decode
