#include "gpu/cublaslt_variations.h"

#include <cstdint>

namespace headroom::blas {

namespace {

struct Setting {
  cublasLtMatmulTile_t tile;
  std::uint32_t option;  // cuBLASLt does not say what it means
  cublasLtClusterShape_t cluster;
};

// What was fastest at 60 products of 16 bits on an H200, of 13 568 ways that were tried: with these 28 the best of each product is found to
// 0.3 % in the mean and 2 % at most (bench/lab/step.md, "Tiles that cuBLASLt does not offer").
constexpr Setting settings[] = {
    {CUBLASLT_MATMUL_TILE_256x160, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1}, {CUBLASLT_MATMUL_TILE_256x104, 5, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x168, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_112x128, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x192, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1}, {CUBLASLT_MATMUL_TILE_96x192, 0, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_176x256, 6, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_64x128, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x96, 3, CUBLASLT_CLUSTER_SHAPE_1x2x1},  {CUBLASLT_MATMUL_TILE_160x128, 2, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_256x160, 7, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_256x152, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_256x160, 5, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_208x128, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_384x96, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1},  {CUBLASLT_MATMUL_TILE_128x168, 3, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_192x128, 4, CUBLASLT_CLUSTER_SHAPE_1x2x1}, {CUBLASLT_MATMUL_TILE_320x128, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_176x256, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1}, {CUBLASLT_MATMUL_TILE_256x128, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x344, 5, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_128x200, 5, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_256x80, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1},  {CUBLASLT_MATMUL_TILE_224x192, 4, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_96x256, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},  {CUBLASLT_MATMUL_TILE_128x112, 5, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x160, 3, CUBLASLT_CLUSTER_SHAPE_2x1x1}, {CUBLASLT_MATMUL_TILE_240x128, 6, CUBLASLT_CLUSTER_SHAPE_1x2x1},
};

template <class Value>
bool set(cublasLtMatmulAlgo_t& how, cublasLtMatmulAlgoConfigAttributes_t what, Value value) {
  return cublaslt().cublasLtMatmulAlgoConfigSetAttribute(&how, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> variations_of(const cublasLtMatmulAlgo_t& offered) {
  std::vector<cublasLtMatmulAlgo_t> all;
  for (const Setting& s : settings) {
    cublasLtMatmulAlgo_t how = offered;
    if (set(how, CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t(s.tile)) && set(how, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, s.option) &&
        set(how, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t(s.cluster)))
      all.push_back(how);
  }
  return all;
}

}  // namespace headroom::blas
