// Documents of a text, cut to the length of a row and packed into rows, so that a step trains on many at once and none sees another.
// A document begins with its separator, which it reads, and ends with the next one, which it predicts; so every token of a text but the
// very first is predicted exactly once. It reads all of its tokens but the last.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/described.h"
#include "ops/attention/attention.h"

namespace headroom::engine {

struct Packed {           // what a recipe's rows hold
  std::int64_t most = 0;  // documents of a row, at most; 0: rows are not packed
  struct Some {
    std::int64_t len;
    double count;
  };
  std::vector<Some> lengths{};  // how many of each length a row has, on average: FLOPs count them

  explicit operator bool() const { return most > 0; }
  double visible(const attention::Mask&) const;     // pairs of a row and head that see each other
  attention::Problem of(attention::Problem) const;  // the same, where rows hold this
};
Packed packed_as(const std::vector<std::int64_t>& lengths);  // the same for every row; none: not packed

enum class Separator : std::uint8_t {
  line,       // every line of a text; the separator is its end
  paragraph,  // separated by empty lines; the separator is byte 0
  jsonl,      // the string "text" of the JSON object on every line; byte 0 again
  token       // separated by a token in the file
};

struct DocumentsBy {
  Separator what = Separator::line;
  std::int64_t token = '\n';  // the separator

  friend bool operator==(const DocumentsBy&, const DocumentsBy&) = default;
};

// A text as separator, document, separator, …, separator. Documents of no tokens are left out.
struct Separated {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> begins;  // position of each document's separator; at the end, the last one's
  std::int64_t documents() const { return std::int64_t(begins.size()) - 1; }
};
// An Error (bad_argument, named after `path`) where a file has no document or is not what it should be.
Separated separated(const std::string& bytes, const DocumentsBy&, const std::string& path);
Separated separated(const std::vector<std::int32_t>& tokens, std::int64_t separator, const std::string& path);

class Packing {
 public:
  struct Piece {
    std::int64_t begin, len;  // reads tokens begin … begin + len − 1, predicts begin + 1 … begin + len
  };
  Packing() = default;
  // Documents [from, to) in rows of `len`: those that are longer are cut, and each piece, longest first, lies in the fullest row that
  // has room for it.
  Packing(const Separated&, std::int64_t from, std::int64_t to, std::int64_t len);

  std::int64_t rows() const { return std::int64_t(first_.size()) - 1; }
  std::int64_t cut() const { return cut_; }    // documents that were longer than a row
  std::int64_t most() const { return most_; }  // pieces of a row
  std::int64_t tokens() const;                 // number of predicted tokens
  std::int64_t tokens_of(std::int64_t row) const;
  const Piece* begin_of(std::int64_t row) const { return pieces_.data() + first_[std::size_t(row)]; }
  const Piece* end_of(std::int64_t row) const { return pieces_.data() + first_[std::size_t(row) + 1]; }
  Packed packed() const;

 private:
  std::vector<Piece> pieces_;  // row by row
  std::vector<std::int64_t> first_{0};
  std::int64_t cut_ = 0, most_ = 0;
};

// Place `at` of a shuffled 0 … n − 1: a permutation for each seed.
std::int64_t shuffled(std::uint64_t seed, std::int64_t at, std::int64_t n);

}  // namespace headroom::engine

namespace headroom {

// lines, paragraphs, jsonl, or token:N.
template <>
struct WordsOf<engine::DocumentsBy> {
  static constexpr std::string_view by_token = "token:";
  static std::string to(const engine::DocumentsBy& d) {
    using enum engine::Separator;
    return d.what == line        ? "lines"
           : d.what == paragraph ? "paragraphs"
           : d.what == jsonl     ? "jsonl"
                                 : fmt::format("{}{}", by_token, d.token);
  }
  static std::optional<engine::DocumentsBy> named(std::string_view word) {
    using enum engine::Separator;
    for (const engine::DocumentsBy d : {engine::DocumentsBy{line, '\n'}, {paragraph, 0}, {jsonl, 0}})
      if (to(d) == word) return d;
    engine::DocumentsBy d{engine::Separator::token, 0};
    if (!word.starts_with(by_token)) return std::nullopt;
    word.remove_prefix(by_token.size());
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), d.token);
    if (error != std::errc() || end != word.data() + word.size() || d.token < 0) return std::nullopt;
    return d;
  }
  static std::vector<std::string> all() { return {"lines", "paragraphs", "jsonl", "token:N"}; }
};

}  // namespace headroom
