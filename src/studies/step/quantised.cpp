#include "studies/step/quantised.h"

#include <algorithm>

namespace headroom::studies {

namespace {

void add(QuantisedRow& to, const engine::QuantisedCount& c) {
  to.numbers += c.numbers;
  to.clipped += c.clipped;
  to.flushed += c.flushed;
  to.nan += c.nan;
  to.lost = to.numbers > 0 ? double(to.clipped + to.flushed + to.nan) / double(to.numbers) : 0;
}

}  // namespace

std::vector<QuantisedRow> by_layer(const std::vector<engine::QuantisedCount>& counts) {
  std::vector<QuantisedRow> rows;
  for (const engine::QuantisedCount& c : counts) {
    rows.push_back({.tensor = c.which, .layer = c.layer});
    add(rows.back(), c);
  }
  return rows;
}

std::vector<QuantisedRow> by_tensor(const std::vector<engine::QuantisedCount>& counts) {
  std::vector<QuantisedRow> rows(engine::quantised_count);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].tensor = engine::Quantised(i);
  for (const engine::QuantisedCount& c : counts) add(rows[std::size_t(c.which)], c);
  return rows;
}

QuantisedRow sum_of(const std::vector<engine::QuantisedCount>& counts) {
  QuantisedRow sum;
  for (const engine::QuantisedCount& c : counts) add(sum, c);
  return sum;
}

std::string in_words(const engine::Recipe& recipe, const std::vector<engine::QuantisedCount>& counts) {
  auto rows = by_layer(counts);
  std::stable_sort(rows.begin(), rows.end(), [](const QuantisedRow& a, const QuantisedRow& b) { return a.lost > b.lost; });
  std::string most;
  for (std::size_t i = 0; i < 3 && i < rows.size() && rows[i].lost > 0; ++i)
    most += fmt::format("{}{} of block {} ({:.3g} %)", most.empty() ? "; most of " : ", ", names_of<engine::Quantised>.of(rows[i].tensor),
                        *rows[i].layer, 100 * rows[i].lost);
  const QuantisedRow sum = sum_of(counts);
  return fmt::format(
      "fp8: the blocks' products, scales by {}. Of {} numbers quantised in the last step {} were clipped, {} became 0, {} are NaN{}.",
      names_of<engine::Scales>.of(recipe.scales.value_or(engine::usual_scales)), sum.numbers, sum.clipped, sum.flushed, sum.nan, most);
}

}  // namespace headroom::studies
