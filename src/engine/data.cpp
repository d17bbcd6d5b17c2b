#include "engine/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace headroom::engine {

Data::Data(const std::string& path, TokenFormat format, std::int64_t vocab, double held_out) : vocab_(vocab) {
  const std::string bytes = read_file(path, format == TokenFormat::text ? "--text" : "--tokens");
  const std::size_t width = format == TokenFormat::text ? 1 : format == TokenFormat::u16 ? 2 : 4;
  tokens_.reserve(bytes.size() / width);
  check(bytes.size() % width == 0, Code::bad_argument, "'{}' has {} bytes, not a multiple of {}", path, bytes.size(), width);
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::uint32_t token = 0;
    std::memcpy(&token, &bytes[i], width);
    check(std::int64_t(token) < vocab, Code::bad_argument, "'{}': token {} at {} is beyond the vocabulary of {}", path, token, i / width,
          vocab);
    tokens_.push_back(std::int32_t(token));
  }
  train_ = tokens_.size() - std::size_t(held_out * double(tokens_.size()));
}

// Of each sequence of the batch, the window of tokens that begins at from(sequence).
void Data::feed(Training& t, int micro, const std::function<std::size_t(std::int64_t)>& from) const {
  const auto len = t.recipe().len;
  std::vector<std::int32_t> tokens(std::size_t(t.recipe().batch * len)), targets(tokens.size());
  for (std::int64_t b = 0; b < t.recipe().batch; ++b) {
    const auto begin = tokens_.begin() + std::ptrdiff_t(from(b));
    std::copy_n(begin, len, tokens.begin() + b * len);
    std::copy_n(begin + 1, len, targets.begin() + b * len);
  }
  t.feed(micro, tokens, targets);
}

void Data::draw(Training& t, std::uint64_t seed, std::int64_t step, int micro) const {
  const auto len = std::size_t(t.recipe().len);
  check(train_ > len, Code::bad_argument, "the training part has {} tokens, too few for len {}", train_, len);
  const Random random = Random{seed}.stream(std::uint64_t(step)).stream(std::uint64_t(t.recipe().micro_of_all(micro, t.rank())));
  feed(t, micro, [&](std::int64_t b) { return std::size_t(random.below(std::uint64_t(b), train_ - len)); });
}

std::int64_t Data::validation_batches(const Recipe& r) const {
  const auto held = std::int64_t(tokens_.size() - train_);
  return std::max<std::int64_t>(0, (held - 1) / r.len / r.batch);
}

void Data::validation(Training& t, std::int64_t batch) const {
  feed(t, 0, [&](std::int64_t b) { return train_ + std::size_t((batch * t.recipe().batch + b) * t.recipe().len); });
}

std::uint64_t Data::fingerprint() const {
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (auto t : tokens_) sum = (sum ^ std::uint32_t(t)) * 0x100000001b3ull;
  return sum;
}

double Data::unigram_entropy() const {
  std::vector<double> count(std::size_t(vocab_), 0.0);
  for (std::size_t i = 0; i < train_; ++i) ++count[std::size_t(tokens_[i])];
  double h = 0;
  for (double c : count)
    if (c > 0) h -= c / double(train_) * std::log(c / double(train_));
  return h;
}

}  // namespace headroom::engine
