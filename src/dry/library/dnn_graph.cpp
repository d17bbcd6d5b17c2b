#include "dry/library/dnn_graph.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dry/cuda_types.h"
#include "dry/library/dnn_numbers.h"

namespace headroom::dry::dnn {
namespace {

const char* name_of_operation(int type) {
  switch (type) {
    case convolution_forward: return "cuDNN convolution, forward";
    case convolution_backward_filter: return "cuDNN convolution, backward of the filter";
    case convolution_backward_data: return "cuDNN convolution, backward of the data";
    case norm_forward: return "cuDNN norm, forward";
    case norm_backward: return "cuDNN norm, backward";
    default: return nullptr;
  }
}

struct Convolution {
  const Descriptor *how, *filter, *input, *output;  // null: not told
};
Convolution convolution_of(const Descriptor& op) {
  struct Attributes {
    int how, filter, input, output;
  };
  constexpr Attributes forward{forward_how, forward_filter, forward_input, forward_output};
  constexpr Attributes data{data_how, data_filter, data_input, data_output};
  constexpr Attributes weight{filter_how, filter_filter, filter_input, filter_output};
  const Attributes& at = op.type == convolution_forward ? forward : op.type == convolution_backward_data ? data : weight;
  return {op.one(at.how), op.one(at.filter), op.one(at.input), op.one(at.output)};
}

int type_of(const Descriptor* tensor) {
  const auto type = tensor ? tensor->all<int>(tensor_type) : std::vector<int>{};
  return type.empty() ? 0 : type[0];
}

std::vector<std::int64_t> dims_of(const Descriptor* tensor) {
  return tensor ? tensor->all<std::int64_t>(tensor_dims) : std::vector<std::int64_t>{};
}

// FP64 counts as FP32: what a card takes was asked for FP32 and 16 bits only.
std::uint64_t element_bytes_of(const Descriptor* tensor) { return cudnn_type::bytes_of(type_of(tensor)) == 2 ? 2 : 4; }

Convolved convolved_of(const Convolution& c, int type) {
  const auto strides = c.input ? c.input->all<std::int64_t>(tensor_strides) : std::vector<std::int64_t>{};
  const auto dilations = c.how ? c.how->all<std::int64_t>(convolution_dilations) : std::vector<std::int64_t>{};
  return {.pass = type == convolution_forward         ? ConvolutionPass::forward
                  : type == convolution_backward_data ? ConvolutionPass::data
                                                      : ConvolutionPass::weight,
          .filter = dims_of(c.filter),
          .input = dims_of(c.input),
          .output = dims_of(c.output),
          .element_bytes = element_bytes_of(c.filter),
          .channels_innermost = strides.size() < 3 || strides[1] == 1,
          .dilated = std::ranges::any_of(dilations, [](std::int64_t d) { return d > 1; }),
          .strides = c.how ? c.how->all<std::int64_t>(convolution_strides) : std::vector<std::int64_t>{},
          .padding = c.how ? c.how->all<std::int64_t>(convolution_padding) : std::vector<std::int64_t>{}};
}

// A convolution is a product: as many rows as its output has places, as many columns as it has channels. That of FP32 is tf32, as PyTorch has it
// unless it is told otherwise.
ProductShape product_of(const Convolution& c) {
  const auto filter = dims_of(c.filter), input = dims_of(c.input), output = dims_of(c.output);
  if (filter.size() < 3 || input.size() < 3 || output.size() < 3 || filter[1] == 0) return {};
  const std::int64_t groups = std::max<std::int64_t>(input[1] / filter[1], 1);
  ProductShape p{.m = output[0], .n = filter[0] / groups, .k = filter[1], .batch = groups};
  for (std::size_t i = 2; i < output.size(); ++i) p.m *= output[i];
  for (std::size_t i = 2; i < filter.size(); ++i) p.k *= filter[i];
  p.type_a = p.type_b = p.type_c = cudnn_type::cuda_type_of(type_of(c.filter));
  p.compute = cublas_compute::fast_tf32;
  return p;
}

std::vector<std::uint64_t> turned_of(const Convolution& c) {
  std::vector<std::uint64_t> bytes;
  const auto filter = dims_of(c.filter), input = dims_of(c.input);
  const bool grouped = filter.size() > 1 && input.size() > 1 && input[1] != filter[1];
  for (const Descriptor* tensor : {c.input, c.filter, c.output}) {
    const auto dims = dims_of(tensor);
    const auto strides = tensor ? tensor->all<std::int64_t>(tensor_strides) : std::vector<std::int64_t>{};
    if (dims.size() < 3 || strides.size() != dims.size()) continue;
    const std::uint64_t turned = turned_bytes(dims, element_bytes_of(tensor), tensor == c.filter, strides[1] == 1, grouped);
    if (turned > 0) bytes.push_back(turned);
  }
  return bytes;
}

// A mask by positions, as a causal one is, begins with numbering them.
bool tells_positions(const Descriptor& op) {
  constexpr int number_positions = 501;
  const Descriptor* const how = op.one(pointwise_of);
  const auto mode = how ? how->all<int>(pointwise_mode) : std::vector<int>{};
  return !mode.empty() && mode[0] == number_positions;
}

}  // namespace

// Attention is an operation of its own, or two products (four more when backward) around a softmax.
Work work_of(const Descriptor* graph) {
  Work w;
  int products = 0;
  const Descriptor *q = nullptr, *k = nullptr;
  if (!graph) return w;
  w.tries = graph->work.tries;
  w.alone = graph->parts(graph_operations).size() == 1;
  for (const auto& op : graph->parts(graph_operations)) {
    if (!op) continue;
    if (const char* const name = name_of_operation(op->type)) w.name = name;
    if (op->type >= convolution_forward && op->type <= convolution_backward_data) {
      const Convolution c = convolution_of(*op);
      w.product = product_of(c);
      w.turned = turned_of(c);
      w.convolved = convolved_of(c, op->type);
    }
    if (op->type == matmul && products++ == 0) {
      q = op->one(matmul_a);
      k = op->one(matmul_b);
    }
    if (op->type == attention_forward) {
      q = op->one(forward_q);
      k = op->one(forward_k);
    }
    if (op->type == attention_backward) {
      q = op->one(backward_q);
      k = op->one(backward_k);
      w.shape.backward = true;
    }
  }
  if (!q || !k) return w;
  w.shape.masked = std::ranges::any_of(graph->parts(graph_operations), [](const auto& op) { return op && tells_positions(*op); });
  const auto a = q->all<std::int64_t>(tensor_dims), b = k->all<std::int64_t>(tensor_dims);
  if (a.size() != 4 || b.size() != 4) return w;
  w.attention = true;
  w.shape.backward |= products > 2;
  w.name = w.shape.backward ? "cuDNN attention, backward" : "cuDNN attention";
  w.shape.batch = a[0];
  w.shape.heads = a[1];
  w.shape.len_q = a[2];
  w.shape.len_k = products ? b[3] : b[2];  // a product's right side is transposed
  w.shape.head_dim = a[3];
  w.shape.kv_heads = b[1];
  if (const auto type = q->all<int>(tensor_type); !type.empty()) w.shape.type = type[0];
  w.workspace_known = true;
  w.workspace_bytes = 256;  // either way, of every shape that was measured on an H200 with cuDNN 9.19
  return w;
}

}  // namespace headroom::dry::dnn
