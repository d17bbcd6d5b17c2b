// Two runs held against each other: rows that stand for the same problem are paired, and every time in them gets a verdict.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/record.h"

namespace headroom::studies {

struct ComparedRun {
  std::string name;                  // as the user said it
  std::vector<nlohmann::json> rows;  // objects
};

struct Comparison {
  Record record;
  bool slower = false;  // something in B takes longer than in A
  std::size_t pairs = 0;
};

// Rows are paired by all that was asked (every field but measured ones and the machine). For a pair, x_ms (or ms) in both: the ratio B / A
// with its spread (two standard errors of the ratio), and a verdict: same within `tolerance`, faster or slower when the whole
// spread is beyond it, unclear when the spread reaches across, or is not known:
// that takes x_ms_std and two steps.
Comparison compare_runs(const ComparedRun& a, const ComparedRun& b, double tolerance);

// A field that a run finds out; every other scalar of a row is part of the question.
bool is_measured(const std::string& field);

}  // namespace headroom::studies
