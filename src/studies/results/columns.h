// What a row's fields are: the description of the rows that a command writes, found again by their names. Rows of another program,
// which have no description, are read by the words in their names: "peer_ms" is a time, "dim" is part of the question.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

class Columns {
 public:
  Columns(std::string_view table, std::span<const RowObject> rows);  // table: "rows", or a profile's "kernels"

  const Column& of(const std::string& field) const;  // valid as long as this
  bool asked(const std::string& field) const { return of(field).role == Role::asked || varied(field); }
  bool varied(const std::string& field) const { return of(field).role == Role::varied; }
  bool described() const { return described_; }
  bool measures(const RowObject&) const;  // this program's own row, or one with a number of something measured

 private:
  mutable std::map<std::string, Column> known_;  // guesses for other programs' fields are added when needed
  bool described_ = false;
  bool ours_ = false;  // most columns of the description are there: another program's row may share a name or two with it
};

}  // namespace headroom::studies
