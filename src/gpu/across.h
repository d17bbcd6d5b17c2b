// This room's functions that cross the edge of libheadroom_cuda.so (gpu/beside.h), for the two files that name all of them.
#pragma once
#include "gpu/blas.h"
#include "gpu/buffer.h"
#include "gpu/byte_map.h"
#include "gpu/caller.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/fill.h"
#include "gpu/peer.h"
#include "gpu/probe.h"
#include "gpu/range.h"
#include "gpu/staging.h"
#include "gpu/stream.h"
#include "gpu/urgent_stream.h"

namespace headroom::across {

using Work = const std::function<void()>&;
// One of several of its name.
inline constexpr auto launch_graph = static_cast<void (Graph::*)(void*) const>(&Graph::launch);
inline constexpr auto make_map = static_cast<Map (*)(const void*, MapType, const MapShape&)>(&headroom::make_map);

}  // namespace headroom::across
