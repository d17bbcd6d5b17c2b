#include "engine/data/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/divide.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace headroom::engine {

Data::Data(const std::string& path, TokenFormat format, std::int64_t vocab, double held_out, const std::optional<DocumentsBy>& documents,
           std::int64_t len)
    : vocab_(vocab), len_(len) {
  const std::string bytes = read_file(path, format == TokenFormat::text ? "--text" : "--tokens");
  const std::size_t width = format == TokenFormat::text ? 1 : format == TokenFormat::u16 ? 2 : 4;
  check(!documents || format == TokenFormat::text || documents->what == Separator::token, Code::bad_argument,
        "--documents {}: that is of a text; token:N ends a document of --tokens",
        WordsOf<DocumentsBy>::to(documents.value_or(DocumentsBy{})));
  check(!documents || documents->token < vocab, Code::bad_argument, "--documents: the token {} is beyond the vocabulary of {}",
        documents->token, vocab);
  tokens_.reserve(bytes.size() / width);
  check(bytes.size() % width == 0, Code::bad_argument,
        "'{}' has {} bytes, not a multiple of {}; does it hold tokens of another --tokens-type?", path, bytes.size(), width);
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::uint32_t token = 0;
    std::memcpy(&token, &bytes[i], width);
    check(std::int64_t(token) < vocab, Code::bad_argument, "'{}': token {} at {} is beyond the vocabulary of {}; --vocab {} has it{}", path,
          token, i / width, vocab, token + 1ull, width == 1 ? "" : ", if --tokens-type is right");
    tokens_.push_back(std::int32_t(token));
  }
  for (const auto t : tokens_) fingerprint_ = (fingerprint_ ^ std::uint32_t(t)) * 0x100000001b3ull;
  train_ = tokens_.size() - std::size_t(held_out * double(tokens_.size()));
  if (!documents) return;
  Separated text = format == TokenFormat::text ? separated(bytes, *documents, path) : separated(tokens_, documents->token, path);
  documents_ = text.documents();
  std::int64_t trained = documents_;  // whole documents are held out, and never the only one
  const double most = held_out * double(text.tokens.size());
  while (trained > 1 && double(text.begins.back() - text.begins[std::size_t(trained) - 1]) <= most) --trained;
  training_ = Packing(text, 0, trained, len);
  held_out_ = Packing(text, trained, documents_, len);
  train_ = std::size_t(text.begins[std::size_t(trained)]) + 1;
  tokens_ = std::move(text.tokens);
}

Packed Data::packed() const {
  Packed p = documents_ ? training_.packed() : Packed{};
  p.most = std::max(p.most, held_out_.most());
  return p;
}

std::string Data::documents_in_words() const {
  if (documents_ == 0) return "";
  const auto rows = training_.rows() + held_out_.rows(), cut = training_.cut() + held_out_.cut();
  return fmt::format("{} in {} of {} tokens, at most {} in a row; {:.1f} % of the positions hold a token.{}",
                     counted(std::uint64_t(documents_), "document"), counted(std::uint64_t(rows), "row"), len_, packed().most,
                     100.0 * double(training_.tokens() + held_out_.tokens()) / double(rows * len_),
                     cut == 0 ? "" : fmt::format(" {} longer than a row {} cut.", cut, cut == 1 ? "was" : "were"));
}

// Feeds each sequence of the batch with the window of tokens that begins at from(sequence).
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

void Data::feed_rows(Training& t, int micro, const Packing& of, const std::function<std::int64_t(std::int64_t)>& row,
                     std::int64_t predicted) const {
  const Recipe& r = t.recipe();
  const auto borders_of_row = r.documents.most + 1;
  std::vector<std::int32_t> tokens(std::size_t(r.batch * r.len), 0), targets(tokens.size(), -1), borders;
  for (std::int64_t b = 0; b < r.batch; ++b) {
    std::int64_t at = b * r.len;
    borders.push_back(0);
    if (const auto which = row(b); which < of.rows())  // else nothing is left for it
      for (const auto* p = of.begin_of(which); p != of.end_of(which); ++p) {
        std::copy_n(tokens_.begin() + p->begin, p->len, tokens.begin() + at);
        std::copy_n(tokens_.begin() + p->begin + 1, p->len, targets.begin() + at);
        at += p->len;
        borders.push_back(std::int32_t(at - b * r.len));
      }
    borders.resize(std::size_t((b + 1) * borders_of_row), borders.back());
  }
  t.feed(micro, tokens, targets, {borders, double(predicted)});
}

// Which row of the training part: each comes once, in an order that the seed and the number of the pass decide, and then again.
std::int64_t Data::row_drawn(const Recipe& r, std::uint64_t seed, std::int64_t step, int micro_of_all, std::int64_t b) const {
  const std::int64_t at = (step * r.micro_batches_of_all() + micro_of_all) * r.batch + b, rows = training_.rows();
  return shuffled(Random{seed}.stream(std::uint64_t(at / rows)).seed, at % rows, rows);
}

std::int64_t Data::drawn(const Recipe& r, std::uint64_t seed, std::int64_t step) const {
  if (documents_ == 0) return r.batch * r.len * r.micro_batches_of_all();
  std::int64_t sum = 0;
  for (int micro = 0; micro < r.micro_batches_of_all(); ++micro)
    for (std::int64_t b = 0; b < r.batch; ++b) sum += training_.tokens_of(row_drawn(r, seed, step, micro, b));
  return sum;
}

void Data::draw(Training& t, std::uint64_t seed, std::int64_t step, int micro) const {
  if (documents_ > 0) {
    const Recipe& r = t.recipe();
    const int of_all = r.micro_of_all(micro, t.rank());
    return feed_rows(
        t, micro, training_, [&](std::int64_t b) { return row_drawn(r, seed, step, of_all, b); }, drawn(r, seed, step));
  }
  const auto len = std::size_t(t.recipe().len);
  check(train_ > len, Code::bad_argument, "the training part has {}, too few for len {}; give a longer text, or a smaller --len",
        counted(train_, "token"), len);
  const Random random = Random{seed}.stream(std::uint64_t(step)).stream(std::uint64_t(t.recipe().micro_of_all(micro, t.rank())));
  feed(t, micro, [&](std::int64_t b) { return std::size_t(random.below(std::uint64_t(b), train_ - len)); });
}

std::int64_t Data::validation_batches(const Recipe& r) const {
  if (documents_ > 0) return ceil_div(held_out_.rows(), r.batch);
  const auto held = std::int64_t(tokens_.size() - train_);
  return std::max<std::int64_t>(0, (held - 1) / r.len / r.batch);
}

double Data::validated(const Recipe& r, std::int64_t batch) const {
  if (documents_ == 0) return double(r.batch * r.len);
  std::int64_t sum = 0;
  for (auto row = batch * r.batch; row < std::min((batch + 1) * r.batch, held_out_.rows()); ++row) sum += held_out_.tokens_of(row);
  return double(sum);
}

void Data::validation(Training& t, std::int64_t batch) const {
  if (documents_ > 0)
    return feed_rows(
        t, 0, held_out_, [&](std::int64_t b) { return batch * t.recipe().batch + b; }, std::int64_t(validated(t.recipe(), batch)));
  feed(t, 0, [&](std::int64_t b) { return train_ + std::size_t((batch * t.recipe().batch + b) * t.recipe().len); });
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
