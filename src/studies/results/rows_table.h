// Any command's rows as a table: the columns are the fields, in the order in which they first appear, their units and how they are shown
// by the description of such rows (columns.h).
#pragma once
#include <span>
#include <string>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

Value value_of(const RowObject& cell);
Table rows_table(std::string name, std::string title, std::span<const RowObject> rows);

}  // namespace headroom::studies
