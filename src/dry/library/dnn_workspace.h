// How much workspace a card takes for a plan of a convolution: what the program's libcudnn says without a card, by the rules of card_workspace.h.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "dry/card_workspace.h"
#include "dry/library/dnn_descriptor.h"

namespace headroom::dry::dnn {

std::uint64_t bytes_of_copies(const Work&);              // of the tensors that kernels of tensor cores need turned
bool is_compiled_for_its_shape(const Descriptor& plan);  // a convolution's, whose engine has a kernel compiled where the plan is made
std::optional<WorkspaceRange> workspace_of_plan(Descriptor& plan);                 // null: it is no convolution's, or libcudnn says nothing
void note_listed(const Descriptor& search, std::span<Descriptor* const> entries);  // what PyTorch is told of a list, the best first

}  // namespace headroom::dry::dnn
