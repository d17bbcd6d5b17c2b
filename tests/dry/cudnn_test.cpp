// cuDNN's descriptors as PyTorch's frontend uses them, without a libcudnn in the process: the library answers itself.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace {

struct Backend {
  int (*create)(int, void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set)(void*, int, int, std::int64_t, const void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  int (*get)(void*, int, int, std::int64_t, std::int64_t*, void*) = nullptr;

  Backend() {
    void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    find(library, create, "cudnnBackendCreateDescriptor");
    find(library, destroy, "cudnnBackendDestroyDescriptor");
    find(library, set, "cudnnBackendSetAttribute");
    find(library, finalize, "cudnnBackendFinalize");
    find(library, get, "cudnnBackendGetAttribute");
  }
  template <class F>
  static void find(void* library, F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(library, name));
  }
  void* made(int kind) const {
    void* d = nullptr;
    EXPECT_EQ(create(kind, &d), 0);
    return d;
  }
  void part(void* of, int attribute, void* d) const { EXPECT_EQ(set(of, attribute, 15, 1, &d), 0); }
};

// Published enumerations: kinds of descriptors, and attributes.
constexpr int config = 3, search = 4, plan = 5, forward_convolution = 10, graph = 15, tensor = 18, attention = 41;
constexpr int search_graph = 201, search_results = 202, plan_config = 401, plan_workspace = 402, graph_operations = 801, tensor_dims = 902,
              tensor_type = 901, tensor_strides = 903;
constexpr int forward_filter = 703, forward_input = 704, forward_output = 705;
constexpr int attention_q = 2800, attention_k = 2801;

TEST(Cudnn, APlanKnowsItsOperationAfterItsPartsAreDestroyed) {
  const Backend b;
  ASSERT_TRUE(b.create && b.destroy && b.set && b.finalize && b.get);
  const std::int64_t dims[] = {2, 8, 512, 64};
  void *const q = b.made(tensor), *const k = b.made(tensor), *const op = b.made(attention), *const g = b.made(graph);
  for (void* t : {q, k}) EXPECT_EQ(b.set(t, tensor_dims, 3, 4, dims), 0);
  b.part(op, attention_q, q);
  b.part(op, attention_k, k);
  for (void* t : {q, k}) EXPECT_EQ(b.destroy(t), 0);  // as PyTorch's convolutions do, before the graph is made
  b.part(g, graph_operations, op);
  EXPECT_EQ(b.destroy(op), 0);
  EXPECT_EQ(b.finalize(g), 0);
  void *const s = b.made(search), *const found = b.made(config), *const p = b.made(plan);
  b.part(s, search_graph, g);
  EXPECT_EQ(b.finalize(s), 0);
  std::int64_t count = 0;
  void* results[] = {found};
  EXPECT_EQ(b.get(s, search_results, 15, 1, &count, results), 0);
  EXPECT_EQ(count, 1);
  b.part(p, plan_config, found);
  EXPECT_EQ(b.finalize(p), 0);
  std::int64_t workspace = -1;
  EXPECT_EQ(b.get(p, plan_workspace, 3, 1, &count, &workspace), 0);
  EXPECT_EQ(workspace, 256);  // what attention asks for on an H200
  for (void* d : {g, s, found, p}) EXPECT_EQ(b.destroy(d), 0);
}

// A plan of a convolution of two images in bf16, 64 channels of 8 x 8, by a filter of 3 x 3.
std::int64_t workspace_of_convolution(const Backend& b, bool channels_innermost) {
  constexpr int type_of_data = 1, brain = 9;
  const std::int64_t images[] = {2, 64, 8, 8}, weights[] = {64, 64, 3, 3};
  void *const filter = b.made(tensor), *const in = b.made(tensor), *const out = b.made(tensor), *const op = b.made(forward_convolution);
  for (void* t : {filter, in, out}) {
    const std::int64_t* const dims = t == filter ? weights : images;
    const std::int64_t places = dims[2] * dims[3];
    const std::int64_t plain[] = {dims[1] * places, places, dims[3], 1}, innermost[] = {dims[1] * places, 1, dims[3] * dims[1], dims[1]};
    EXPECT_EQ(b.set(t, tensor_type, type_of_data, 1, &brain), 0);
    EXPECT_EQ(b.set(t, tensor_dims, 3, 4, dims), 0);
    EXPECT_EQ(b.set(t, tensor_strides, 3, 4, channels_innermost ? innermost : plain), 0);
  }
  b.part(op, forward_filter, filter);
  b.part(op, forward_input, in);
  b.part(op, forward_output, out);
  void *const g = b.made(graph), *const s = b.made(search), *const found = b.made(config), *const p = b.made(plan);
  b.part(g, graph_operations, op);
  b.part(s, search_graph, g);
  std::int64_t count = 0, workspace = -1;
  void* results[] = {found};
  EXPECT_EQ(b.finalize(g) + b.finalize(s) + b.get(s, search_results, 15, 1, &count, results), 0);
  b.part(p, plan_config, found);
  EXPECT_EQ(b.finalize(p) + b.get(p, plan_workspace, 3, 1, &count, &workspace), 0);
  for (void* d : {filter, in, out, op, g, s, found, p}) EXPECT_EQ(b.destroy(d), 0);
  return workspace;
}

TEST(Cudnn, WithoutItsLibraryAConvolutionsWorkspaceHasCopiesOfTensorsThatKernelsNeedTurned) {
  const Backend b;
  ASSERT_TRUE(b.create && b.destroy && b.set && b.finalize && b.get);
  EXPECT_EQ(workspace_of_convolution(b, true), 131);
  EXPECT_EQ(workspace_of_convolution(b, false), 2 * (2 * 2 * 64 * 8 * 8 + 64 * 64 * 3 * 3));
}

}  // namespace
