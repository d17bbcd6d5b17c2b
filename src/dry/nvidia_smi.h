// The stand-in for nvidia-smi: a program may ask it how many cards there are, how large, and how much of them is used.
#pragma once
#include <string>

#include "dry/launch.h"

namespace headroom::dry {

// A shell script that answers from the description, and from what the processes of the dry run take (`folder`/cards, as library/others.cpp
// writes it). What it does not know it refuses, or answers [N/A] as a card does.
std::string nvidia_smi(const Dry&, const std::string& folder);

}  // namespace headroom::dry
