// The allowed words of a step's options: precisions that the engine trains in, and attention families.
#pragma once
#include <string>
#include <vector>

#include "engine/training.h"
#include "store/described_json.h"

namespace headroom {

std::vector<std::string> trained_precisions();
std::vector<std::string> attention_families();

template <>
struct JsonOf<engine::ModelConfig> {
  static RowObject to(const engine::ModelConfig&);
  static engine::ModelConfig from(const RowObject&);
};

}  // namespace headroom
