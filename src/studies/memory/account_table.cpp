#include "studies/memory/account_table.h"

#include "report/described_table.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

Table component_table(const std::vector<Component>& components, std::string name, std::string title) {
  std::vector<AccountRow> rows;
  for (const Component& c : components)
    rows.push_back({.name = c.name,
                    .shape = c.shape,
                    .dtype = c.dtype,
                    .bytes = c.bytes,
                    .formula = c.formula,
                    .phase = c.phase,
                    .at_peak = c.at_peak,
                    .share = c.share});
  return table_of(std::move(name), std::move(title), rows);
}

}  // namespace headroom::studies
