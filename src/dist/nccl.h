// Ranks as processes with a GPU each, over NCCL. Calls put work on a stream and can be captured. On one machine, large exchanges and gathers
// are copies from GPU to GPU (peers.h). Two communicators: one whose calls are kernels and, when asked for, one whose calls use copy engines.
//
// Order of destruction: graphs with calls, lanes, memory of take(), the Comm. NCCL hangs if a graph outlives its communicator.
#pragma once
#include <memory>

#include "base/described.h"
#include "dist/comm.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

enum class Route : std::uint8_t {
  automatic,    // by size, as measured: peer copies, else kernels
  kernels,      // NCCL's
  copy_engines  // NCCL's, for gathers and exchanges; an Error if they are not available
};

std::unique_ptr<Comm> make_nccl_comm(Rendezvous&, int device, Route = Route::automatic);

}  // namespace headroom::dist

namespace headroom {
template <>
inline constexpr auto names_of<dist::Route> = names<dist::Route>("auto", "kernels", "copy-engines");
}
