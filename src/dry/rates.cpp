#include "dry/rates.h"

namespace headroom::dry {

double seconds_of(const HostWork& w, const HostRate& h) {
  return w.functions * h.function_s + w.builtins * h.builtin_s + w.operations * h.operation_s + w.nodes * h.node_s +
         double(w.bytes) * h.byte_s;
}

double call_of_kernel(std::string_view name, const HostRate& h) { return name.starts_with("triton_") ? h.generated_s : h.launch_s; }

double call_of_product(std::string_view name, const HostRate& h) {
  if (name == "cuDNN recurrent layers, state") return h.launch_s;  // cuDNN gives the places of a sequence to the card in a loop of its own
  return name.starts_with("cuDNN") ? h.convolution_s : h.product_s;
}

void scale_host(Rates& r, double by) {
  HostRate& h = r.host;
  for (double* s : {&h.function_s, &h.builtin_s, &h.operation_s, &h.node_s, &h.block_s, &h.byte_s, &h.convolution_s, &h.generated_s,
                    &h.launch_s, &h.product_s, &h.attention_s, &h.copy_s, &h.wait_s, &h.graph_s, &r.bare_launch_s, &r.bare_wait_s})
    *s *= by;
}

Rates rates_of_h200() {
  constexpr double us = 1e-6, tera = 1e12;
  Rates r;
  r.source = "rates measured on an H200";
  r.low = 0.92;
  r.high = 1.15;
  r.host_low = 0.72;  // 41 programs took 0.84 to 1.5 times as long in the next minute, ten beside another H200 0.68 to 1.8 times
  r.host_high = 1.25;
  r.units = 132;
  // Fitted to products of 128 to 16 384 tokens, widths of 256 to 128 256.
  r.half = {820 * tera, 834 * tera, 838 * tera, 794 * tera, 1.92 * us, 0.76 * us, 1.97 * us, 1, 1.005, 5.9};
  r.brain = r.half;
  r.tf32 = {419 * tera, 388 * tera, 320 * tera, 244 * tera, 2.64 * us, 2.07 * us, 1.55 * us, 1.13, 1.6};
  r.single = {50.4 * tera, 47.1 * tera, 47 * tera, 45 * tera, 0.85 * us, 4.96 * us, 0.66 * us, 0.98, 0.94};
  r.eight = r.half;  // not measured: by the ceilings of 8 and 16 bits; FP64 as FP32
  for (double* rate : {&r.eight.large, &r.eight.middle, &r.eight.small, &r.eight.least}) *rate *= 1.9;
  r.twice = r.single;
  r.half.most = r.brain.most = 989.5 * tera, r.tf32.most = 494.7 * tera, r.eight.most = 1979 * tera;  // the datasheet's
  r.single.most = r.twice.most = 67 * tera;
  r.cudnn = {6.6 * us, 26.9 * us, 0.507, 292, 479 * tera, 426 * tera, 666 * tera, 577 * tera, 580 * tera, 351 * tera};
  r.flash = {4.4 * us, 32.8 * us, 0.485, 386, 297 * tera, 264 * tera, 352 * tera, 294 * tera, 327 * tera, 225 * tera};
  r.efficient = {6.9 * us, 21.3 * us, 0.567, 83, 128 * tera, 102 * tera, 175 * tera, 131 * tera, 175 * tera, 131 * tera};
  r.efficient_single = {15.2 * us, 45.4 * us, 0.523, 77, 34 * tera, 34.6 * tera, 45.6 * tera, 37.3 * tera, 45.6 * tera, 37.3 * tera};
  r.pointwise = {1.2 * us, 6.6 * tera, 4.2 * tera};
  r.strided = {1 * us, 6.6 * tera, 4.2 * tera};
  r.strided_per_s = 3.3e11;
  r.strided_converting_per_s = 1.95e11;
  // Fitted to 462 kernels by element of PyTorch 2.11 (bench/results, h200_elementwise).
  r.touched = {1 * us, 1.5e-12, 0.61e-12, 0.256e-12, 7.3 * tera, 10.2 * tera, 3.07e11, 67e6, 2.27 * tera};
  r.converting = {1.5 * us, 2.7 * tera, 2.15 * tera};
  r.reducing = {2.2 * us, 5 * tera, 4.2 * tera};
  r.reducing_block_s = 0.0035 * us;
  r.reducing_narrow_block_s = 0.0025 * us;
  r.reduced_part_s = 0.3 * us;
  r.norm = {3 * us, 2.3 * tera, 2.3 * tera};
  r.norm_backward = {2 * us, 4.5 * tera, 3.6 * tera};
  r.norm_weights = {3 * us, 4.5 * tera, 1.25 * tera};
  r.softmax = {3 * us, 3.2 * tera, 3 * tera};
  r.long_row_bytes = 220e3;
  r.long_row_bytes_per_s = 2.25 * tera;
  r.lists = {2 * us, 5 * tera, 3.55 * tera};
  r.joining = {1.5 * us, 1 * tera, 1 * tera};
  r.generated = {1.5 * us, 4.4 * tera, 3 * tera};
  r.generated_sums = {2 * us, 7 * tera, 5.4 * tera};
  r.single_channels = {2 * us, 1.6 * tera, 1.6 * tera};  // from a SegFormer's 3 x 3: 7 to 22 us for 8 to 25 MB, in bf16
  r.other = {2.5 * us, 3 * tera, 3 * tera};
  r.cache_bytes = 40e6;
  r.unit_bytes_per_s = 0.05 * tera;
  r.gap_s = 1.4 * us;
  r.link_bytes_per_s = 325e9;  // a ceiling, and a guess of a call's least time: collectives were not measured
  r.collective_s = 20 * us;
  r.host_bytes_per_s = 55e9;
  r.host_copy_s = 2 * us;
  r.host = {.function_s = 0.62 * us,
            .builtin_s = 0.18 * us,
            .operation_s = 3 * us,
            .node_s = 8.5 * us,
            .block_s = 2.2 * us,
            .byte_s = 0.0015 * us,
            .launch_s = 6.8 * us,
            .generated_s = 20 * us,
            .convolution_s = 23 * us,
            .product_s = 18 * us,
            .attention_s = 20 * us,
            .copy_s = 11 * us,
            .wait_s = 13 * us,
            .graph_s = 30 * us};
  r.bare_launch_s = 27 * us;  // between a fast and a slow minute of the same host
  r.bare_wait_s = 600 * us;
  r.bare_low = 0.7;
  r.bare_high = 1.4;
  return r;
}

}  // namespace headroom::dry
