// The workspace of cuDNN's batch norm beside what cuDNN said on a card, row by row of the table in bench/results.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int fp32 = 0, fp16 = 2, bf16 = 9, spatial = 1, persistent = 2;

struct NormLibrary {
  int (*make)(void**) = nullptr;
  int (*end)(void*) = nullptr;
  int (*set)(void*, int, int, const int*, const int*) = nullptr;
  int (*get)(const void*, int, int*, int*, int*, int*) = nullptr;
  int (*forward)(const void*, int, int, const void*, const void*, const void*, const void*, const void*, std::size_t*) = nullptr;
  int (*backward)(const void*, int, int, const void*, const void*, const void*, const void*, const void*, const void*, const void*,
                  std::size_t*) = nullptr;
  int (*reserve)(const void*, int, int, const void*, const void*, std::size_t*) = nullptr;

  NormLibrary() {
    void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    find(library, make, "cudnnCreateTensorDescriptor");
    find(library, end, "cudnnDestroyTensorDescriptor");
    find(library, set, "cudnnSetTensorNdDescriptor");
    find(library, get, "cudnnGetTensorNdDescriptor");
    find(library, forward, "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize");
    find(library, backward, "cudnnGetBatchNormalizationBackwardExWorkspaceSize");
    find(library, reserve, "cudnnGetBatchNormalizationTrainingExReserveSpaceSize");
  }
  template <class F>
  static void find(void* library, F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(library, name));
  }
  bool whole() const { return make && end && set && get && forward && backward && reserve; }
};

struct Sizes {
  std::size_t forward = 1, backward = 1, reserve = 1;
};
Sizes sizes_of(const NormLibrary& l, int type, int mode, const std::vector<int>& shape) {
  void* x = nullptr;
  l.make(&x);
  const std::vector<int> strides(shape.size(), 1);  // sizes do not depend on them
  l.set(x, type, int(shape.size()), shape.data(), strides.data());
  Sizes s;
  EXPECT_EQ(l.forward(nullptr, mode, 0, x, nullptr, x, x, nullptr, &s.forward), 0);
  EXPECT_EQ(l.backward(nullptr, mode, 0, x, x, x, nullptr, x, x, nullptr, &s.backward), 0);
  EXPECT_EQ(l.reserve(nullptr, mode, 0, nullptr, x, &s.reserve), 0);
  l.end(x);
  return s;
}

TEST(BatchNorm, TakesWhatAnH100Said) {
  const NormLibrary l;
  ASSERT_TRUE(l.whole());
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/h100_batch_norm_2026-11-26.csv");
  std::string line;
  std::getline(in, line);
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    SCOPED_TRACE(line);
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    std::string type, shape;
    std::size_t forward = 0, backward = 0;
    words >> type >> shape >> forward >> backward;
    std::replace(shape.begin(), shape.end(), 'x', ' ');
    std::istringstream numbers(shape);
    std::vector<int> dims;
    for (int n = 0; numbers >> n;) dims.push_back(n);
    for (const int number : type == "fp32" ? std::vector{fp32} : std::vector{fp16, bf16}) {
      const Sizes s = sizes_of(l, number, persistent, dims);
      EXPECT_EQ(s.forward, forward);
      EXPECT_EQ(s.backward, backward);
      EXPECT_EQ(s.reserve, 0u);
      const Sizes plain = sizes_of(l, number, spatial, dims);
      EXPECT_EQ(plain.forward + plain.backward + plain.reserve, 0u);
    }
  }
  EXPECT_EQ(rows, 1088);
}

TEST(BatchNorm, ADescriptionIsWhatItsCallerSaid) {
  const NormLibrary l;
  ASSERT_TRUE(l.whole());
  void* t = nullptr;
  l.make(&t);
  const std::vector<int> size{2, 16, 8, 24, 20}, stride{61440, 3840, 480, 20, 1};
  l.set(t, bf16, 5, size.data(), stride.data());
  int type = 0, dims = 0;
  std::vector<int> sizes(5), strides(5);
  l.get(t, 5, &type, &dims, sizes.data(), strides.data());
  EXPECT_EQ(type, bf16);
  EXPECT_EQ(dims, 5);
  EXPECT_EQ(sizes, size);
  EXPECT_EQ(strides, stride);
  l.end(t);
}

}  // namespace
