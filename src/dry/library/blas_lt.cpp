// cuBLASLt: descriptors keep what is needed to say a product's shape, and the heuristic answers with one algorithm without workspace of its own
// (PyTorch brings one, of a size that it chooses itself).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "dry/library/public.h"
#include "dry/library/work.h"

using namespace headroom::dry;

namespace {

enum Attribute { transposed_a = 3, transposed_b = 4, batch_count = 5 };  // the first two are a product's, the last a layout's

struct ProductOf {
  int compute = -1, scale_type = 0;
  std::int32_t left = 0, right = 0;  // 0: not transposed
};

struct Layout {
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
  std::int32_t batch = 1;
};

struct Result {  // cublasLtMatmulHeuristicResult_t
  std::uint64_t algorithm[8];
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

int one_result(Result* results, int* count) {
  results[0] = {};
  results[0].waves = 1;
  *count = 1;
  return ok;
}

}  // namespace

extern "C" {
int cublasLtCreate(void** out) {
  *out = new char;
  return ok;
}
int cublasLtDestroy(void* h) {
  delete static_cast<char*>(h);
  return ok;
}
int cublasLtMatmulDescCreate(ProductOf** out, int compute, int scale_type) {
  *out = new ProductOf{compute, scale_type};
  return ok;
}
int cublasLtMatmulDescDestroy(ProductOf* p) {
  delete p;
  return ok;
}
int cublasLtMatmulDescSetAttribute(ProductOf* p, int attribute, const void* value, std::size_t bytes) {
  if (attribute == transposed_a) std::memcpy(&p->left, value, std::min(bytes, sizeof p->left));
  if (attribute == transposed_b) std::memcpy(&p->right, value, std::min(bytes, sizeof p->right));
  return ok;
}
int cublasLtMatmulDescGetAttribute(const ProductOf*, int, void* out, std::size_t bytes, std::size_t* written) {
  std::memset(out, 0, bytes);
  if (written) *written = bytes;
  return ok;
}
int cublasLtMatrixLayoutCreate(Layout** out, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t) {
  *out = new Layout{type, rows, columns};
  return ok;
}
int cublasLtMatrixLayoutDestroy(Layout* l) {
  delete l;
  return ok;
}
int cublasLtMatrixLayoutSetAttribute(Layout* l, int attribute, const void* value, std::size_t bytes) {
  if (attribute == batch_count) std::memcpy(&l->batch, value, std::min(bytes, sizeof l->batch));
  return ok;
}
int cublasLtMatmulPreferenceCreate(void** out) {
  *out = new char;
  return ok;
}
int cublasLtMatmulPreferenceDestroy(void* p) {
  delete static_cast<char*>(p);
  return ok;
}
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, std::size_t) { return ok; }
int cublasLtMatmulAlgoGetHeuristic(void*, ProductOf*, Layout*, Layout*, Layout*, Layout*, void*, int, Result* results, int* count) {
  return one_result(results, count);
}
int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int, int* ids, int* count) {
  ids[0] = 0;
  *count = 1;
  return ok;
}
int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int, void* algorithm) {
  std::memset(algorithm, 0, sizeof Result().algorithm);
  return ok;
}
int cublasLtMatmulAlgoCheck(void*, ProductOf*, Layout*, Layout*, Layout*, Layout*, const void*, Result* result) {
  int one = 0;
  return one_result(result, &one);
}
int cublasLtMatmulAlgoConfigSetAttribute(void*, int, const void*, std::size_t) { return ok; }
int cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void* out, std::size_t bytes, std::size_t* written) {
  std::memset(out, 0, bytes);
  if (written) *written = bytes;
  return ok;
}
int cublasLtMatmul(void*, const ProductOf* p, const void*, const void*, const Layout* a, const void*, const Layout* b, const void*,
                   const void*, const Layout*, void*, const Layout* d, const void*, void* workspace, std::size_t, StreamHandle stream) {
  static thread_local void* told = nullptr;
  if (workspace && workspace != told) tell_workspace(workspace);
  told = workspace;
  multiplied("cublasLtMatmul", stream,
             {.m = std::int64_t(d->rows),
              .n = std::int64_t(d->columns),
              .k = std::int64_t(p->left ? a->rows : a->columns),
              .batch = d->batch,
              .type_a = a->type,
              .type_b = b->type,
              .type_c = d->type,
              .compute = p->compute,
              .left_transposed = p->left != 0,
              .right_transposed = p->right != 0});
  return ok;
}
int cublasLtMatrixTransformDescCreate(void** out, int) {
  *out = new char;
  return ok;
}
int cublasLtMatrixTransformDescDestroy(void* p) {
  delete static_cast<char*>(p);
  return ok;
}
int cublasLtMatrixTransformDescSetAttribute(void*, int, const void*, std::size_t) { return ok; }
int cublasLtMatrixTransform(void*, const void*, const void*, const void*, const Layout* a, const void*, const void*, const Layout*, void*,
                            const Layout*, StreamHandle stream) {
  copied(Way::on_device, a->rows * a->columns, stream);
  return ok;
}
}
