#include "studies/memory/edge_table.h"

#include <algorithm>

#include "base/text.h"
#include "report/described_table.h"
#include "studies/step/words.h"

namespace headroom::studies {

Table edge_table(const std::vector<LargestRow>& rows, const Room& room) {
  Table t = table_of("edge", fmt::format("Where {} end", bytes_in_words(double(room.memory_bytes))), rows);
  if (std::none_of(rows.begin(), rows.end(), [](const LargestRow& r) { return r.keep.has_value(); })) leave_out(t, "keep");
  return without_usual(std::move(t), rows);
}

}  // namespace headroom::studies
