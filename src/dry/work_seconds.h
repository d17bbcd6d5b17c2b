// What one piece of a record's work takes on an idle card, by the rates of that card: a product by its tiles, attention by its shape, any other
// kernel by the bytes that it moves.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "dry/rates.h"
#include "dry/record.h"

namespace headroom::dry {

enum class Part : std::uint8_t { products, attention, kernels, copies, collectives };
constexpr std::array<const char*, 5> part_names{"matrix products", "attention", "memory-bound kernels", "copies", "collectives"};

double seconds_of(const Product&, const Rates&);
double seconds_of(const Product&, std::string_view name, const Rates&);  // a convolution's too, which the record has as a product
double seconds_of(const Attention&, const Rates&);
double seconds_of(const Copy&, const Rates&);
double seconds_of(const Collective&, std::string_view name, const Rates&);

const ProductRate& rate_of(const Product&, const Rates&);
double flops_without_mask(const Attention&);

// A launch whose name says what it does: attention by PyTorch's own kernels; else what it moves.
struct LaunchWork {
  Part part = Part::kernels;
  double s = 0, flops = 0, bytes = 0;
};
LaunchWork work_of(const Launch&, std::string_view name, const Rates&);

}  // namespace headroom::dry
