// A run as a report reads it: from the store, or from a file that --format json or csv wrote. Its rows are in tables: a row's field "table"
// names its table; without it the row is in "rows". A row whose detail has "rows" represents a long table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "store/row_objects.h"

namespace headroom::studies {

struct RowTable {
  std::string name;
  std::vector<RowObject> rows;
};

struct ReportRun {
  std::string name;                                          // the name to read: "run 3", or the file's name
  std::string command, machine, version, started, finished;  // empty: not known
  RowObject settings = RowObject::object();
  RowObject device = RowObject::object();  // the machine in a file
  std::vector<std::string> notes{};
  std::vector<RowTable> tables{};

  const std::vector<RowObject>& rows(const std::string& table = "rows") const;
};

ReportRun run_from_store(const Results&, const StoredRun&);
ReportRun run_from_text(const std::string& text,
                        const std::string& file_name);  // CSV when it ends in .csv; an Error says why it is not one
std::vector<ReportRun> runs_from_text(const std::string& text, const std::string& file_name);  // also {"runs": [{"command", "result"}]}
std::vector<ReportRun> runs_from_file(const std::string& file);

}  // namespace headroom::studies
