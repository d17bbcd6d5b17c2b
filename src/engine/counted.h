// Counted — the passes of any decoder, run dry: a step of a model that the engine does not train, and inference of every model. The
// ops are the engine's own where it has them, with the tensors that a pass of theirs takes; what it has not (experts' routing, latent
// attention's ranks) takes its tensors and notes its cost here. A model that the engine trains gets the same bytes from either; a
// test holds them to each other.
#pragma once
#include "engine/decoder.h"
#include "engine/serving.h"
#include "engine/training.h"

namespace headroom::engine {

// Training's passes, as far as a forecast calls them, in a dry context. comm: of more than one rank.
class CountedTraining {
 public:
  CountedTraining(const Recipe&, Context&, dist::Comm* comm);
  ~CountedTraining();

  void forward();
  void backward(int micro = 0);
  void update(const adamw::Hyper&);
  void passes(const adamw::Hyper&);

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

// Weights and cache in the precision's type, then a prefill of `len` tokens for each of `batch` sequences, or one new position each
// against a cache of `len`. The arena's peak is the account.
enum class Inference : std::uint8_t { prefill, decode };
struct Generation {
  std::int64_t batch = 1, len = 1;
  Precision precision;
  std::string attention = "flash";
  WeightFormat weights{};        // formats of weights that are not in the precision
  std::optional<DType> cache{};  // its numbers; empty: the precision's
  std::int64_t page = 1;         // positions: a sequence's cache takes whole pages
  std::int64_t chunk = 0;        // tokens that prefill reads at once; 0: the prompt
  int gpus = 1;                  // the decoder is one rank's share of so many (rank_of); their sums after each half are noted
};
std::int64_t cached_positions(const SelfAttention&, const Generation&);  // positions of one sequence
void run_inference(const Decoder&, const Generation&, Inference, Context&);

const attention::Variant& counted_variant(const Decoder&, const Recipe&, Context&);  // the first layer's variant; may be a stand-in
bool counted_stands_in(const Decoder&, const Recipe&, Context&);

// 6 FLOPs for each weight that a token is multiplied with (2 forward alone), and attention's visible pairs.
double counted_model_flops(const Decoder&, const Recipe&);

}  // namespace headroom::engine
