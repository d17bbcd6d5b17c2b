// Sinks, lists of documents, tables of pages and scales: whether a problem was given what it asks for.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

void check_list(const char* name, const Tensor&, const Shape&, DType);  // a small tensor, contiguous

void check(const Problem&, const Extras&);  // shapes and types of those that the problem asks for; others are not looked at

// What small tensors say, where the host can read them: documents begin at 0, never go back and end inside; every page that a sequence
// uses exists; slopes of ALiBi are finite. Kernels stay inside the tensors whatever lists say, but a wrong list gives a wrong result, and an
// infinite slope NaN. After check().
void check_values(const Problem&, const Extras&);

}  // namespace headroom::attention
