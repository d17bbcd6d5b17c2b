// Tokens from a file: text (bytes as tokens) or a flat file of uint16 or uint32. The last part is held out for validation.
// A batch depends on (seed, step, micro) alone, so a run that resumes draws what it would have drawn.
#pragma once
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/training.h"

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
  Data(const std::string& path, TokenFormat, std::int64_t vocab, double held_out);  // every token is checked against vocab

  void draw(Training&, std::uint64_t seed, std::int64_t step, int micro) const;  // random windows of the training part
  std::int64_t validation_batches(const Recipe&) const;                          // that lie side by side in the held-out part
  void validation(Training&, std::int64_t batch) const;

  std::size_t size() const { return tokens_.size(); }
  std::uint64_t fingerprint() const;  // of the tokens: a run goes on only with the data it began with
  double unigram_entropy() const;     // nats per token of the training part: what knowing only frequencies gives

 private:
  void feed(Training&, int micro, const std::function<std::size_t(std::int64_t)>& from) const;
  std::vector<std::int32_t> tokens_;
  std::size_t train_;  // the first train_ tokens
  std::int64_t vocab_;
};

}  // namespace headroom::engine
