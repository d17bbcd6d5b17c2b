// A chart in a few lines of text, for a terminal or Markdown: the course of a line, or bars.
#pragma once
#include <string>
#include <vector>

#include "report/record.h"

namespace headroom {

std::vector<std::string> chart_lines(const Chart&, int columns = 80);  // names of stacked bars take what so many columns leave them

}  // namespace headroom
