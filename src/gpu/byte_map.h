// Tensor maps of numbers of 8 bits.
#pragma once
#include "gpu/map.h"

namespace headroom {

enum class BoxLayout : std::uint8_t { swizzled, as_it_is };       // swizzled: the inner box is one panel of 128 bytes
Map make_byte_map(const void* data, const MapShape&, BoxLayout);  // strides in bytes; throws Error if the driver refuses it

}  // namespace headroom
