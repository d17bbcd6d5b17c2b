// An account's components as a table of a report.
#pragma once
#include "memory/account.h"
#include "report/record.h"

namespace headroom::studies {

Table component_table(const std::vector<Component>&, std::string name, std::string title);

}  // namespace headroom::studies
