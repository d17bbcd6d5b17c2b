// PyTorch's thread beside NCCL, the watchdog of each process group: every 100 ms it looks which collectives are done, and lets go of tensors that it held
// for them (a bucket of DDP, what a hook on futures made). On a card some steps go by between two looks, in a dry run less or more. So here it looks once
// the program has gone on for 100 ms by its pace (pace.h), and the program waits meanwhile.
#pragma once
#include "dry/library/work.h"

namespace headroom::dry {

bool is_watchdog();                        // the calling thread
bool done_for_watchdog(const Event&);      // what it is told that asks
void collective_given(bool is_large_sum);  // such a sum may be of a bucket of DDP, which this thread holds and the program gives back
void backward_begins();                    // by the observer: DDP has made buckets anew, if it was to
void let_watchdogs_look();  // the program went on; the calling thread holds no lock that PyTorch takes to free a tensor, but Python's
void watchdog_gives();      // the calling thread gives a block back: if it is a watchdog, when it looks decides what the program needs

}  // namespace headroom::dry
