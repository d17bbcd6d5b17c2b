// What a process needs in order to run dry: variables that load the library and tell it what to answer, and links by which programs also find
// it as the driver. The command that starts programs calls this; the library itself does not.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dry/card.h"

namespace headroom::dry {

struct Dry {
  Card card;
  int cards = 1;                   // cards of the host
  std::uint64_t pinned_bytes = 0;  // most that the host may pin; 0: no limit
};

// `library`: the path of libheadroom_dry.so. `folder` exists; the record goes there, and the links are made in it. Returns the variables to
// set. Where a variable is a list of paths, this process's own value comes behind.
std::vector<std::pair<std::string, std::string>> environment(const Dry&, const std::string& library, const std::string& folder);

}  // namespace headroom::dry
