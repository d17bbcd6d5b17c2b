// The functions of every implementation, for the table in choose.cpp and for the sources that define them.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

struct Features {  // what a problem may have beside the plain question: see attention.h
  bool softcap = false, sink = false, documents = false, dim_v = false, pages = false, dropout = false, alibi = false;
};
Support asks_no_more_than(const Problem&, Features known);  // says what of it is not served

Support plain_supports(const Problem&, const Device&, Pass);
Saved plain_make_saved(const Problem&, Context&);
void plain_forward(const Problem&, const Forward&, Context&);
void plain_backward(const Problem&, const Backward&, Context&);

Support flash_supports(const Problem&, const Device&, Pass);
Saved nothing_saved(const Problem&, Context&);
void flash_forward(const Problem&, const Forward&, Context&);
void flash_backward(const Problem&, const Backward&, Context&);

// On CUDA: host sides, which are the program's. Their kernels are in libheadroom_cuda.so.
Support decode_supports(const Problem&, const Device&, Pass);
void decode_forward(const Problem&, const Forward&, Context&);
void decode_backward(const Problem&, const Backward&, Context&);

Support sm90_supports(const Problem&, const Device&, Pass);
void sm90_forward(const Problem&, const Forward&, Context&);
void sm90_backward(const Problem&, const Backward&, Context&);
bool sm90_turns_back(const Problem&);

Support sm90_fp8_supports(const Problem&, const Device&, Pass);  // forward alone
void sm90_fp8_forward(const Problem&, const Forward&, Context&);

// On a CPU, for tests and studies: the arithmetic of flash_sm90_fp8, number by number. Forward alone.
Support flash_fp8_supports(const Problem&, const Device&, Pass);
void flash_fp8_forward(const Problem&, const Forward&, Context&);
void no_backward(const Problem&, const Backward&, Context&);  // for rows without a backward

Support sm80_supports(const Problem&, const Device&, Pass);
void sm80_forward(const Problem&, const Forward&, Context&);
void sm80_backward(const Problem&, const Backward&, Context&);

Support sm80_fp32_supports(const Problem&, const Device&, Pass);
void sm80_fp32_forward(const Problem&, const Forward&, Context&);
void sm80_fp32_backward(const Problem&, const Backward&, Context&);

Support simt_supports(const Problem&, const Device&, Pass);
void simt_forward(const Problem&, const Forward&, Context&);
void simt_backward(const Problem&, const Backward&, Context&);

Support plain_cuda_supports(const Problem&, const Device&, Pass);  // make_saved is the CPU's: P, wherever the arena lies
void plain_cuda_forward(const Problem&, const Forward&, Context&);
void plain_cuda_backward(const Problem&, const Backward&, Context&);

void no_keys(const Problem&, const Forward&, Context&);  // on CUDA, len_k = 0: O = 0, LSE = −∞

}  // namespace headroom::attention
