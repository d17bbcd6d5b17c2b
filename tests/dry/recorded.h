// The tables of bench/results that tests walk, row by row.
#pragma once
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace headroom::dry {

struct RecordedRow {
  std::string text;
  std::vector<std::string> cells;
};

inline std::vector<RecordedRow> recorded(const std::string& file) {  // without its head
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/" + file);
  std::vector<RecordedRow> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream text(line);
    rows.push_back({.text = line, .cells = {}});
    for (std::string cell; std::getline(text, cell, ',');) rows.back().cells.push_back(cell);
  }
  return rows;
}

}  // namespace headroom::dry
