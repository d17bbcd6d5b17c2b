#include "studies/memory/account_table.h"

namespace headroom {

Table component_table(const std::vector<Component>& components, std::string name, std::string title) {
  Table t{std::move(name),
          std::move(title),
          {{"name"}, {"shape"}, {"dtype"}, {"bytes", Unit::bytes}, {"formula"}, {"phase"}, {"at_peak"}, {"share", Unit::share}},
          {}};
  for (const Component& c : components) t.add({c.name, c.shape, c.dtype, std::int64_t(c.bytes), c.formula, c.phase, c.at_peak, c.share});
  return t;
}

}  // namespace headroom
