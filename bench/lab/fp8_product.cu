// fp8_product.cu — the variants of fp8_product.cuh beside cuBLASLt's best of twelve, at 2.7B's products of 4096 tokens; see bench/lab/fp8.md.
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -I src bench/lab/fp8_product.cu -o fp8_product
//   ./fp8_product check STATE   each variant on three shapes, random data, every scale different, poisoned outputs; one that hangs ends the process,
//                               and a next call passes it over
//   ./fp8_product time STATE    those that passed, in turns
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fp8_product.cuh"

using namespace lab;

static int* note = nullptr;
static unsigned* counts = nullptr;
template <class E>
static void ok(E e, const char* what, int line) {
  if (int(e) == 0) return;
  std::fprintf(stderr, "%s: %d, line %d, note %d\n", what, int(e), line, note ? *note : -1);
  std::exit(3);
}
#define OK(x) ok(x, #x, __LINE__)

static void* library_of_lt() {  // the cuBLASLt that is there, 13 or 12
  static void* const library = []() -> void* {
    for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (void* l = dlopen(file, RTLD_NOW)) return l;
    std::printf("no cuBLASLt: %s\n", dlerror());
    return nullptr;
  }();
  return library;
}
static void* symbol_of_lt(const char* name) { return dlsym(library_of_lt(), name); }
#define LT(name)                                                                  \
  ([] {                                                                           \
    static const auto f = reinterpret_cast<decltype(&name)>(symbol_of_lt(#name)); \
    return f;                                                                     \
  }())

// ---- variants ----------------------------------------------------------------------------------------------------------
struct Row {
  const char* name;
  Config c;
  int band = 8;
};
static constexpr Row table[] = {
    {"base", {}},
    {"base,order", {}, 0},
    {"base,16", {}, 16},
    {"ldg", {.b_scale = BScale::each_step}},
    {"lanes", {.lanes_arrive = true}},
    {"peek", {.peek = true}},
    {"s6", {.stages = 6, .out_columns = 64}},
    {"alone", {.share = Share::nothing}},
    {"share_a", {.share = Share::a}},
    {"two_parts", {.parts = 2}},
    {"two_parts,a", {.share = Share::a, .parts = 2}},
    {"two_parts,s6", {.stages = 6, .parts = 2, .out_columns = 64}},
    {"n160", {.columns = 160, .out_columns = 160}},
    {"n160,peek", {.columns = 160, .out_columns = 160, .peek = true}},
    {"n192", {.columns = 192, .stages = 4, .out_columns = 192}},
    {"m192", {.groups = 3, .stages = 4}},
    {"m192,direct", {.groups = 3, .out_columns = 0}},
    {"m192,peek", {.groups = 3, .stages = 4, .peek = true}},
    {"m192,a", {.groups = 3, .stages = 4, .share = Share::a}},
    {"m256", {.waves = 2, .stages = 4, .out_columns = 64}},
    {"m256,peek", {.waves = 2, .stages = 4, .out_columns = 64, .peek = true}},
    {"m256,a", {.waves = 2, .stages = 4, .share = Share::a, .out_columns = 64}},
    {"n256", {.halves = 2, .columns = 256, .stages = 4, .out_columns = 64}},
    {"n256,regs", {.halves = 2, .columns = 256, .stages = 4, .out_columns = 64, .a_in_registers = true}},
    {"n256,regs,a", {.halves = 2, .columns = 256, .stages = 4, .share = Share::a, .out_columns = 64, .a_in_registers = true}},
    {"runs", {.b_scale = BScale::run}},
    {"runs,m192", {.groups = 3, .stages = 4, .b_scale = BScale::run}},
    {"counts", {.counts = true}},
    {"counts,m192", {.groups = 3, .stages = 4, .counts = true}},
    {"counts,m256", {.waves = 2, .stages = 4, .out_columns = 64, .counts = true}},
    {"counts,n256", {.halves = 2, .columns = 256, .stages = 4, .out_columns = 64, .a_in_registers = true, .counts = true}},
    {"-sums", {.without = Without::promotion}},
    {"-loads", {.without = Without::loads}},
    {"-products", {.without = Without::products}},
    {"-store", {.without = Without::store}},
};
constexpr int rows = int(sizeof table / sizeof table[0]);

template <int row>
__global__ void __launch_bounds__(Shape<table[row].c>::threads, 1) fp8_product(const __grid_constant__ Args a) {
  run<table[row].c>(a);
}
struct Variant {
  const char* name;
  Config c;
  int band;
  void (*kernel)(Args);
  int rows, cluster, threads, bytes, a_box, b_box, panel;
};
template <int row>
Variant variant() {
  constexpr Config c = table[row].c;
  using S = Shape<c>;
  return {table[row].name,        c,        table[row].band, fp8_product<row>, S::rows, S::cluster, S::threads,
          int(sizeof(Shared<c>)), S::a_box, S::b_box,        S::panel};
}
static const std::vector<Variant> variants = []<int... row>(std::integer_sequence<int, row...>) {
  return std::vector<Variant>{variant<row>()...};
}
(std::make_integer_sequence<int, rows>());

// ---- data --------------------------------------------------------------------------------------------------------------
__device__ unsigned hash(unsigned x) {
  x *= 2654435761u, x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u;
  return x ^ x >> 16;
}
__global__ void fill_fp8(std::uint8_t* p, std::size_t n, unsigned seed) {  // nearly normal, largest about 400
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n; i += std::size_t(gridDim.x) * blockDim.x) {
    float x = 0;
    for (int j = 0; j < 4; ++j) x += float(hash(unsigned(i) * 4 + j + seed) >> 8) / float(1 << 24) - 0.5f;
    p[i] = __nv_fp8_e4m3(x * 200).__x;
  }
}
__global__ void fill_scales(float* p, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n; i += std::size_t(gridDim.x) * blockDim.x)
    p[i] = 0.001f * (0.5f + float(hash(unsigned(i) + seed) >> 8) / float(1 << 24));
}
struct Sides {
  const char* name;
  int m, n, k;
  bool of_dw;
};
struct Data {
  std::uint8_t *a, *b;
  float *a_scale, *b_block, *b_run;
  int a_step, block_step, run_step;
};
static int up4(int x) { return (x + 3) / 4 * 4; }
static Data data_of(const Sides& s, unsigned seed) {
  Data d{};
  const int runs = (s.k + 127) / 128, blocks = (s.n + 127) / 128;
  d.a_step = up4(s.m), d.run_step = up4(s.n), d.block_step = up4(runs);
  const std::size_t a_count = std::size_t(runs) * d.a_step + 512, run_count = std::size_t(runs) * d.run_step + 512,
                    block_count = std::size_t(blocks) * d.block_step + 512;  // tiles past the end read the room behind
  OK(cudaMalloc(&d.a, std::size_t(s.m) * s.k)), OK(cudaMalloc(&d.b, std::size_t(s.n) * s.k));
  OK(cudaMalloc(&d.a_scale, a_count * 4)), OK(cudaMalloc(&d.b_run, run_count * 4)), OK(cudaMalloc(&d.b_block, block_count * 4));
  fill_fp8<<<1056, 256>>>(d.a, std::size_t(s.m) * s.k, seed), fill_fp8<<<1056, 256>>>(d.b, std::size_t(s.n) * s.k, seed + 77);
  fill_scales<<<132, 256>>>(d.a_scale, a_count, seed + 1), fill_scales<<<132, 256>>>(d.b_run, run_count, seed + 2),
      fill_scales<<<132, 256>>>(d.b_block, block_count, seed + 3);
  OK(cudaDeviceSynchronize());
  return d;
}
static void free_data(const Data& d) {
  for (void* p : {(void*)d.a, (void*)d.b, (void*)d.a_scale, (void*)d.b_block, (void*)d.b_run}) cudaFree(p);
}

// ---- reference: two-level sums in FP32, and the sum of sizes, which bounds the unit's rounding ----------------------------
__global__ void reference(const std::uint8_t* a, const std::uint8_t* b, const float* a_scale, const float* b_scale, int a_step, int b_step,
                          bool runs, int m, int n, int k, float* out, float* size) {
  __shared__ float ta[16][129], tb[16][129];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  const auto value = [](std::uint8_t bits) {
    __nv_fp8_e4m3 v;
    v.__x = bits;
    return float(v);
  };
  float sum = 0, all = 0;
  for (int run = 0; run < k / 128; ++run) {
    __syncthreads();
    for (int i = x; i < 128; i += 16) {
      ta[y][i] = row < m ? value(a[std::size_t(row) * k + run * 128 + i]) : 0;
      const int line = blockIdx.x * 16 + y;
      tb[y][i] = line < n ? value(b[std::size_t(line) * k + run * 128 + i]) : 0;
    }
    __syncthreads();
    float part = 0, sizes = 0;
    for (int i = 0; i < 128; ++i) part = fmaf(ta[y][i], tb[x][i], part), sizes = fmaf(fabsf(ta[y][i]), fabsf(tb[x][i]), sizes);
    if (row < m && column < n) {
      const float scale = a_scale[std::size_t(run) * a_step + row] *
                          (runs ? b_scale[std::size_t(run) * b_step + column] : b_scale[std::size_t(column / 128) * b_step + run]);
      sum = fmaf(part, scale, sum), all = fmaf(sizes, scale, all);
    }
  }
  if (row < m && column < n) out[std::size_t(row) * n + column] = sum, size[std::size_t(row) * n + column] = all;
}
// What differs by more than bf16's rounding and 2^-9 of the sum of sizes; NaN does. worst: of the largest error over what is allowed, as bits.
__global__ void compare(const __nv_bfloat16* got, const float* ref, const float* size, std::size_t n, unsigned* bad, unsigned* worst) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n; i += std::size_t(gridDim.x) * blockDim.x) {
    const float error = fabsf(float(got[i]) - ref[i]), allowed = fabsf(ref[i]) / 256 + size[i] / 512, ratio = error / allowed;
    if (!(ratio <= 1)) atomicAdd(bad, 1u);
    if (ratio > 0) atomicMax(worst, __float_as_uint(ratio));
  }
}

// ---- ours ----------------------------------------------------------------------------------------------------------------
static CUtensorMap map_of(const void* at, CUtensorMapDataType type, std::uint64_t inner, std::uint64_t lines, int size, int rank,
                          int box_inner, int box_lines, CUtensorMapSwizzle swizzle) {
  static void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (!entry) OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  const cuuint64_t dim[3] = {inner, lines, 1}, stride[2] = {inner * size, inner * size * lines};
  const cuuint32_t box[3] = {cuuint32_t(box_inner), cuuint32_t(box_lines), 1}, every[3] = {1, 1, 1};
  CUtensorMap m;
  OK(reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(&m, type, cuuint32_t(rank), const_cast<void*>(at), dim, stride, box, every,
                                                                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return m;
}
static Args args_of(const Variant& v, const Sides& s, const Data& d, void* c) {
  Args a{};
  const bool runs = v.c.b_scale == BScale::run;
  a.a.raw = map_of(d.a, CU_TENSOR_MAP_DATA_TYPE_UINT8, s.k, s.m, 1, 3, 128, v.a_box, CU_TENSOR_MAP_SWIZZLE_128B);
  a.b.raw = map_of(d.b, CU_TENSOR_MAP_DATA_TYPE_UINT8, s.k, s.n, 1, 3, 128, v.b_box, CU_TENSOR_MAP_SWIZZLE_128B);
  a.c.raw = map_of(c, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, s.n, s.m, 2, 2, v.panel, 64,
                   v.panel == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
  a.a_scale = d.a_scale, a.b_scale = runs ? d.b_run : d.b_block, a.a_step = d.a_step, a.b_step = runs ? d.run_step : d.block_step;
  a.out = static_cast<__nv_bfloat16*>(c), a.m = s.m, a.n = s.n, a.k = s.k;
  const int down = v.rows * (v.c.share == Share::b ? 2 : 1), across = v.c.columns * (v.c.share == Share::a ? 2 : 1);
  a.high = (s.m + down - 1) / down, a.wide = (s.n + across - 1) / across, a.band = v.band;
  a.counts = counts, a.note = note;
  return a;
}
static cudaError_t launch(const Variant& v, const Args& a) {
  cudaLaunchConfig_t l{};
  const int clusters = std::min(132 / v.cluster, a.high * a.wide);
  l.gridDim = unsigned(clusters * v.cluster), l.blockDim = unsigned(v.threads), l.dynamicSmemBytes = std::size_t(v.bytes);
  cudaLaunchAttribute as[1];
  as[0].id = cudaLaunchAttributeClusterDimension, as[0].val.clusterDim = {unsigned(v.cluster), 1, 1};
  l.attrs = as, l.numAttrs = 1;
  return cudaLaunchKernelEx(&l, v.kernel, a);
}

// ---- cuBLASLt: rows become columns, so its A is our B ----------------------------------------------------------------------
struct Peer {
  static constexpr std::size_t room = 64u << 20;
  cublasLtHandle_t lt{};
  void* work{};
  cublasLtMatmulAlgo_t best{};
  bool any = false;
  Peer() {
    if (library_of_lt()) OK(LT(cublasLtCreate)(&lt)), OK(cudaMalloc(&work, room));
  }
  struct Call {
    cublasLtMatmulDesc_t d{};
    cublasLtMatrixLayout_t a{}, b{}, c{};
  };
  Call call(const Sides& s, const Data& x, bool runs) {
    Call r;
    OK(LT(cublasLtMatmulDescCreate)(&r.d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      OK(LT(cublasLtMatmulDescSetAttribute)(r.d, what, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T), set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t(0));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(runs ? x.b_run : x.b_block));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(x.a_scale));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        std::int32_t(runs ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, std::int32_t(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    OK(LT(cublasLtMatrixLayoutCreate)(&r.a, CUDA_R_8F_E4M3, s.k, s.n, s.k)),
        OK(LT(cublasLtMatrixLayoutCreate)(&r.b, CUDA_R_8F_E4M3, s.k, s.m, s.k));
    OK(LT(cublasLtMatrixLayoutCreate)(&r.c, CUDA_R_16BF, s.n, s.m, s.n));
    return r;
  }
  cublasStatus_t run(const Call& r, const Data& x, void* c, const cublasLtMatmulAlgo_t& how) {
    const float one = 1, zero = 0;
    return LT(cublasLtMatmul)(lt, r.d, &one, x.b, r.a, x.a, r.b, &zero, c, r.c, c, r.c, &how, work, room, nullptr);
  }
  int choose(const Sides& s, const Data& x, bool runs, void* c) {  // of those offered, the fastest
    any = false;
    if (!library_of_lt()) return 0;
    const Call r = call(s, x, runs);
    cublasLtMatmulPreference_t wish;
    OK(LT(cublasLtMatmulPreferenceCreate)(&wish));
    OK(LT(cublasLtMatmulPreferenceSetAttribute)(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    cublasLtMatmulHeuristicResult_t found[12];
    int count = 0;
    LT(cublasLtMatmulAlgoGetHeuristic)(lt, r.d, r.a, r.b, r.c, r.c, wish, 12, found, &count);
    cudaEvent_t e0, e1;
    OK(cudaEventCreate(&e0)), OK(cudaEventCreate(&e1));
    float least = std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i)
      for (int turn = 0; turn < 5; ++turn) {
        OK(cudaEventRecord(e0));
        if (run(r, x, c, found[i].algo) != CUBLAS_STATUS_SUCCESS) break;
        OK(cudaEventRecord(e1)), OK(cudaEventSynchronize(e1));
        float ms;
        OK(cudaEventElapsedTime(&ms, e0, e1));
        if (turn > 0 && ms < least) least = ms, best = found[i].algo, any = true;
      }
    return count;
  }
};

static const char* state_path = nullptr;
static std::map<std::string, std::string> read_state() {
  std::map<std::string, std::string> r;
  if (std::FILE* f = std::fopen(state_path, "r")) {
    char name[64], word[64];
    while (std::fscanf(f, "%63s %63s", name, word) == 2) r[name] = word;
    std::fclose(f);
  }
  return r;
}
static void put_state(const std::string& name, const char* word) {
  if (std::FILE* f = std::fopen(state_path, "a")) std::fprintf(f, "%s %s\n", name.c_str(), word), std::fclose(f);
}

static bool prepare(const Variant& v) {
  const cudaError_t e = cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v.bytes);
  if (e != cudaSuccess) std::printf("%-12s does not fit: %s\n", v.name, cudaGetErrorString(e)), cudaGetLastError();
  return e == cudaSuccess;
}

static int check() {
  auto state = read_state();
  const Sides shapes[] = {{"cut", 1040, 1296, 1152, false}, {"small", 128, 128, 128, false}, {"rounds", 4096, 2560, 2560, false}};
  struct Held {
    Data d;
    float *ref[2], *size[2];
  };
  std::vector<Held> held;
  __nv_bfloat16* c;
  OK(cudaMalloc(&c, std::size_t(4096) * 2560 * 2));
  unsigned* result;
  OK(cudaMalloc(&result, 8));
  for (const Sides& s : shapes) {
    Held h{data_of(s, 5), {}, {}};
    for (int runs = 0; runs < 2; ++runs) {
      const std::size_t bytes = std::size_t(s.m) * s.n * 4;
      OK(cudaMalloc(&h.ref[runs], bytes)), OK(cudaMalloc(&h.size[runs], bytes));
      reference<<<dim3(unsigned(s.n + 15) / 16, unsigned(s.m + 15) / 16), dim3(16, 16)>>>(
          h.d.a, h.d.b, h.d.a_scale, runs ? h.d.b_run : h.d.b_block, h.d.a_step, runs ? h.d.run_step : h.d.block_step, runs, s.m, s.n, s.k,
          h.ref[runs], h.size[runs]);
    }
    OK(cudaDeviceSynchronize());
    held.push_back(h);
  }
  const auto judged = [&](const Sides& s, const Held& h, bool runs) {  // counts of wrong numbers, and the worst
    OK(cudaMemset(result, 0, 8));
    compare<<<1056, 256>>>(c, h.ref[runs], h.size[runs], std::size_t(s.m) * s.n, result, result + 1);
    unsigned r[2];
    OK(cudaMemcpy(r, result, 8, cudaMemcpyDeviceToHost));
    float worst;
    std::memcpy(&worst, &r[1], 4);
    std::printf("  %s %u wrong, worst %.3f", s.name, r[0], double(worst));
    return r[0];
  };
  Peer peer;
  for (int runs = 0; runs < 2 && state.empty(); ++runs) {
    std::printf("%-12s", runs ? "cublas,runs" : "cublas");
    for (std::size_t i = 0; i < held.size(); ++i) {
      const int offers = peer.choose(shapes[i], held[i].d, runs, c);
      if (!peer.any) {
        std::printf("  %s none of %d", shapes[i].name, offers);
        continue;
      }
      OK(cudaMemset(c, 0xff, std::size_t(shapes[i].m) * shapes[i].n * 2));
      peer.run(peer.call(shapes[i], held[i].d, runs), held[i].d, c, peer.best);
      judged(shapes[i], held[i], runs);
    }
    std::printf("\n");
  }
  for (const Variant& v : variants) {
    if (state.count(v.name)) continue;
    put_state(v.name, "bad");  // the last word counts
    std::printf("%-12s", v.name);
    std::fflush(stdout);
    if (!prepare(v)) continue;
    unsigned wrong = 0;
    const bool runs = v.c.b_scale == BScale::run;
    for (std::size_t i = 0; i < held.size(); ++i) {
      OK(cudaMemset(c, 0xff, std::size_t(shapes[i].m) * shapes[i].n * 2));
      if (v.c.without != Without::nothing) {
        OK(launch(v, args_of(v, shapes[i], held[i].d, c))), OK(cudaDeviceSynchronize());
        continue;
      }
      for (int turn = 0; turn < 3; ++turn) OK(launch(v, args_of(v, shapes[i], held[i].d, c)));
      OK(cudaDeviceSynchronize());
      wrong += judged(shapes[i], held[i], runs);
    }
    std::printf("\n");
    if (wrong == 0) put_state(v.name, "ok");
  }
  return 0;
}

struct Nvml {  // the multiprocessors' clock and the card's power, where the driver tells
  void* device = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  Nvml() {
    void* lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) return;
    const auto init = reinterpret_cast<int (*)()>(dlsym(lib, "nvmlInit_v2"));
    const auto first = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(lib, "nvmlDeviceGetHandleByIndex_v2"));
    clock = reinterpret_cast<decltype(clock)>(dlsym(lib, "nvmlDeviceGetClockInfo"));
    power = reinterpret_cast<decltype(power)>(dlsym(lib, "nvmlDeviceGetPowerUsage"));
    if (!init || !first || init() != 0 || first(0, &device) != 0) device = nullptr;
  }
  void sample(unsigned& mhz, unsigned& watts) const {
    mhz = watts = 0;
    if (!device) return;
    clock(device, 1, &mhz);
    power(device, &watts);
    watts /= 1000;
  }
};

static int time_all() {
  auto state = read_state();
  constexpr int sets = 3;
  const Sides shapes[] = {
      {"7680x2560", 4096, 7680, 2560, false},    {"2560x2560", 4096, 2560, 2560, false},   {"20480x2560", 4096, 20480, 2560, false},
      {"2560x10240", 4096, 2560, 10240, false},  {"2560x20480", 4096, 2560, 20480, false}, {"2560x7680", 4096, 2560, 7680, false},
      {"10240x2560", 4096, 10240, 2560, false},  {"dW7680x2560", 2560, 7680, 4096, true},  {"dW20480x2560", 2560, 20480, 4096, true},
      {"dW2560x10240", 10240, 2560, 4096, true}, {"dW2560x2560", 2560, 2560, 4096, true}};
  std::vector<std::string> names = {"cublas", "cublas,runs"};
  std::vector<const Variant*> by_name = {nullptr, nullptr};
  for (const Variant& v : variants)
    if (state[v.name] == "ok" && prepare(v)) names.push_back(v.name), by_name.push_back(&v);
  std::vector<std::vector<double>> rate(names.size());
  std::vector<std::vector<std::string>> sustained(names.size());
  std::string counted;
  void* c;
  OK(cudaMalloc(&c, std::size_t(20480) * 4096 * 2));
  Peer peer;
  Nvml nvml;
  cudaEvent_t e0, e1;
  OK(cudaEventCreate(&e0)), OK(cudaEventCreate(&e1));
  for (const Sides& s : shapes) {
    Data d[sets];
    for (int i = 0; i < sets; ++i) d[i] = data_of(s, unsigned(1000 * i + 3));
    const double flop = 2.0 * s.m * s.n * s.k;
    std::vector<std::function<void(int)>> go(names.size());
    cublasLtMatmulAlgo_t best[2];
    std::vector<Peer::Call> calls[2];
    std::vector<Args> args[64];
    for (std::size_t v = 0; v < names.size(); ++v) {
      const bool runs = v == 1 || (by_name[v] && by_name[v]->c.b_scale == BScale::run);
      if (runs && !s.of_dw) continue;
      if (v < 2) {
        peer.choose(s, d[0], runs, c);
        if (!peer.any) continue;
        best[v] = peer.best;
        for (const Data& x : d) calls[v].push_back(peer.call(s, x, runs));
        go[v] = [&, v](int i) { OK(peer.run(calls[v][std::size_t(i % sets)], d[i % sets], c, best[v])); };
      } else {
        for (const Data& x : d) args[v].push_back(args_of(*by_name[v], s, x, c));
        go[v] = [&, v](int i) { OK(launch(*by_name[v], args[v][std::size_t(i % sets)])); };
      }
    }
    const int many = std::max(9, int(8e-3 / (flop / 1e15)));
    std::vector<std::vector<float>> took(names.size());
    for (int round = 0; round < 3; ++round)
      for (std::size_t v = 0; v < names.size(); ++v) {
        if (!go[v]) continue;
        for (int i = 0; i < 2; ++i) go[v](i);
        OK(cudaEventRecord(e0));
        for (int i = 0; i < many; ++i) go[v](i);
        OK(cudaEventRecord(e1)), OK(cudaEventSynchronize(e1));
        float ms;
        OK(cudaEventElapsedTime(&ms, e0, e1));
        took[v].push_back(ms / float(many));
      }
    for (std::size_t v = 0; v < names.size(); ++v) {
      std::sort(took[v].begin(), took[v].end());
      rate[v].push_back(took[v].empty() ? 0 : flop / (double(took[v][took[v].size() / 2]) * 1e-3) / 1e12);
    }
    for (std::size_t v = 2; v < names.size(); ++v)
      if (go[v] && by_name[v]->c.counts) {  // cycles of a group: means over all
        go[v](0);
        OK(cudaDeviceSynchronize());
        std::vector<unsigned> got(std::size_t(132 * by_name[v]->c.groups * 6));
        OK(cudaMemcpy(got.data(), counts, got.size() * 4, cudaMemcpyDeviceToHost));
        double sum[6] = {};
        for (std::size_t i = 0; i < got.size(); ++i) sum[i % 6] += got[i];
        char line[256];
        std::snprintf(line, sizeof line,
                      "%-12s %-13s a step: waits %5.0f  products %5.0f  sums %5.0f   a tile: the rest %6.0f   steps a tile %.0f\n",
                      names[v].c_str(), s.name, sum[0] / sum[4], sum[1] / sum[4], sum[2] / sum[4], sum[3] / sum[5], sum[4] / sum[5]);
        counted += line;
      }
    if (std::string(s.name) == "7680x2560" || std::string(s.name) == "2560x20480")
      for (std::size_t v = 0; v < names.size(); ++v) {  // 0.15 s each: clock and power
        if (!go[v] || (names[v].find(',') != std::string::npos && names[v] != "n256,regs")) continue;
        const int long_run = int(0.15 / (double(took[v][0]) * 1e-3));
        OK(cudaEventRecord(e0));
        for (int i = 0; i < long_run; ++i) go[v](i);
        OK(cudaEventRecord(e1));
        unsigned mhz = 0, watts = 0;
        const timespec nap{0, 80'000'000};
        nanosleep(&nap, nullptr);
        nvml.sample(mhz, watts);
        OK(cudaEventSynchronize(e1));
        float ms;
        OK(cudaEventElapsedTime(&ms, e0, e1));
        char text[64];
        std::snprintf(text, sizeof text, "%5.0f TF %4u MHz %3u W", flop * long_run / (double(ms) * 1e-3) / 1e12, mhz, watts);
        sustained[v].push_back(text);
      }
    for (const Data& x : d) free_data(x);
  }
  std::printf("TFLOP/s, weights x summed, 4096 tokens, median of three turns; ms of 32 layers of 2.7B\n%-12s", "");
  for (const Sides& s : shapes) std::printf(" %12s", s.name);
  std::printf(" %9s %9s", "ms fw+dX", "ms dW");
  for (std::size_t v = 0; v < names.size(); ++v) {
    std::printf("\n%-12s", names[v].c_str());
    double ms[2] = {};  // forward and dX, the attention's last product twice; dW
    bool all[2] = {true, true};
    for (std::size_t i = 0; i < rate[v].size(); ++i) {
      const Sides& s = shapes[i];
      std::printf(" %12.0f", rate[v][i]);
      if (rate[v][i] == 0) all[s.of_dw] = false;
      ms[s.of_dw] += 32e3 * 2.0 * s.m * s.n * s.k / (rate[v][i] * 1e12) * (i == 1 ? 2 : 1);
    }
    for (int dw = 0; dw < 2; ++dw) all[dw] ? std::printf(" %9.2f", ms[dw]) : std::printf(" %9s", "-");
  }
  std::printf("\n\nsustained 0.15 s, 7680x2560 then 2560x20480\n");
  for (std::size_t v = 0; v < names.size(); ++v) {
    std::printf("%-12s", names[v].c_str());
    for (const auto& t : sustained[v]) std::printf("   %s", t.c_str());
    std::printf("\n");
  }
  std::printf("\ncycles\n%s", counted.c_str());
  return 0;
}

int main(int count, char** words) {
  if (count < 3) return std::fprintf(stderr, "fp8_product check|time STATE\n"), 2;
  state_path = words[2];
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);
  OK(cudaHostAlloc(&note, 4, cudaHostAllocMapped));
  *note = 0;
  OK(cudaMalloc(&counts, 132 * 4 * 6 * 4));
  OK(cudaMemset(counts, 0, 132 * 4 * 6 * 4));
  return std::string(words[1]) == "check" ? check() : time_all();
}
