// What the program asks of cuBLAS, cuDNN and cuSOLVER.
#include <cstdint>

#include "cuda_calls.h"

namespace {

// Descriptors of cuDNN's graphs, as PyTorch makes them. Numbers are cuDNN's published enumerations.
void* descriptor(int type) {
  void* d = nullptr;
  call("cudnnBackendCreateDescriptor", type, &d);
  return d;
}
void set(void* d, int attribute, int type, std::int64_t count, const void* values) {
  call("cudnnBackendSetAttribute", d, attribute, type, count, values);
}
void set(void* d, int attribute, void* part) { set(d, attribute, 15, 1, &part); }

// A forward convolution in a workspace at `workspace`.
void convolve(void* dnn, const std::int64_t (&filter)[4], const std::int64_t (&input)[4], const std::int64_t (&output)[4], void* workspace,
              int type = 0) {
  constexpr int operation = 10, graph = 15, search = 4, config = 3, plan = 5, pack = 21, tensor = 18, dims = 902, long_ = 3, pointer = 6,
                types = 901, type_ = 1;
  void *const forward = descriptor(operation), *const g = descriptor(graph), *const s = descriptor(search),
              *const found = descriptor(config);
  void *const p = descriptor(plan), *const v = descriptor(pack);
  int attribute = 703;  // filter, input, output
  for (const auto* const size : {&filter, &input, &output}) {
    void* const t = descriptor(tensor);
    set(t, dims, long_, 4, *size);
    set(t, types, type_, 1, &type);
    set(forward, attribute++, t);
  }
  set(g, 801, forward);
  set(s, 201, g);
  call("cudnnBackendFinalize", s);
  void* results[] = {found};
  std::int64_t count = 0;
  call("cudnnBackendGetAttribute", s, 202, 15, std::int64_t(1), &count, static_cast<void*>(results));
  set(p, 401, found);
  call("cudnnBackendFinalize", p);
  set(v, 1003, pointer, 1, &workspace);
  print(call("cudnnBackendExecute", dnn, p, v));
}

void libraries() {
  void *blas = nullptr, *dnn = nullptr;
  print(call("cublasCreate_v2", &blas));
  for (char* const workspace : {allocate(mib), allocate(mib)})  // as PyTorch: before every product
    for (int i = 0; i < 2; ++i) print(call("cublasSetWorkspace_v2", blas, static_cast<void*>(workspace), std::size_t(mib)));
  const float one = 1;
  print(call("cublasSgemm_v2", blas, 0, 0, 128, 256, 512, &one, nullptr, 128, nullptr, 512, &one, nullptr, 128));
  int words = -1;
  print(call("cusolverDnCgeqrf_bufferSize", blas, 4, 4, static_cast<float*>(nullptr), 4, &words));
  print(words);
  print(call("cudnnCreate", &dnn));
  print(call("cudnnPoolingForward", dnn));
  print(call("cudaGraphicsUnmapResources", 0));
  print(call("cuptiActivityEnable", 1));
}

// What factors of matrices need, by the rules of one version of CUDA: S and D in numbers, X in bytes.
void solver() {
  int words = -1;
  std::size_t card = 1, host = 1;
  void* const none = nullptr;
  print(call("cusolverDnDgeqrf_bufferSize", none, 600, 300, none, 600, &words));
  print(words);
  call("cusolverDnSgetrf_bufferSize", none, 512, 512, none, 512, &words);
  print(words);
  call("cusolverDnDpotrf_bufferSize", none, 0, 300, none, 300, &words);
  print(words);
  call("cusolverDnSorgqr_bufferSize", none, 1000, 500, 500, none, 1000, none, &words);
  print(words);
  call("cusolverDnSsyevd_bufferSize", none, 1, 0, 512, none, 512, none, &words);
  print(words);
  const std::int64_t n = 512, matrices = 3;
  call("cusolverDnXgeqrf_bufferSize", none, none, n, n, 0, none, n, 0, none, 0, &card, &host);
  print(std::int64_t(card + host));
  call("cusolverDnXpotrf_bufferSize", none, none, 1, n, 1, none, n, 1, &card, &host);
  print(std::int64_t(card + host));
  call("cusolverDnXsyevd_bufferSize", none, none, 1, 0, n, 1, none, n, 1, none, 1, &card, &host);
  print(std::int64_t(card + host));
  call("cusolverDnXsyevBatched_bufferSize", none, none, 1, 0, std::int64_t(64), 0, none, std::int64_t(64), 0, none, 0, &card, &host,
       matrices);
  print(std::int64_t(card + host));
  call("cusolverDnXgeqrf_bufferSize", none, none, n, n, 4, none, n, 4, none, 4, &card, &host);  // complex: no rule
  print(std::int64_t(card + host));
}

void convolutions() {
  void* dnn = nullptr;
  call("cudnnCreate", &dnn);
  char *const first = allocate(mib), *const second = allocate(mib);
  print(second - first);
  convolve(dnn, {64, 32, 3, 3}, {8, 32, 28, 28}, {8, 64, 28, 28}, first);
  convolve(dnn, {64, 32, 1, 1}, {8, 32, 28, 28}, {8, 64, 28, 28}, second);
  convolve(dnn, {64, 32, 1, 1}, {8, 32, 28, 28}, {8, 64, 14, 14}, first);  // stride 2
  constexpr int twice = 1;
  convolve(dnn, {64, 32, 1, 1}, {8, 32, 28, 28}, {8, 64, 28, 28}, nullptr, twice);
}

// Two layers of an LSTM from 512 to 1024 in FP32, 256 places of 16 sequences.
void recurrent() {
  void *dnn = nullptr, *layers = nullptr, *data = nullptr, *tensor = nullptr, *at = nullptr;
  call("cudnnCreate", &dnn);
  call("cudnnCreateRNNDescriptor", &layers);
  call("cudnnCreateRNNDataDescriptor", &data);
  call("cudnnCreateTensorDescriptor", &tensor);
  constexpr int lstm = 2, both_biases = 2, one_way = 0, linear = 0, floats = 0;
  call("cudnnSetRNNDescriptor_v8", layers, 0, lstm, both_biases, one_way, linear, floats, floats, 0, 512, 1024, 1024, 2,
       static_cast<void*>(nullptr), 0u);
  call("cudnnSetRNNDataDescriptor", data, floats, 0, 256, 16, 512, static_cast<int*>(nullptr), static_cast<void*>(nullptr));
  std::size_t weights = 0, work = 0, inference = 0, none = 1, reserve = 0;
  call("cudnnGetRNNWeightSpaceSize", dnn, layers, &weights);
  print((long long)weights);
  call("cudnnGetRNNTempSpaceSizes", dnn, layers, 1, data, &work, &reserve);
  print((long long)work);
  print((long long)reserve);
  call("cudnnGetRNNTempSpaceSizes", dnn, layers, 0, data, &inference, &none);
  print((long long)none);
  char* const from = reinterpret_cast<char*>(4096);
  int type = -1, dims = -1, size[3] = {}, stride[3] = {};
  const auto place = [&](int layer, int number, bool bias) {
    void* const nothing = nullptr;
    if (bias)
      call("cudnnGetRNNWeightParams", dnn, layers, layer, weights, from, number, nothing, nothing, tensor, &at);
    else
      call("cudnnGetRNNWeightParams", dnn, layers, layer, weights, from, number, tensor, &at, nothing, nothing);
    call("cudnnGetTensorNdDescriptor", tensor, 3, &type, &dims, size, stride);
    print(static_cast<char*>(at) - from);
    print((long long)size[0] * size[1] * size[2]);
  };
  place(0, 0, false);  // the first layer's input
  place(0, 4, false);  // and state
  place(1, 7, false);  // the last matrix of the second
  place(1, 7, true);   // its last bias ends the weights
  void* stream = nullptr;
  call("cudnnSetStream", dnn, stream);
  void* const nothing = nullptr;
  int* const lengths = nullptr;
  call("cudnnRNNForward", dnn, layers, 1, lengths, data, nothing, data, nothing);
  call("cudnnRNNBackwardData_v8", dnn, layers, lengths, data, nothing, nothing, data);
  call("cudnnRNNBackwardWeights_v8", dnn, layers, 0, lengths, data);
}

}  // namespace

const Words library_words = {{"libraries", libraries}, {"solver", solver}, {"convolutions", convolutions}, {"recurrent", recurrent}};
