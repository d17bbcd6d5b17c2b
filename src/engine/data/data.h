// Tokens from a file: text (bytes as tokens) or a flat file of uint16 or uint32. The last part is held out for validation.
// A batch depends on (seed, step, micro) alone, so a run that resumes draws what it would have drawn.
//
// Without documents a sequence is a window of the file that begins anywhere. With them a row is some of the file's documents, packed
// beforehand (documents.h); every row comes once in each pass over the file, in another order in each.
#pragma once
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/data/documents.h"
#include "engine/pass/training.h"

namespace headroom::engine {

enum class TokenFormat : std::uint8_t { text, u16, u32 };
}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::TokenFormat> = names<engine::TokenFormat>("text", "uint16", "uint32");
}

namespace headroom::engine {

class Data {
 public:
  // Every token is checked against vocab. documents: in rows of `len`.
  Data(const std::string& path, TokenFormat, std::int64_t vocab, double held_out, const std::optional<DocumentsBy>& documents = {},
       std::int64_t len = 0);

  void draw(Training&, std::uint64_t seed, std::int64_t step, int micro) const;    // from the training part
  std::int64_t drawn(const Recipe&, std::uint64_t seed, std::int64_t step) const;  // tokens that a step of all ranks predicts
  std::int64_t validation_batches(const Recipe&) const;                            // side by side in the held-out part
  void validation(Training&, std::int64_t batch) const;
  double validated(const Recipe&, std::int64_t batch) const;  // tokens that it predicts

  std::size_t size() const { return tokens_.size(); }
  std::uint64_t fingerprint() const { return fingerprint_; }  // a hash of the tokens: a run resumes only with the data it began with
  double unigram_entropy() const;                             // nats per token of the training part: what knowing only frequencies gives
  Packed packed() const;                                      // what rows hold, in both parts
  std::string documents_in_words() const;                     // empty where there are none

 private:
  void feed(Training&, int micro, const std::function<std::size_t(std::int64_t)>& from) const;
  void feed_rows(Training&, int micro, const Packing&, const std::function<std::int64_t(std::int64_t)>& row, std::int64_t predicted) const;
  std::int64_t row_drawn(const Recipe&, std::uint64_t seed, std::int64_t step, int micro_of_all, std::int64_t b) const;
  std::vector<std::int32_t> tokens_;
  std::size_t train_;  // the first train_ tokens
  std::uint64_t fingerprint_ = 0xcbf29ce484222325ull;
  std::int64_t vocab_, documents_ = 0, len_ = 0;
  Packing training_, held_out_;
};

}  // namespace headroom::engine
