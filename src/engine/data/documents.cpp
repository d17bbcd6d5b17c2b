#include "engine/data/documents.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"

namespace headroom::engine {

double Packed::visible(const attention::Mask& mask) const {
  double pairs = 0;
  for (const Some& s : lengths) pairs += s.count * attention::band_of(mask, s.len, s.len).visible();
  return pairs;
}

attention::Problem Packed::of(attention::Problem p) const {
  p.documents = most;
  if (most > 0) p.visible_in_documents = visible(p.mask);
  return p;
}

namespace {
std::vector<Packed::Some> lengths_counted(const std::map<std::int64_t, std::int64_t>& of_len, double rows) {
  std::vector<Packed::Some> all;
  for (const auto& [len, count] : of_len) all.push_back({len, double(count) / rows});
  return all;
}
}  // namespace

Packed packed_as(const std::vector<std::int64_t>& lengths) {
  std::map<std::int64_t, std::int64_t> of_len;
  for (const auto len : lengths) ++of_len[len];
  return {.most = std::int64_t(lengths.size()), .lengths = lengths_counted(of_len, 1)};
}

namespace {

class Separating {
 public:
  explicit Separating(std::int32_t separator) : separator_(separator) { end(); }
  void add(std::int32_t token) { all_.tokens.push_back(token); }
  void add(std::string_view text) {
    for (const char c : text) add(std::int32_t(std::uint8_t(c)));
  }
  void end() {  // ends a document, if one is open
    if (!all_.begins.empty() && all_.begins.back() + 1 == std::int64_t(all_.tokens.size())) return;
    all_.begins.push_back(std::int64_t(all_.tokens.size()));
    all_.tokens.push_back(separator_);
  }
  Separated done(const std::string& path) {
    end();
    check(all_.documents() > 0, Code::bad_argument, "--documents: '{}' has no document", path);
    return std::move(all_);
  }

 private:
  std::int32_t separator_;
  Separated all_;
};

}  // namespace

Separated separated(const std::vector<std::int32_t>& tokens, std::int64_t separator, const std::string& path) {
  check(std::find(tokens.begin(), tokens.end(), separator) != tokens.end(), Code::bad_argument,
        "--documents: token {} is not in '{}'; which one ends its documents?", separator, path);
  Separating all{std::int32_t(separator)};
  for (const auto token : tokens) token == separator ? all.end() : all.add(token);
  return all.done(path);
}

Separated separated(const std::string& bytes, const DocumentsBy& by, const std::string& path) {
  if (by.what == Separator::token)
    return separated(std::vector<std::int32_t>(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                               reinterpret_cast<const std::uint8_t*>(bytes.data()) + bytes.size()),
                     by.token, path);
  Separating all{std::int32_t(by.token)};
  std::int64_t number = 0;
  bool inside = false;  // a paragraph
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    std::string_view line(bytes.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool empty = line.find_first_not_of(" \t") == std::string_view::npos;
    if (by.what == Separator::paragraph) {
      if (empty)
        all.end();
      else if (inside)
        all.add('\n');
      if (!empty) all.add(line);
      inside = !empty;
    } else if (by.what == Separator::line) {
      all.add(line);
      all.end();
    } else if (!empty) {
      const auto object = parse_json_or_discard(std::string(line));
      check(object.is_object() && object.contains("text") && object["text"].is_string(), Code::bad_argument,
            "--documents jsonl: line {} of '{}' is no JSON object with a string called \"text\"", number, path);
      all.add(object["text"].get_ref<const std::string&>());
      all.end();
    }
  }
  return all.done(path);
}

Packing::Packing(const Separated& text, std::int64_t from, std::int64_t to, std::int64_t len) {
  std::vector<Piece> pieces;
  for (auto d = from; d < to; ++d) {
    const auto end = text.begins[std::size_t(d) + 1];
    auto begin = text.begins[std::size_t(d)];
    cut_ += end - begin > len;
    for (; begin < end; begin += len) pieces.push_back({begin, std::min(len, end - begin)});
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.len > b.len; });
  std::map<std::int64_t, std::vector<std::int64_t>> with_room;  // rows, by how many tokens they still take
  std::vector<std::int64_t> row_of(pieces.size()), of_row;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto fits = with_room.lower_bound(pieces[i].len);
    std::int64_t row = std::int64_t(of_row.size()), left = len;
    if (fits != with_room.end()) {
      left = fits->first;
      row = fits->second.back();
      fits->second.pop_back();
      if (fits->second.empty()) with_room.erase(fits);
    } else {
      of_row.push_back(0);
    }
    row_of[i] = row;
    ++of_row[std::size_t(row)];
    if (left > pieces[i].len) with_room[left - pieces[i].len].push_back(row);
  }
  for (const auto count : of_row) first_.push_back(first_.back() + count), most_ = std::max(most_, count);
  std::vector<std::int64_t> next(first_.begin(), first_.end() - 1);
  pieces_.resize(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces_[std::size_t(next[std::size_t(row_of[i])]++)] = pieces[i];
}

std::int64_t Packing::tokens_of(std::int64_t row) const {
  return std::accumulate(begin_of(row), end_of(row), std::int64_t(0), [](std::int64_t sum, const Piece& p) { return sum + p.len; });
}

std::int64_t Packing::tokens() const {
  return std::accumulate(pieces_.begin(), pieces_.end(), std::int64_t(0), [](std::int64_t sum, const Piece& p) { return sum + p.len; });
}

Packed Packing::packed() const {
  std::map<std::int64_t, std::int64_t> of_len;
  for (const Piece& p : pieces_) ++of_len[p.len];
  return {.most = most_, .lengths = lengths_counted(of_len, double(rows()))};
}

// A Feistel network over the least power of 4 that is not below n; what comes out beyond n goes in again.
std::int64_t shuffled(std::uint64_t seed, std::int64_t at, std::int64_t n) {
  int half = 1;
  while (half < 31 && (std::int64_t(1) << (2 * half)) < n) ++half;
  const std::uint64_t mask = (std::uint64_t(1) << half) - 1;
  auto x = std::uint64_t(at);
  do {
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t low = x & mask;
      x = low << half | ((x >> half) ^ (Random{seed}.stream(round).bits(low) & mask));
    }
  } while (x >= std::uint64_t(n));
  return std::int64_t(x);
}

}  // namespace headroom::engine
