// A mask in words. Apart from mask.h, which kernels read: the standard library's text is a third of the time that their headers take.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "ops/attention/mask.h"

namespace headroom::attention {

std::string name_of(const Mask&);                  // one of mask_shapes, with numbers: "causal", "window:256+128"
std::optional<Mask> mask_named(std::string_view);  // the inverse of name_of
inline constexpr std::string_view mask_shapes[] = {"full", "causal", "window:W", "window:W+A", "causal:top-left", "window:W:top-left"};

}  // namespace headroom::attention
