// ParamStore — owns the weights, their gradients and the optimiser's state: all of it on one rank, or a part on each of several
// (ranks.h). A layer leases weights until the closing brace; the model's files need not know whether a rank holds all or a part.
// The same store is dry or wet.
//
// Order of calls in a step: for every micro-batch begin(micro), then lease and finish of the groups in the order of the passes; then
// norm and step. While updates happen during backward, update_with(numbers) comes first and norm and step are not called.
// Groups: 0 the embedding, 1 … layers the blocks, layers + 1 the final norm and the head.
//
// Several ranks: a group's parameters are one or two runs of elements (Segment), of which each rank owns an equal part. A gradient is
// exchanged and its parts are added in rank order in FP32, so that N ranks with one micro-batch have the bits of one rank with N:
// there each micro-batch's gradient is made separately and added to the sum so far. Collectives run on a lane beside the main queue;
// their memory is made at construction, in the same order on every rank.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/described.h"
#include "dist/comm.h"
#include "engine/forecast/serving.h"
#include "engine/model/params.h"
#include "engine/recipe/ranks.h"
#include "engine/store/optimizer.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::engine {

struct Weight {
  Tensor w;   // in the compute type when it is multiplied, else FP32
  Tensor dw;  // FP32, or as Gradients say; none when the store was made for forward passes only, or where update is set
  // Instead of dw: the op that makes the gradient also updates the weight, after its last use; `numbers` are that update's.
  const Optimizer::Update* update = nullptr;
  Tensor numbers = {};
  double held_bytes = 0;               // what w takes where a format of fewer bits holds it; 0: its type's
  Scaled as_is = {}, transposed = {};  // its 8-bit copies, where they are kept
};

using attention::Pass;  // the pass that leases; a backward pass may run forward again

enum class Purpose : std::uint8_t { forward, gradients, training };  // each holds what the one before holds, and more

// Lifetime and type of what a step holds. Each way computes the same; the later ones hold less and give something up.
enum class Masters : std::uint8_t {
  whole,  // FP32 beside the copy that is multiplied
  halves  // a multiplied weight's copy is one half, and the other half is stored beside it (ops/copy/split.h); for bf16
};
enum class Updating : std::uint8_t {
  after,  // all gradients are kept until the update: their norm can be known
  during  // a gradient is kept until backward has its whole group; then the group is updated: no clipping, no loss scaling
};
enum class Gradients : std::uint8_t {
  whole,  // FP32
  half,   // for a block's multiplied weights, the compute type: summed in FP32, rounded once, as PyTorch's autocast does
  none    // for a block's multiplied weights: the product that makes one updates its weight (ops/product_update)
};
enum class WeightCopies : std::uint8_t {  // fp8's, of a block's multiplied weights
  made,                                   // quantised just before each use
  kept                                    // both of them stay, and the update writes them: weights are not read for products
};
}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Purpose> = names<engine::Purpose>("forward", "forward+backward", "train");
template <>
inline constexpr auto names_of<engine::Masters> = names<engine::Masters>("whole", "halves");
template <>
inline constexpr auto names_of<engine::Updating> = names<engine::Updating>("after", "during");
template <>
inline constexpr auto names_of<engine::Gradients> = names<engine::Gradients>("whole", "half", "none");
template <>
inline constexpr auto names_of<engine::WeightCopies> = names<engine::WeightCopies>("made", "kept");
}  // namespace headroom

namespace headroom::engine {

constexpr std::string_view name_of(Purpose p) { return names_of<Purpose>.of(p); }
constexpr std::string_view name_of(Masters m) { return names_of<Masters>.of(m); }
constexpr std::string_view name_of(Updating u) { return names_of<Updating>.of(u); }
constexpr std::string_view name_of(Gradients g) { return names_of<Gradients>.of(g); }
constexpr std::string_view name_of(WeightCopies c) { return names_of<WeightCopies>.of(c); }

// Lifetime and dtype of training state. Say<T>: T of one step; a list of T where a study tries several (levers.h).
template <template <class> class Say>
struct HoldingOf {
  Say<Masters> masters{Masters::whole};
  Say<Updating> updating{Updating::after};
  Say<Gradients> gradients{Gradients::whole};
  Say<Moments> moments{Moments::whole};
  Say<WeightCopies> copies{WeightCopies::made};

  friend bool operator==(const HoldingOf&, const HoldingOf&) = default;
};
template <class T>
using One = T;
using Holding = HoldingOf<One>;

template <class T>
inline constexpr bool is_holding = false;
template <template <class> class Say>
inline constexpr bool is_holding<HoldingOf<Say>> = true;

template <class H>
requires is_holding<std::remove_cvref_t<H>>
void describe(H&& h, auto&& f) {
  f(h.masters, {.name = "masters", .about = "FP32 weights. whole: beside their bf16 copies; halves: they share the copies' bytes"});
  f(h.gradients, {.name = "gradients",
                  .about = "Gradients of the blocks' matrices. whole: FP32; half: the precision's dtype; none: never stored, the product "
                           "updates the weight"});
  f(h.updating,
    {.name = "update", .about = "AdamW. after: once backward has finished; during: group by group within it, without clipping"});
  f(h.moments, {.name = "moments",
                .about = "AdamW's moments of matrices and embeddings. whole: FP32; half: bf16; 8bit: 8 bits with FP32 scales; both rounded "
                         "stochastically"});
  f(h.copies,
    {.name = "copies",
     .about = "fp8's copies of weights. made: before each use; kept: two of each, which the update writes, for 2 bytes a weight"});
}

struct Param {
  ParamSpec spec;
  // The elements that this rank owns: all of them on one rank. Tensors that are not whole here hold these elements, flat.
  std::int64_t first = 0, count = 0;
  Tensor master, copy, rest, grad;     // copy: for multiplied weights when the compute type is not FP32; rest: then instead of master
  std::vector<Tensor> state;           // the optimizer's tensors, in its order
  double held_bytes = 0;               // bytes of a copy in a format of fewer bits
  Scaled as_is = {}, transposed = {};  // 8-bit copies of the copy, as products read it: of the blocks' matrices, where they are kept
};

class ParamStore {
 public:
  struct Settings {
    DType compute = DType::f32;
    Purpose purpose = Purpose::training;
    Holding holding{};
    Ranks ranks{};
    int micro_batches = 1;
    std::optional<WeightFormat> answering{};  // serving: weights in the compute type alone, or in this format; dry
    ScaledFormat multiplied_in{};             // fp8: the format of the blocks' weights as products read them
  };
  // Makes everything in the arena. comm: needed for more than one rank.
  ParamStore(const Decoder&, const Settings&, Context&, dist::Comm* comm = nullptr);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  class [[nodiscard]] Lease {
   public:
    Lease(const ParamStore& store, int group) : store_(store), group_(group) {}
    Weight operator[](WeightRole role) const { return store_.weight(group_, role); }

   private:
    const ParamStore& store_;
    int group_;
  };
  Lease lease(int group, Pass pass) {
    gather(group, pass);
    return {*this, group};
  }
  Lease lease_forward(int group) {  // and starts to gather the next group's weights
    const Lease now = lease(group, Pass::forward);
    prefetch(group + 1, Pass::forward);
    return now;
  }
  void prefetch(int group, Pass);  // call it early: starts to gather what the lease will need
  void begin(int micro);           // begins a forward pass alone (0), or a micro-batch's forward and backward pass
  void finish(int group);          // the group's gradients of this micro-batch are complete
  void end();                      // ends the last pass: waits for everything that runs beside it

  // An update after backward: the norm of all gradients (over all ranks) and the numbers that follow, made in the caller's scope; then
  // AdamW. Or during backward: finish updates with these numbers (of Optimizer::begin); none when it is over.
  Tensor norm(const Optimizer::Hyper&, const Tensor& state);
  void step(const Tensor& numbers);
  void update_with(const Tensor& numbers) { numbers_ = numbers; }
  bool updating() const { return bool(numbers_); }

  void initialise(std::uint64_t seed);  // normal numbers by counter: the same for any number of threads and ranks
  void refresh_copies();                // call it after writing masters from outside
  // Where the counts of a weight's kept 8-bit copies are added whenever an update writes them.
  void count_copies(const std::function<Tensor(const ParamSpec&)>& of);

  const std::vector<Param>& params() const { return params_; }
  Tensor first_gradient() const;  // one element; if it is not finite, an update changes nothing
  // All elements of a parameter, of which this rank may hold a part, in FP32 on the host; and the bytes of the optimizer's n-th tensor for
  // it. Between steps: all wait, and those that every rank calls, which bring something, use the arena.
  std::vector<float> values(const Param&);
  void set_values(const Param&, const float* whole);
  std::vector<StateTensor> states(const Param& p) const { return p.state.empty() ? std::vector<StateTensor>() : optimizer_.states(p.spec); }
  std::vector<char> state(const Param&, std::size_t n);
  void set_state(const Param&, std::size_t n, const char* whole);

 private:
  struct SegmentPart : Segment {  // a segment, and this rank's part of it; unused on one rank, where each parameter has its own tensors
    std::int64_t part = 0;        // elements that a rank owns
    DType weight = DType::f32;    // dtype in use
    DType partial = DType::f32;   // dtype of a micro-batch's gradient
    DType kept = DType::f32;      // dtype of the kept gradient
    Param held;                   // master, copy, rest, state: whole, or this rank's part; grad: kept, whole
    Tensor made;                  // a micro-batch's gradient, whole: in a loan, or its own where two groups add to it
    Tensor parts;                 // receives this rank's part of it from every rank
    Tensor sum;                   // the sum of those: this rank's part of the gradient of all ranks, FP32
    Tensor whole;                 // replicas: the gradient of all ranks; none if the update allocates it
  };
  static constexpr int mark_weights = 0, mark_gradients = 2, mark_rest = 4, marks = 6;  // the lane's marks; two of each take turns

  bool alone() const { return settings_.ranks.count == 1; }
  bool sharded(Sharding s) const { return !alone() && settings_.ranks.sharding >= s; }
  bool during() const { return settings_.purpose != Purpose::forward && settings_.holding.updating == Updating::during; }
  bool keeps_whole_gradients() const { return !during() && !sharded(Sharding::gradients); }
  bool in_place(const SegmentPart& r) const { return keeps_whole_gradients() && micro_ == 0 && r.kept == r.partial; }
  bool halves() const;
  bool keeps_copies(const ParamSpec&) const;  // in 8 bits
  bool swaps() const;
  bool shared_by_groups(const SegmentPart& r) const {
    return tied_ && r.group == 0 && r.multiplied;
  }  // a tied head's weight is the embedding's
  Tensor weights_of(const SegmentPart& r) const { return r.held.copy ? r.held.copy : r.held.master; }
  // Group 0 reuses the last group's buffer: no later update reads it. If ranks swap, its gradients are made there too, while the group
  // before waits for its update.
  std::size_t turn_of_parts(int group) const { return std::size_t((group == 0 && !swaps() ? last_group_ : group) % 2); }

  void describe_runs();
  void make_alone();
  void make_copies();
  void make_answering();
  void make_shared();
  void make_loan_alone();
  void make_loans();
  void make_room_for_exchanges();
  void view_params();
  bool needs_weights(int group, Pass) const;
  template <class Body>
  void each_run(int group, Body&& body) const {  // calls body for the runs that a group's lease needs
    for (const SegmentPart& r : runs_)
      if (r.group == group || (group == last_group_ && shared_by_groups(r))) body(r);
  }
  std::int64_t place_in_loan(int group, const SegmentPart&) const;  // in bytes

  Tensor owned(const Param&, const Tensor&) const;           // the owned elements, flat, of a tensor that is whole or owned
  std::int64_t first_of(const Param&, const Tensor&) const;  // the number of its first element
  Optimizer::Update update_of(const Param&, const Tensor& grad, int parts = 1, std::int64_t apart = 0) const;  // grad: owned, or whole
  std::vector<Optimizer::Update> owned_updates(const SegmentPart&, const Tensor& part, int parts, std::int64_t apart) const;
  std::vector<Optimizer::Update> whole_updates(const SegmentPart&, const Tensor& whole, int parts = 1, std::int64_t apart = 0) const;

  void gather(int group, Pass);
  void fetch(int group);
  Weight weight(int group, WeightRole role) const;
  void finish_alone(const SegmentPart&);
  void finish_shared(const SegmentPart&);
  void reduce(const SegmentPart&, const Tensor& from, Gradient into);
  void send(int group);
  void update_sent();
  void update_group(int group, const Tensor& numbers);
  void step_replicas(const Tensor& numbers);
  void share_weights(const SegmentPart&);
  void wait(int mark);
  void settle();
  template <class Fill>
  void in_pieces(const Param&, Fill&& fill);
  std::vector<char> whole_values(const Param&, const Tensor& mine, const Tensor& held, std::int64_t per = 1);
  Context beside() const;  // the lane's
  void exchange(const char* what, const SegmentPart&, const Tensor& mine, const Tensor& theirs, dist::Own, const Context&);
  struct Sent {  // the parts of all ranks of what this rank owns: the first, and how many elements apart they are
    Tensor first;
    std::int64_t apart;
  };
  bool reads_own_in_place() const;
  Sent sent_to_here(const SegmentPart&) const;
  void gather_parts(const char* what, int layer, const Tensor& part, const Tensor& whole, const Context&);

  Settings settings_;
  Optimizer optimizer_;
  Context& ctx_;
  dist::Comm* comm_;
  std::unique_ptr<dist::Lane> lane_;
  std::vector<Param> params_;
  std::vector<Tensor> made_, kept_;  // views of each parameter's gradient, whole: as a micro-batch makes it, and as it is kept
  std::vector<SegmentPart> runs_;
  std::vector<Optimizer::Update> updates_;  // one rank only, in the order of params_
  std::vector<int> begin_of_;               // first parameter of each group, and the end
  int last_group_;
  bool tied_;
  int micro_ = 0;
  std::array<Tensor, 2> loans_;      // hold weights; the groups take turns
  std::array<int, 2> lent_{-1, -1};  // the group whose weights are in a loan
  std::array<bool, marks> waiting_{};
  int sent_ = -1;  // the group whose gradients travel: it is updated after the next
  Tensor numbers_;
};

}  // namespace headroom::engine
