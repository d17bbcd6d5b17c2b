// What became of the numbers that fp8 quantised in a step, by tensor: for `train` and `profile step`.
#pragma once
#include <string>
#include <vector>

#include "engine/pass/training.h"
#include "report/described_table.h"

namespace headroom::studies {

struct QuantisedRow {
  engine::Quantised tensor = engine::Quantised::norm1;
  std::optional<std::int64_t> layer{};  // none: all together
  std::int64_t numbers = 0, clipped = 0, flushed = 0, nan = 0;
  double lost = 0;
};
void describe(Of<QuantisedRow> auto& r, auto&& f) {
  using enum Role;
  f(r.tensor, {.name = "tensor"});
  f(r.layer, {.name = "layer"});
  f(r.numbers, {.name = "numbers", .role = noted});
  f(r.clipped, {.name = "clipped", .role = measured});
  f(r.flushed, {.name = "flushed", .role = measured});
  f(r.nan, {.name = "nan", .role = measured});
  f(r.lost, {.name = "lost", .role = noted, .unit = Unit::share});
}

std::vector<QuantisedRow> by_layer(const std::vector<engine::QuantisedCount>&);
std::vector<QuantisedRow> by_tensor(const std::vector<engine::QuantisedCount>&);  // over all layers
QuantisedRow sum_of(const std::vector<engine::QuantisedCount>&);

// What ran, what was lost, and where most of it: one line.
std::string in_words(const engine::Recipe&, const std::vector<engine::QuantisedCount>&);

}  // namespace headroom::studies
