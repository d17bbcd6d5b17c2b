// Documents packed into rows: a packed step is the step of its documents one by one; and how a text becomes rows.
#include "engine/data/documents.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "dist/threads.h"
#include "engine/data/data.h"
#include "tests/engine/dense.h"

namespace headroom::engine::documents_test {
namespace {

using Lengths = std::vector<std::int64_t>;

std::int64_t sum_of(const Lengths& lengths) { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t(0)); }

struct PackedTokens {  // a micro-batch whose rows hold documents
  std::vector<std::int32_t> tokens, targets, borders;
};

std::int32_t token_of(std::int64_t document, std::int64_t at) {
  return std::int32_t(Random{5}.below(std::uint64_t(100 * document + at), 19));
}

// Document d has tokens and targets of its own, wherever it lies.
PackedTokens packed_tokens(const std::vector<Lengths>& rows, std::int64_t first, std::int64_t len, std::int64_t most) {
  PackedTokens p;
  for (const Lengths& row : rows) {
    const auto begin = std::int64_t(p.tokens.size());
    p.borders.push_back(0);
    for (const auto n : row) {
      for (std::int64_t i = 0; i < n; ++i) p.tokens.push_back(token_of(first, i)), p.targets.push_back(token_of(first, i + 50));
      p.borders.push_back(std::int32_t(std::int64_t(p.tokens.size()) - begin));
      ++first;
    }
    p.borders.resize(p.borders.size() + std::size_t(most) - row.size(), p.borders.back());
    p.tokens.resize(std::size_t(begin + len), 3), p.targets.resize(std::size_t(begin + len), -1);
  }
  return p;
}

Recipe packed_recipe(Recipe r, std::int64_t most) {
  r.documents = {.most = most, .lengths = {{r.len, 1}}};
  return r;
}

void make_lively(Workshop& w) {  // attention that attends, gates that bend
  const Random random{99};
  std::uint64_t i = 0;
  for (const Param& p : w.training.store().params())
    for (std::int64_t e = 0; e < p.master.count(); ++e) p.master.as<float>()[e] = float(p.spec.mean) + 0.3f * random.normal(i++);
  w.training.store().refresh_copies();
}

struct Slopes {
  double loss = 0;
  std::vector<double> gradients;
  void add(double share, double of_loss, const std::vector<float>& g) {
    gradients.resize(g.size());
    loss += share * of_loss;
    for (std::size_t i = 0; i < g.size(); ++i) gradients[i] += share * double(g[i]);
  }
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {  // relative
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), size += a[i] * a[i];
  return std::sqrt(difference / size);
}

// One micro-batch of the rows given, packed.
Slopes packed_slopes(const Recipe& r, const std::vector<Lengths>& rows, double scale = 1) {
  Workshop w(r);
  make_lively(w);
  const auto p = packed_tokens(rows, 0, r.len, r.documents.most);
  double predicted = 0;
  for (const Lengths& row : rows) predicted += double(sum_of(row));
  w.training.feed(0, p.tokens, p.targets, {p.borders, predicted});
  w.training.forward();
  const double forward_loss = w.training.loss();
  w.training.backward();
  EXPECT_EQ(w.training.loss(), forward_loss);
  EXPECT_EQ(w.arena.peak(), w.predicted) << "the forecast, to the byte";
  Slopes s;
  s.add(1, w.training.loss(), w.gradients());
  for (double& g : s.gradients) g /= scale;
  return s;
}

// The same documents, each a training of its own length without any packing.
Slopes slopes_one_by_one(Recipe r, const std::vector<Lengths>& rows) {
  Slopes s;
  double all = 0;
  for (const Lengths& row : rows) all += double(sum_of(row));
  std::int64_t document = 0;
  r.batch = 1, r.documents = {};
  for (const Lengths& row : rows)
    for (const auto n : row) {
      r.len = n;
      if (n > 0) {
        Workshop w(r);
        make_lively(w);
        const auto p = packed_tokens({{n}}, document, n, 1);
        w.training.feed(0, p.tokens, p.targets);
        w.training.backward();
        s.add(double(n) / all, w.training.loss(), w.gradients());
      }
      ++document;
    }
  return s;
}

const std::vector<Lengths> rows_that_hurt = {{5, 1, 0, 9, 1, 8}, {24}, {}, {0, 0, 2, 21}};

TEST(Documents, APackedStepIsThatOfItsDocumentsOneByOne) {
  std::vector<DenseModel> models = dense_models();
  models.push_back({"tiny", tiny()});
  for (const DenseModel& m : models) {
    if (std::string_view(m.name) == "phi3") continue;  // its frequencies depend on how long a row is
    for (const char* attention : {"flash", "plain"}) {
      SCOPED_TRACE(fmt::format("{} {}", m.name, attention));
      Recipe r{m.model, 4, 24, {}};
      r.attention = attention;
      const Slopes one_by_one = slopes_one_by_one(r, rows_that_hurt), packed = packed_slopes(packed_recipe(r, 6), rows_that_hurt);
      EXPECT_NEAR(packed.loss, one_by_one.loss, 1e-6 * one_by_one.loss);
      EXPECT_LT(distance(one_by_one.gradients, packed.gradients), 5e-6);
    }
  }
}

TEST(Documents, StayApartInSixteenBitsAndInEight) {
  for (const auto& [name, unit] : {std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}, std::pair{"fp8", 0x1p-4}}) {
    SCOPED_TRACE(name);
    Recipe r{tiny(), 4, 24, *precision_named(name)};
    Recipe exact{tiny(), 4, 24, {}};
    const Slopes one_by_one = slopes_one_by_one(exact, rows_that_hurt);
    const Slopes packed = packed_slopes(packed_recipe(r, 6), rows_that_hurt, r.scales_loss() ? 0x1p16 : 1);
    EXPECT_NEAR(packed.loss, one_by_one.loss, 2 * unit * one_by_one.loss);
    EXPECT_LT(distance(one_by_one.gradients, packed.gradients), 12 * unit);
  }
}

TEST(Documents, OneThatFillsARowHasTheBitsOfASequence) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp8"})
    for (const DenseModel& m : dense_models()) {
      SCOPED_TRACE(fmt::format("{} {}", precision, m.name));
      if (m.model.positions > 0) continue;  // their gradient is added in another order
      const Recipe r{m.model, 2, 9, *precision_named(precision)};
      Workshop plain(r), packed(packed_recipe(r, 3));
      for (Workshop* w : {&plain, &packed})
        w->training.state_tensor().as<double>()[adamw::loss_scale] =
            std::min(w->training.state(adamw::loss_scale), 256.0);  // below fp16's overflow
      plain.training.backward();
      packed.training.backward();
      EXPECT_EQ(plain.training.loss(), packed.training.loss());
      EXPECT_TRUE(plain.gradients() == packed.gradients());
    }
}

TEST(Documents, EveryKeepLevelAndPhaseHasTheSameBitsAndTheBytesForecast) {
  const auto step = [](Recipe r, const Keeping& keep) {
    r.keep = keep;
    Workshop w(r);
    for (int micro = 0; micro < 2; ++micro) {
      const auto p = packed_tokens({{5, 1, 0, 9}, {Lengths{micro ? 3 : 17}}}, 10 * micro, r.len, 4);
      w.training.feed(micro, p.tokens, p.targets, {p.borders, 15 + 17 + 15 + 3});
    }
    w.training.step(r.hyper());
    EXPECT_EQ(w.arena.peak(), w.predicted);
    EXPECT_EQ(w.ledger.peak_bytes(), forecast(r, w.device, 2).peak_bytes);
    return std::pair{w.training.loss(), w.weights()};
  };
  Recipe r = packed_recipe({tiny(), 2, 17, {}}, 4);
  r.micro_batches = 2;
  change_sizes(r.model, [](PlainModel& m) { m.layers = 3; });
  const auto everything = step(r, {});
  for (const Keeping& keep : {Keeping{Keep::no_product}, Keeping{Keep::no_cheap}, Keeping{Keep::no_attention_inputs}, Keeping{Keep::input},
                              Keeping{Keep::input, 2}, Keeping{Keep::everything, 3}}) {
    SCOPED_TRACE(WordsOf<Keeping>::to(keep));
    EXPECT_TRUE(step(r, keep) == everything);
  }
  for (const Purpose purpose : {Purpose::forward, Purpose::gradients}) {
    r.purpose = purpose;
    Workshop w(r);
    purpose == Purpose::forward ? w.training.forward() : w.training.backward();
    EXPECT_EQ(w.arena.peak(), w.predicted);
  }
}

// A token counts the same in whichever micro-batch it is, also where one has many and the other few.
TEST(Documents, TheLossIsTheMeanOverAllPredictedTokensOfAStep) {
  Recipe whole = packed_recipe({tiny(), 2, 12, {}}, 3), parts = whole;
  parts.batch = 1, parts.micro_batches = 2;
  Workshop a(whole), b(parts);
  const auto both = packed_tokens({{7, 5}, {2}}, 0, 12, 3), first = packed_tokens({{7, 5}}, 0, 12, 3),
             second = packed_tokens({{2}}, 2, 12, 3);
  a.training.feed(0, both.tokens, both.targets, {both.borders, 14});
  b.training.feed(0, first.tokens, first.targets, {first.borders, 14});
  b.training.feed(1, second.tokens, second.targets, {second.borders, 14});
  a.training.backward();
  b.training.backward(0);
  b.training.backward(1);
  EXPECT_NEAR(a.training.loss(), b.training.loss(), 1e-12);
  const auto x = a.gradients(), y = b.gradients();
  EXPECT_LT(distance({x.begin(), x.end()}, {y.begin(), y.end()}), 1e-6);
  const auto empty = packed_tokens({{}}, 0, 12, 3);
  for (int micro = 0; micro < 2; ++micro) b.training.feed(micro, empty.tokens, empty.targets, {empty.borders, 0});
  b.training.backward(0);
  b.training.backward(1);
  EXPECT_EQ(b.training.loss(), 0);
  for (const float g : b.gradients()) ASSERT_EQ(g, 0) << "nothing is predicted, so nothing has a gradient";
}

TEST(Documents, WrongBordersAreRefused) {
  Workshop w(packed_recipe({tiny(), 1, 6, {}}, 2));
  const std::vector<std::int32_t> tokens(6, 1);
  for (const std::vector<std::int32_t>& borders : {std::vector{0, 3}, {0, 4, 3}, {1, 2, 3}, {0, 3, 7}})
    EXPECT_THROW(w.training.feed(0, tokens, tokens, {borders, 6}), Error);
  Workshop plain({tiny(), 1, 6, {}});
  EXPECT_THROW(plain.training.feed(0, tokens, tokens, {std::vector{0, 6}, 6}), Error);
  Recipe split = packed_recipe({tiny(), 1, 16, {}}, 2);
  split.ranks = {2, Sharding::none, true};
  EXPECT_THROW(check(split), Error);
}

TEST(Documents, FlopsCountWhatIsVisible) {
  const Packed p = packed_as({3, 0, 5, 3});
  EXPECT_EQ(p.most, 4);
  EXPECT_EQ(p.visible(attention::Mask::causal()), 6 + 15 + 6);
  EXPECT_EQ(p.visible(attention::Mask::sliding(2)), 5 + 9 + 5);
  Recipe r{tiny(), 2, 16, {}};
  const double causal = forecast(r, {}, 1).flops, model = model_flops(r);
  r.documents = packed_as(Lengths(16, 1));
  EXPECT_NEAR(model - model_flops(r), 3.5 * 4 * (16 * 17 / 2 - 16) * 2 * 4 * 4 * 2, 1e-6 * model) << "pairs, heads, batch, dim, layers";
  EXPECT_LT(forecast(r, {}, 1).flops, causal);
}

class File {
 public:
  explicit File(const std::string& bytes) : path_(testing::TempDir() + "documents_" + std::to_string(::getpid())) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> texts_of(const Separated& s) {
  std::vector<std::string> all;
  for (std::int64_t d = 0; d < s.documents(); ++d) {
    std::string text;
    for (auto i = s.begins[std::size_t(d)] + 1; i < s.begins[std::size_t(d) + 1]; ++i) text += char(s.tokens[std::size_t(i)]);
    all.push_back(text);
    EXPECT_EQ(s.tokens[std::size_t(s.begins[std::size_t(d)])], s.tokens.back()) << "the separator";
  }
  return all;
}

std::vector<std::string> texts(const std::string& bytes, const char* by) {
  return texts_of(separated(bytes, *WordsOf<DocumentsBy>::named(by), "a file"));
}

TEST(Documents, ATextIsSeparatedAsAsked) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("one\n\ntwo\r\n three", "lines"), (Texts{"one", "two", " three"}));
  EXPECT_EQ(texts("a\nb\n\n \n\nc\n", "paragraphs"), (Texts{"a\nb", "c"}));
  EXPECT_EQ(texts("{\"text\":\"a\\nb\"}\n\n{\"id\":1,\"text\":\"c\"}", "jsonl"), (Texts{"a\nb", "c"}));
  EXPECT_EQ(texts("..a.bc", "token:46"), (Texts{"a", "bc"}));
  EXPECT_EQ(separated(std::vector<std::int32_t>{7, 8, 0, 0, 9}, 0, "").begins, (std::vector<std::int64_t>{0, 3, 5}));
  for (const auto& [bytes, by] :
       {std::pair{"", "lines"}, {"\n\n", "paragraphs"}, {"{\"text\":1}", "jsonl"}, {"x", "jsonl"}, {"abc", "token:0"}})
    EXPECT_THROW((void)texts(bytes, by), Error) << bytes << " by " << by;
  for (const char* word : {"line", "token:", "token:-1", "token:1x", ""}) EXPECT_FALSE(WordsOf<DocumentsBy>::named(word)) << word;
  for (const char* word : {"lines", "paragraphs", "jsonl", "token:50256"})
    EXPECT_EQ(WordsOf<DocumentsBy>::to(*WordsOf<DocumentsBy>::named(word)), word);
}

TEST(Documents, EveryTokenIsPredictedOnceAndRowsAreNotOverfull) {
  std::vector<std::int32_t> tokens;
  for (int d = 0; d < 300; ++d) {
    tokens.resize(tokens.size() + 1 + Random{3}.below(std::uint64_t(d), d % 10 == 0 ? 90 : 30), 1);
    tokens.push_back(0);
  }
  const Separated text = separated(tokens, 0, "");
  for (const std::int64_t len : {1, 7, 32, 1000}) {
    SCOPED_TRACE(len);
    const Packing p(text, 0, text.documents(), len);
    std::set<std::int64_t> read;
    std::int64_t most = 0, cut = 0;
    for (std::int64_t row = 0; row < p.rows(); ++row) {
      EXPECT_LE(p.tokens_of(row), len);
      most = std::max(most, std::int64_t(p.end_of(row) - p.begin_of(row)));
      for (const auto* piece = p.begin_of(row); piece != p.end_of(row); ++piece)
        for (std::int64_t i = 0; i < piece->len; ++i) ASSERT_TRUE(read.insert(piece->begin + i).second);
    }
    EXPECT_EQ(std::int64_t(read.size()), std::int64_t(text.tokens.size()) - 1);
    EXPECT_EQ(p.tokens(), std::int64_t(read.size()));
    EXPECT_EQ(p.most(), most);
    EXPECT_EQ(p.packed().most, most);
    for (std::size_t d = 0; d + 1 < text.begins.size(); ++d) cut += text.begins[d + 1] - text.begins[d] > len;
    EXPECT_EQ(p.cut(), cut);
    EXPECT_GT(double(p.tokens()) / double(p.rows() * len), len < 1000 ? 0.95 : 0.7) << "packed";
  }
}

TEST(Documents, AShuffleIsAPermutationForEverySeed) {
  for (const std::int64_t n : {1, 2, 3, 15, 16, 17, 1000})
    for (const std::uint64_t seed : {0ull, 1ull, ~0ull}) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = shuffled(seed, i, n);
        ASSERT_TRUE(at >= 0 && at < n && seen.insert(at).second);
      }
    }
  int stay = 0;
  for (std::int64_t i = 0; i < 1000; ++i) stay += shuffled(1, i, 1000) == shuffled(2, i, 1000);
  EXPECT_LT(stay, 12) << "another seed is another order";
}

// Every row comes once in a pass, whichever ranks and micro-batches take it; and what is held out is whole documents that no step sees.
TEST(Documents, DataComesInPassesThatDoNotKnowOfRanks) {
  std::string bytes;
  for (int d = 0; d < 60; ++d) bytes += std::string(1 + std::size_t(d % 13), char('a' + d % 19)) + "\n";
  const File file(bytes);
  Decoder model = tiny();
  model.vocab = 256;
  const Data data(file.path(), TokenFormat::text, 256, 0.1, DocumentsBy{}, 16);
  Recipe r{model, 2, 16, {}};
  r.documents = data.packed();
  const auto tokens_of = [&](Training& t, int micro) {
    const auto* at = t.tokens(micro).as<std::int32_t>();
    return std::vector<std::int32_t>(at, at + r.batch * r.len);
  };
  Recipe alone = r;
  alone.micro_batches = 4;
  Workshop w(alone);
  std::vector<std::vector<std::int32_t>> one(4);
  for (int micro = 0; micro < 4; ++micro) {
    data.draw(w.training, 3, 1, micro);
    one[std::size_t(micro)] = tokens_of(w.training, micro);
  }
  Recipe shared = r;
  shared.micro_batches = 2, shared.ranks = {2, Sharding::none};
  EXPECT_EQ(data.drawn(shared, 3, 1), data.drawn(alone, 3, 1));
  dist::as_threads(2, [&](dist::Comm& comm) {
    Workshop mine(shared, 1, {}, &comm);
    for (int micro = 0; micro < 2; ++micro) {
      data.draw(mine.training, 3, 1, micro);
      EXPECT_EQ(tokens_of(mine.training, micro), one[std::size_t(micro * 2 + comm.rank())]);
    }
  });
  double predicted = 0;
  for (std::int64_t b = 0; b < data.validation_batches(r); ++b) predicted += data.validated(r, b);
  EXPECT_GT(predicted, 0);
  EXPECT_LE(predicted, 0.1 * double(data.size()));
}

}  // namespace
}  // namespace headroom::engine::documents_test
