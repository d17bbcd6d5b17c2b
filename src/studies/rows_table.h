// Any command's rows as a table: the columns are the fields, in the order in which they first appear, their units told by their names.
#pragma once
#include <span>
#include <string>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

Value value_of(const RowObject& cell);
Unit unit_of(const std::string& field);
RowObject row_object(const Table&, std::size_t row);  // the way back: what a store keeps

// A page for people is too narrow for spreads and reasons: they are details.
Table rows_table(std::string name, std::string title, std::span<const RowObject> rows);

}  // namespace headroom::studies
