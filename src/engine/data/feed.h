// Feed — what a step reads of a text: tokens, targets, and where documents lie, of every micro-batch. On a GPU the host writes them
// into pinned memory, and copies on the step's stream bring them over, without waiting.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "engine/halves/split_tokens.h"
#include "engine/recipe/recipe.h"
#include "gpu/staging.h"
#include "ops/attention/attention.h"

namespace headroom::engine {

// Where the documents of a micro-batch begin and end, and how many tokens the whole step predicts, over all micro-batches and ranks.
struct FedDocuments {
  std::span<const std::int32_t> borders;  // [batch, documents.most + 1], each row rising from 0: what lies past the last is of no document
  double predicted;
};

class Feed {
 public:
  Feed(const Recipe&, std::int64_t rows, Context&);  // rows: of a micro-batch, that this rank computes

  Tensor tokens(int micro) const;   // int32 [rows]
  Tensor targets(int micro) const;  // the same; below 0 is none
  // Packed rows have these; otherwise each is none.
  Tensor positions(int micro) const;             // each token's position in its document
  attention::Extras documents(int micro) const;  // the documents' borders
  const double* predicted(int micro) const;      // tokens that the whole step predicts

  // Whole sequences, [batch · len]; of split tokens a rank takes its stripes. Without documents every row is one, and all is predicted.
  void take(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const TokenSplit*);
  void take(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments&, const TokenSplit*);

 private:
  void send(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments&, const TokenSplit*);

  const Recipe& recipe_;
  Context& ctx_;
  Tensor tokens_, targets_;                 // [micro-batch, …]
  Tensor positions_, borders_, predicted_;  // the same; none where rows are not packed
  std::unique_ptr<Staging> staging_;        // on a GPU
};

}  // namespace headroom::engine
