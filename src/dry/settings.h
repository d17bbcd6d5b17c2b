// What libheadroom_dry.so is told: environment variables of the process that it is loaded into. The command sets them, the library reads them,
// and no other code needs them. All but the folder have a default.
#pragma once

namespace headroom::dry {

// The folder of the record. It also holds libcuda.so.1 and libnvidia-ml.so.1, and both without the 1 (links to the library, for programs
// that look for them by path), nvidia-smi, and what processes tell each other. Without it nothing is recorded.
constexpr const char* folder_variable = "HEADROOM_DRY_FOLDER";

// The card: "name=NVIDIA H200;memory=150109880320;sm=90;units=132;…", the fields of card.h.
constexpr const char* card_variable = "HEADROOM_DRY_CARD";

// How many of them the host has (1); CUDA_VISIBLE_DEVICES chooses among these.
constexpr const char* cards_variable = "HEADROOM_DRY_CARDS";

// What the host may pin, in bytes; 0: no limit.
constexpr const char* pinned_variable = "HEADROOM_DRY_PINNED";

// How many hosts the program is told of (1). One host's ranks run; the others are taken to say what these say.
constexpr const char* hosts_variable = "HEADROOM_DRY_HOSTS";

// Which experts tokens go to where a program's numbers do not say (the observer reads it): random, balanced, worst, nearly, measured:F1,F2,…
// With +falls or +rises behind it, numbers of the card that are read are each smaller, or larger, than the one before.
constexpr const char* routing_variable = "HEADROOM_DRY_ROUTING";

// When PyTorch's allocator is told that a stream is done with memory of another: by the pace of the program; "at once", or "late", when the program has
// waited for it. So its thread beside NCCL: it looks every 100 ms of the program's pace, every 10 ms, or every 200.
constexpr const char* events_variable = "HEADROOM_DRY_EVENTS";

// The observer's folder, first in PYTHONPATH of each process that loads the library.
constexpr const char* observer_variable = "HEADROOM_DRY_OBSERVER";

// What an unknown float is for the program that reads it (the observer's: 0.75).
constexpr const char* float_variable = "HEADROOM_DRY_FLOAT";

// 0: what the library has to say is in the record only; 1: also on standard error, once each.
constexpr const char* talk_variable = "HEADROOM_DRY_TALK";

}  // namespace headroom::dry
