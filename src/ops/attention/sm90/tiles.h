// tiles.h — every tuned number of the Hopper attention kernels, with its reason.
#pragma once
#include "ops/attention/by_place.h"
#include "ops/attention/mask.h"

namespace headroom::attention {

// How the work of a forward is dealt.
enum class Way {
  whole,   // a tile of query rows walks all its keys in one block
  parts,   // key steps are dealt evenly, and parts of one row tile are added up through the workspace
  cluster  // a cluster of blocks shares one row tile and adds up through its shared memory; query heads may be packed as rows
};

// A tile lies in shared memory as panels of 64 columns, the last one perhaps half empty: products skip what is past `dim`, the copy engine puts zeros there.
template <class Tiles>
constexpr int columns_of = (Tiles::dim + 63) / 64 * 64;

// Forward. A block is one warpgroup that fetches and `consumers` that compute, 64 query rows each; it walks tiles of
// `keys` keys. `stages` tiles of K and of V and `q_stages` of Q are in flight. Shared memory: 227 KB.
// The registers of all warpgroups may not exceed 65536 / threads · threads (a greedy setmaxnreg waits for ever).
template <class Type>
struct Forward64 {  // three groups hide each other's softmax; two are 7–19 % slower
  using T = Type;
  static constexpr int dim = 64, consumers = 3, keys = 128, stages = 2, q_stages = 2;
  static constexpr int producer_registers = 32, consumer_registers = 160;
  static constexpr bool stages_o = true;      // O passes through shared memory
  static constexpr bool maxima_first = true;  // both rows' maxima, then all exponentials: 3 % here, −5 % at 128
  static constexpr Way way = Way::whole;
  static constexpr ByPlace by_place = ByPlace::nothing;
};
template <class Type>
struct Forward64Short : Forward64<Type> {  // len ≤ 1k: 256 rows divide 512 and 1024, and more tiles are in flight
  static constexpr int consumers = 4, keys = 64, stages = 4;
  static constexpr int producer_registers = 24, consumer_registers = 112;
};
template <class Type>
struct Forward64Capped : Forward64<Type> {  // the arithmetic of a cap does not fit beside 128 keys; two groups of them are 1–4 % slower
  static constexpr int keys = 96;
};
template <class Type>
struct Forward96 : Forward64<Type> {  // 128 keys do not fit the registers; O goes to global memory from there, and Q has two buffers
  static constexpr int dim = 96, keys = 96;
  static constexpr bool stages_o = false;
};
template <class Type>
struct Forward80 : Forward96<Type> {
  static constexpr int dim = 80, keys = 112;
};
template <class Type>
struct Forward128 : Forward64<Type> {
  static constexpr int dim = 128, consumers = 2;
  static constexpr int producer_registers = 40, consumer_registers = 232;  // at 24 the producer spills
  static constexpr bool maxima_first = false;
};
// Dropout. At 4k and 16k three groups take 1.12 to 1.18 times as long (with 96 keys 1.17 to 1.19), four groups with 64 keys 1.03 to 1.06; below, more (H200,
// 2026-11-29).
template <class Type>
struct Forward64Pair : Forward128<Type> {
  static constexpr int dim = 64;
  static constexpr bool maxima_first = true;
};
template <class Type>
struct Forward96Short : Forward128<Type> {  // two groups end a tile sooner than three
  static constexpr int dim = 96;
};
template <class Type>
struct Forward80Short : Forward128<Type> {
  static constexpr int dim = 80;
};
template <class Type>
struct Forward256 : Forward128<Type> {  // 64 KB of Q leave room for 80 keys; O goes from registers to global memory
  static constexpr int dim = 256, keys = 80, q_stages = 1;
  static constexpr bool stages_o = false;
};
template <class Tiles, ByPlace what>
struct Placing : Tiles {  // the same shape, forward or backward, where what happens to a score depends on its place
  static constexpr ByPlace by_place = what;
};
template <class Tiles>
struct EvenParts : Tiles {  // code of its own: the branch alone costs 2 % at 512
  static constexpr Way way = Way::parts;
};
template <class Tiles>
struct Cluster : Tiles {  // small problems: 128 rows, so that there are more blocks; as many stages as fit, for there is nothing else to do
  static constexpr int consumers = 2, q_stages = 1, stages = Tiles::dim == 64 ? 4 : Tiles::dim == 128 ? 3 : 2;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr Way way = Way::cluster;
};

// Backward. Two consumers of 64 keys each; `rows` queries a step, `stages` steps of Q and dO in flight. The consumers take turns with their
// products, so that one's arithmetic runs beside the other's. All from one H200, 2026-11-21; bench/lab/attention_bwd.md.
constexpr int backward_keys = 128;
// In a fixed order, what decides how many key tiles of a head run together (rounds_of), in steps: a tile's beginning and end, and from one addition to dQ
// to the next one's. From the model in bench/lab; against all key tiles of a head together, TFLOP/s at head dim 64: full 1k 446 → 434, 4k 477 → 496, 16k
// 467 → 503; causal 1k 316, 4k 448 → 450, 16k 450 → 477.
constexpr double backward_ends = 4, backward_hand_over = 1.3;
template <class Type>
struct Backward64 {  // 64 rows would read K and V twice as often from shared memory: 20–25 % slower
  using T = Type;
  static constexpr int dim = 64, rows = 128, stages = 2;
  static constexpr bool dq_early = false;  // a step's dQ goes to shared memory in front of dS, else behind it
  static constexpr bool dp_first =
      false;  // a step's products behind its scores: dP, dQ, dV; else dV, dP, dQ. dS begins beside the last one
  static constexpr bool dq_beside_scores = false;  // a step's dQ follows the next step's scores and dK, else the next step's dP
  static constexpr Reach reach = Reach::run;       // what is asked of the mask: its numbers, which are right for all but lists
  static constexpr bool capped = false;
  static constexpr ByPlace by_place = ByPlace::nothing;
};
template <class Type>
struct Backward128 : Backward64<Type> {  // dK and dV take 128 registers a thread; 64 rows of scores and of dP are what else fits
  static constexpr int dim = 128, rows = 64;
  // FlashAttention-3's time over ours at 4k full, 4k causal, 16k causal (H200, 2026-11-22): dP, dQ, dV with dQ in front of dS 1.03, 1.01, 1.02,
  // and behind it 1.02, 1.01, 1.01; dV, dP, dQ 0.95, 0.94, 0.93, measured with an earlier loader, where the first had 1.00, 0.98, 0.98. At 64
  // it is the other way round (bench/lab/attention_bwd.md, "The rhythm of the two consumers").
  static constexpr bool dp_first = true, dq_early = true;
};
template <class Type>
struct Backward64Capped : Backward64<Type> {  // the slope of a cap takes a register for two scores: dQ gives way
  static constexpr bool dq_beside_scores = true, dp_first = true;
};
template <class Type>
struct Backward96 : Backward128<Type> {
  static constexpr int dim = 96;
};
template <class Type>
struct Backward80 : Backward128<Type> {
  static constexpr int dim = 80;
};
template <class Type>
struct
    Backward256 {  // two kernels: dK and dV, a block of `keys`; dQ, a block of `dq_rows` walking `dq_keys` a step, or a product of kept dS
  using T = Type;
  // 64 keys a step of dQ: with 48 the products from shared memory need more than it delivers. V has one stage then.
  static constexpr int dim = 256, keys = 64, rows = 64, dq_rows = 128, dq_keys = 64, stages = 2, dq_v_stages = 1;
  static constexpr int product_stages = 4;  // for dQ's product where dS was kept: 64 keys and dS of 128 rows each
  static constexpr bool keeps = false;
  static constexpr Reach reach = Reach::run;
  static constexpr bool capped = false;
};
template <class Tiles>  // the same, but dK and dV's kernel keeps dS, and dQ is its product with K
struct Keeping : Tiles {
  static constexpr bool keeps = true;
};
template <class Tiles, Reach of, bool cap>  // the same shape where more is asked: documents, capped scores
struct Asking : Tiles {
  static constexpr Reach reach = of;
  static constexpr bool capped = cap;
};

}  // namespace headroom::attention
