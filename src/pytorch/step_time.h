// The milliseconds of PyTorch's step: the clock of dry runs (dry/clock.h) over what the account's walk gives to the card.
#pragma once
#include <optional>
#include <string>

#include "base/device.h"
#include "pytorch/language_model.h"

namespace headroom::pytorch {

struct StepTime {
  // At most: with a host and a card as slow as they were seen. At least: as fast as they were seen, and norms that are kernels of their own.
  std::optional<double> ms{}, ms_low{}, ms_high{};
  std::string ms_by{};          // where the rates come from, or why there is no time
  bool waits_for_host = false;  // the card waits for the host longer than it does any one thing
};
StepTime step_time(const LanguageModel&, const Device&);

double tokens_per_s(const LanguageModel&, double ms);
std::string tokens_per_s_in_words(const LanguageModel&, const StepTime&);       // "960 (580 to 1900)"
std::string in_words(const LanguageModel&, const StepTime&, bool fits = true);  // a sentence

}  // namespace headroom::pytorch
