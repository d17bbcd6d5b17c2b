// Rows of a CSV file in tests/data, each cell by its column's name.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace headroom {

using Row = std::map<std::string, std::string>;

inline std::vector<Row> rows_of(const std::string& file) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/tests/data/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    std::stringstream cells(line);
    std::vector<std::string> values;
    for (std::string cell; std::getline(cells, cell, ',');) values.push_back(cell);
    if (names.empty()) {
      names = values;
      continue;
    }
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = i < values.size() ? values[i] : "";
  }
  return rows;
}

}  // namespace headroom
