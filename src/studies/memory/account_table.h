// An account's components as a table of a report.
#pragma once
#include "report/record.h"
#include "studies/memory/account.h"

namespace headroom {

Table component_table(const std::vector<Component>&, std::string name, std::string title);

}  // namespace headroom
