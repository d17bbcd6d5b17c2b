// What accounts of memory are asked about: whose bytes, in which use of a model, within which limit.
#pragma once
#include <string>

#include "base/described.h"
#include "base/device.h"
#include "base/other_words.h"

namespace headroom::studies {

enum class Whose : std::uint8_t { headroom, pytorch };  // this library's step, or PyTorch eager's
enum class ModelUse : std::uint8_t {
  train,      // a step, with the optimiser's state and update
  inference,  // weights, cache, prefill and decode
  forward,    // a forward pass alone: nothing is kept for backward
  gradients   // forward and backward, without an optimiser
};

inline constexpr const char* about_phase =
    "train: a training step; forward, forward+backward: without an optimiser; inference: weights, cache, prefill and decode";

inline constexpr Description memory_limit{
    .name = "memory_bytes",
    .unit = Unit::bytes,
    .about = "Memory limit of a device, including what is allocated beside tensors; at most all of it [all of it]",
    .allowed = {1, std::numeric_limits<std::int64_t>::max()},
    .option = "--memory"};

// --as pytorch accounts for PyTorch's CUDA allocator: an Error where the device is no GPU.
void check_has_cuda_allocator(const Device&);
// --measure runs what is accounted for: an Error where the device is not here.
void check_measured_here(bool is_here, const std::string& device);

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::Whose> = names<studies::Whose>("headroom", "pytorch");
template <>
inline constexpr auto names_of<studies::ModelUse> = names<studies::ModelUse>("train", "inference", "forward", "forward+backward");
template <>
inline constexpr auto other_words_of<studies::Whose> = std::to_array<OtherWord<studies::Whose>>({
    {"torch", studies::Whose::pytorch}, {"pytorch", studies::Whose::pytorch},  // PyTorch
});
template <>
inline constexpr auto other_words_of<studies::ModelUse> = std::to_array<OtherWord<studies::ModelUse>>({
    {"training", studies::ModelUse::train},
    {"serve", studies::ModelUse::inference},
    {"serving", studies::ModelUse::inference},
    {"backward", studies::ModelUse::gradients},
});
}  // namespace headroom
