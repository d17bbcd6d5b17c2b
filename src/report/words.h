// One value as text, for the text and Markdown printers.
#pragma once
#include <string>
#include <vector>

#include "report/record.h"

namespace headroom {

std::string in_words(const Value&, Unit);
bool numeric(const Value&);
double number_of(const Value&);  // NaN when it is not a number

bool says_nothing(const Table&, std::size_t column);  // words that no row has: such as why, where everything went well

// A table as people read it: detail columns gone, values in words, bars beside what asks for them.
struct Worded {
  std::vector<std::string> header;
  std::vector<bool> right;  // numbers stand to the right
  std::vector<std::vector<std::string>> rows;
};
Worded worded(const Table&, int bar_columns);
std::string nothing_to_show(const Table&);  // what is said of rows whose every column is a detail or empty

std::string bar(double share, int columns);  // share 1 is a full bar
std::string sparkline(const std::vector<std::pair<double, double>>& points, bool log);

}  // namespace headroom
