// What a training does at its end: the loss of the held-out part, and a text that the model goes on with.
#pragma once
#include <functional>
#include <string>

#include "engine/data/data.h"
#include "engine/pass/training.h"
#include "report/record.h"
#include "studies/train/train_run.h"

namespace headroom::studies {

// Nothing when the held-out part is shorter than one batch, or the run was asked to stop.
Value validation_loss(engine::Training&, const engine::Data&, std::int64_t most, const std::function<bool()>& stop);

// A text goes on from the prompt, token numbers from token 0; each new token is a run of the model over the last `len`. A document begins
// and ends with its separator.
std::string sampled(engine::Training&, const TrainRun&, const Tensor& logits, const std::function<bool()>& stop);

}  // namespace headroom::studies
