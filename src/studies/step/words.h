// The allowed words of a step's options: precisions that the engine trains in, and attention families.
#pragma once
#include <string>
#include <vector>

#include "engine/training.h"
#include "store/described_json.h"

namespace headroom::studies {

std::vector<std::string> trained_precisions();
std::vector<std::string> attention_families();
void check_scales(const std::vector<Precision>&, std::optional<engine::Scales>);  // refused where none is fp8
// Also tf32 is, on a CPU.
void check_precisions(const std::vector<Precision>&, std::optional<engine::Scales>, const Device&);
inline constexpr const char* about_logits = "Dtype of logits: whole is FP32, half the precision's, whose rounding the loss then sees";

}  // namespace headroom::studies

namespace headroom {
template <>
struct JsonOf<engine::ModelConfig> {
  static RowObject to(const engine::ModelConfig&);
  static engine::ModelConfig from(const RowObject&);
};
}  // namespace headroom
