// The scratch of cuDNN's recurrent layers beside what a card took, row by row of the tables in bench/results.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Library {
  int (*make_layers)(void**) = nullptr;
  int (*set_layers)(void*, int, int, int, int, int, int, int, int, int, int, int, int, void*, unsigned) = nullptr;
  int (*make_data)(void**) = nullptr;
  int (*set_data)(void*, int, int, int, int, int, const int*, void*) = nullptr;
  int (*end_layers)(void*) = nullptr;
  int (*end_data)(void*) = nullptr;
  int (*make_dropout)(void**) = nullptr;
  int (*set_dropout)(void*, const void*, float, void*, std::size_t, unsigned long long) = nullptr;
  int (*end_dropout)(void*) = nullptr;
  int (*sizes)(const void*, const void*, int, const void*, std::size_t*, std::size_t*) = nullptr;

  Library() {
    void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    find(library, make_layers, "cudnnCreateRNNDescriptor");
    find(library, set_layers, "cudnnSetRNNDescriptor_v8");
    find(library, make_data, "cudnnCreateRNNDataDescriptor");
    find(library, set_data, "cudnnSetRNNDataDescriptor");
    find(library, end_layers, "cudnnDestroyRNNDescriptor");
    find(library, end_data, "cudnnDestroyRNNDataDescriptor");
    find(library, make_dropout, "cudnnCreateDropoutDescriptor");
    find(library, set_dropout, "cudnnSetDropoutDescriptor");
    find(library, end_dropout, "cudnnDestroyDropoutDescriptor");
    find(library, sizes, "cudnnGetRNNTempSpaceSizes");
  }
  template <class F>
  static void find(void* library, F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(library, name));
  }
};

struct Row {
  std::string cell, pass, type;
  long long batch, length, width, hidden, layers, both_ways, places, extra;
  bool packed;
};

std::vector<Row> rows_of(const std::string& name) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR "/bench/results/") + name);
  std::vector<Row> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    Row r;
    std::string layout;
    words >> r.cell >> r.pass >> r.type >> layout >> r.batch >> r.length >> r.width >> r.hidden >> r.layers >> r.both_ways;
    r.packed = layout == "packed";
    r.places = r.batch * r.length;
    if (r.packed) words >> r.places;
    words >> r.extra;
    if (words) rows.push_back(r);
  }
  return rows;
}

// PyTorch's choice of an algorithm (aten/src/ATen/native/cudnn/RNN.cpp): of plain layers with small matrices, and of an LSTM in fp16.
int algorithm_of(const Row& r) {
  const bool plain = r.cell == "RNN", forward = r.pass == "forward";
  if (r.hidden <= (plain ? (forward ? 384 : 256) : forward ? 192 : 128)) return 3;
  const bool persists =
      r.type == "fp16" && r.layers == 1 && r.both_ways == 0 && r.hidden <= 1024 && r.hidden % 128 == 0 && r.width % 128 == 0;
  return persists && r.cell != "GRU" && r.batch % 8 == 0 && r.batch <= 128 ? 1 : 0;
}

long long extra_of(const Library& l, const Row& r) {
  const int type = r.type == "fp32" ? 0 : r.type == "fp16" ? 2 : 9, cell = r.cell == "LSTM" ? 2 : r.cell == "GRU" ? 3 : 1;
  const long long element = type == 0 ? 4 : 2, input = r.packed ? 0 : r.places * r.width * element;
  void *layers = nullptr, *data = nullptr;
  l.make_layers(&layers);
  l.make_data(&data);
  l.set_layers(layers, algorithm_of(r), cell, 2, int(r.both_ways), 0, type, 0, 0, int(r.width), int(r.hidden), int(r.hidden), int(r.layers),
               nullptr, 0);
  std::vector<int> lengths;  // with as many places together
  for (long long left = r.places; (long long)lengths.size() < r.batch; left -= lengths.back())
    lengths.push_back(int(std::min(r.length, left - (r.batch - (long long)lengths.size() - 1))));
  l.set_data(data, type, r.packed ? 1 : 2, int(r.length), int(r.batch), int(r.width), lengths.data(), nullptr);
  std::size_t work = 0, reserve = 0;
  EXPECT_EQ(l.sizes(nullptr, layers, 1, data, &work, &reserve), 0);
  l.end_layers(layers);
  l.end_data(data);
  if (r.pass == "forward") return (long long)work + input;  // a copy of the input, which is batch first
  const long long states = (r.cell == "LSTM" ? 4 : 2) * r.layers * (1 + r.both_ways) * r.batch * r.hidden * element;
  const long long padding =
      (r.batch * r.length - r.places) * r.width * element;  // a result's, the input's gradient, which at the peak is packed
  return (long long)(work + reserve) + input + states + 2 * element - padding;
}

void hold(const std::vector<Row>& rows) {
  const Library l;
  ASSERT_TRUE(l.make_layers && l.set_layers && l.end_layers && l.make_data && l.set_data && l.end_data && l.sizes);
  for (const Row& r : rows) {
    SCOPED_TRACE(testing::Message() << r.cell << " " << r.pass << " " << r.type << " " << r.batch << " " << r.length << " " << r.width
                                    << " " << r.hidden << " " << r.layers << " " << r.both_ways << " " << r.places);
    const bool keeps_much = r.cell == "LSTM" && r.layers > 1;
    if (r.pass == "backward" && !keeps_much)
      EXPECT_LE(extra_of(l, r), r.extra);  // where little is kept PyTorch's gradients of the weights may make the peak
    else
      EXPECT_EQ(extra_of(l, r), r.extra);
  }
}

TEST(RecurrentScratch, IsWhatAnH100Took) {
  auto rows = rows_of("h100_scratch_recurrent_2026-11-24.csv");
  const auto others = rows_of("h100_scratch_recurrent_others_2026-11-24.csv");
  rows.insert(rows.end(), others.begin(), others.end());
  ASSERT_EQ(rows.size(), 108u + 180u);
  hold(rows);
}

TEST(RecurrentScratch, OfPackedSequencesIsWhatAnH200Took) {
  const auto rows = rows_of("h200_scratch_recurrent_packed_2026-11-29.csv");
  ASSERT_EQ(rows.size(), 360u);
  hold(rows);
}

// Layers that drop numbers between them, FP32, one way: work and what is kept for backward, on an H200 with cuDNN 9.19.
TEST(RecurrentScratch, OfLayersThatDropNumbersIsWhatAnH200Took) {
  const Library l;
  ASSERT_TRUE(l.sizes && l.make_dropout && l.set_dropout && l.end_dropout);
  struct Took {
    int cell, batch, length, width, hidden;
    std::size_t work, reserve;
  };
  for (const Took& t : {Took{2, 26, 213, 500, 410, 94549248, 100189632}, Took{2, 20, 35, 650, 650, 57597632, 20077152},
                        Took{3, 31, 50, 200, 200, 26385728, 16159008}}) {
    void *layers = nullptr, *data = nullptr, *dropout = nullptr;
    l.make_layers(&layers);
    l.make_data(&data);
    l.make_dropout(&dropout);
    l.set_dropout(dropout, nullptr, 0.2f, nullptr, 0, 0);
    const auto set = [&](void* with) { l.set_layers(layers, 0, t.cell, 2, 0, 0, 0, 0, 0, t.width, t.hidden, t.hidden, 2, with, 0); };
    l.set_data(data, 0, 2, t.length, t.batch, t.width, std::vector<int>(std::size_t(t.batch), t.length).data(), nullptr);
    std::size_t work = 0, reserve = 0;
    set(dropout);
    EXPECT_EQ(l.sizes(nullptr, layers, 1, data, &work, &reserve), 0);
    EXPECT_EQ(work, t.work);
    EXPECT_EQ(reserve, t.reserve);
    set(nullptr);
    EXPECT_EQ(l.sizes(nullptr, layers, 1, data, &work, &reserve), 0);
    EXPECT_LT(work, t.work);
    EXPECT_LT(reserve, t.reserve);
    l.end_layers(layers);
    l.end_data(data);
    l.end_dropout(dropout);
  }
}

// The same both ways in fp16: a transducer's encoder, three layers of 320 with inputs of 80.
TEST(RecurrentScratch, OfLayersThatDropNumbersBothWaysIsWhatAnH200Took) {
  const Library l;
  ASSERT_TRUE(l.sizes && l.make_dropout && l.set_dropout && l.end_dropout);
  constexpr int batch = 6, length = 240, width = 80, hidden = 320, fp16 = 2, lstm = 2;
  void *layers = nullptr, *data = nullptr, *dropout = nullptr;
  l.make_layers(&layers);
  l.make_data(&data);
  l.make_dropout(&dropout);
  l.set_dropout(dropout, nullptr, 0.1f, nullptr, 0, 0);
  l.set_layers(layers, 0, lstm, 2, 1, 0, fp16, 0, 0, width, hidden, hidden, 3, dropout, 0);
  l.set_data(data, fp16, 2, length, batch, width, std::vector<int>(batch, length).data(), nullptr);
  std::size_t work = 0, reserve = 0;
  EXPECT_EQ(l.sizes(nullptr, layers, 1, data, &work, &reserve), 0);
  EXPECT_EQ(work, 75619648u);
  EXPECT_EQ(reserve, 31795456u);
  l.end_layers(layers);
  l.end_data(data);
  l.end_dropout(dropout);
}

// A layer in fp16 whose rows are no multiples of 16 bytes, both ways, copies its input and output once more.
TEST(RecurrentScratch, OfOddRowsIsWhatAnH200Took) {
  const Library l;
  ASSERT_TRUE(l.sizes);
  const auto work_of = [&](int length, int hidden) {
    void *layers = nullptr, *data = nullptr;
    l.make_layers(&layers);
    l.make_data(&data);
    l.set_layers(layers, 0, 3, 2, 1, 0, 2, 0, 0, 700, hidden, hidden, 1, nullptr, 0);
    l.set_data(data, 2, 2, length, 64, 700, std::vector<int>(64, length).data(), nullptr);
    std::size_t work = 0, reserve = 0;
    EXPECT_EQ(l.sizes(nullptr, layers, 1, data, &work, &reserve), 0);
    l.end_layers(layers);
    l.end_data(data);
    return work;
  };
  EXPECT_EQ(work_of(30, 350), 46007200u);
  EXPECT_EQ(work_of(50, 350), 62135200u);
  EXPECT_LT(work_of(50, 352), 57000000u);
}

// Two layers of a GRU, one place of 120 sequences: not exact, but no copies of places that are not there.
TEST(RecurrentScratch, OfOnePlaceIsNearWhatAnH200Took) {
  const Library l;
  ASSERT_TRUE(l.sizes);
  const Row one{"GRU", "forward", "fp32", 120, 1, 768, 768, 2, 0, 120, 0, false};
  constexpr long long state = 120 * 768 * 4, took = 50988224;
  EXPECT_NEAR(double(extra_of(l, one) - state), double(took), 2 * state);
}

}  // namespace
