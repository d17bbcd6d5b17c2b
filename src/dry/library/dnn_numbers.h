// cuDNN's published enumerations, as far as its graphs are answered here: types and attributes of descriptors, knobs of engines.
#pragma once
#include <cstddef>

namespace headroom::dry::dnn {

enum Type {  // types of descriptors
  engine = 2,
  engine_config = 3,
  engine_search = 4,
  plan = 5,
  knob_choice = 7,
  convolution_forward = 10,
  convolution_backward_filter = 11,
  convolution_backward_data = 12,
  graph = 15,
  matmul = 19,
  norm_forward = 29,
  norm_backward = 30,
  attention_forward = 41,
  attention_backward = 43
};

enum Attribute {
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_padding = 105,
  search_mode = 200,
  search_graph = 201,
  search_results = 202,
  search_card = 204,
  config_engine = 300,
  config_knobs = 302,
  config_workspace = 303,
  config_shared = 304,
  plan_config = 401,
  plan_workspace = 402,
  plan_card = 407,
  knob_type = 600,
  knob_value = 601,
  forward_how = 702,
  forward_filter = 703,
  forward_input = 704,
  forward_output = 705,
  data_how = 708,
  data_filter = 709,
  data_input = 710,
  data_output = 711,
  filter_how = 714,
  filter_filter = 715,
  filter_input = 716,
  filter_output = 717,
  graph_operations = 801,
  tensor_type = 901,
  tensor_dims = 902,
  tensor_strides = 903,
  pack_workspace = 1003,
  engine_graph = 1300,
  engine_index = 1301,
  engine_notes = 1303,
  engine_behaviors = 1305,
  engine_card = 1307,
  pointwise_mode = 0,
  pointwise_of = 750,
  matmul_a = 1520,
  matmul_b = 1521,
  forward_q = 2800,
  forward_k = 2801,
  backward_q = 2851,
  backward_k = 2852
};

enum Knob { knob_tile_size = 2, knob_tile_k = 13, knob_workspace = 25, knob_cluster_m = 27, knob_cluster_n = 28 };

constexpr int of_handles = 0, of_sizes = 3, of_knobs = 9, of_notes = 11, of_descriptors = 15, of_behaviors = 19;
constexpr std::size_t bytes_of(int attribute_type) {
  switch (attribute_type) {
    case 0:
    case 3:
    case 5:
    case 6:
    case of_descriptors: return 8;  // handle, int64, double, pointer
    case 2:
    case 24: return 1;   // boolean, char
    case 26: return 16;  // fraction
    default: return 4;
  }
}

}  // namespace headroom::dry::dnn
