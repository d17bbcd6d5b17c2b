// A model in JSON, and what devices refuse of the levers of a step.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "engine/pass/training.h"
#include "gpu/architecture.h"
#include "report/described_table.h"
#include "store/described_json.h"

namespace headroom::studies {

void check_needs_fp8(const engine::LeverLists&);  // --scales and --copies kept are refused where no precision is fp8
// Also tf32 on a CPU, and where the program is ours, cards that its kernels do not run on.
void check_served(const engine::LeverLists&, const Device&, RunBy = RunBy::headroom);

// What progress says before the first step of a model, which on a GPU tries the algorithms of each product that the cache folder does not know.
std::string words_of_first_step(bool on_gpu);

// A table whose rows say their levers in words, without that column where all are as usual.
template <class Row>
Table without_usual(Table t, const std::vector<Row>& rows) {
  if (std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.with.empty(); })) leave_out(t, "with");
  return t;
}

// A lever that some row has otherwise than usual is a column for people too.
template <class Row>
void show_changed(Table& t, const std::vector<Row>& rows) {
  for (const Row& row : rows)
    for (const auto& [lever, word] : engine::changed(row.levers)) t.show(lever, Show::always);
}

}  // namespace headroom::studies

namespace headroom {
template <>
struct JsonOf<engine::Decoder> {
  static RowObject to(const engine::Decoder&);
  static engine::Decoder from(const RowObject&);
};
}  // namespace headroom
