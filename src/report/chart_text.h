// A chart in a few lines of text, for a terminal or within Markdown: a line's course, bars as long as what they stand for.
#pragma once
#include <string>
#include <vector>

#include "report/record.h"

namespace headroom {

std::vector<std::string> chart_lines(const Chart&);

}  // namespace headroom
