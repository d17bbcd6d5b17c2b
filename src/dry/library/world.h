// What this process was told (settings.h): the card, how many of them it sees, and what is said aloud.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dry/card.h"
#include "dry/record.h"

namespace headroom::dry {

const Card& card();
constexpr int most_cards = 64;
int host_cards();          // of this host: those of the settings, and those that CUDA_VISIBLE_DEVICES names
int devices();             // cards that CUDA_VISIBLE_DEVICES leaves
int physical(int device);  // its index on the host
int& device();             // the calling thread's
int threads_of_unit();     // threads resident on a multiprocessor, by the programming guide
int blocks_of_unit();
int cuda_version();    // version of the program's own runtime, such as 12040
const char* folder();  // null: nothing is recorded

// A sentence on standard error, "headroom dry: WHAT NAME", once for each pair; only if it was asked for.
void say(const char* what, const char* name);

// Into the record, the first time and at counts of 2, 4, 8, …
void note(Said, std::string_view name, std::uint64_t bytes = 0);
int accepted(const char* name, int result = 0);   // a function that only says yes; returns `result`
int refused(const char* name, int result = 801);  // one that says no

}  // namespace headroom::dry
