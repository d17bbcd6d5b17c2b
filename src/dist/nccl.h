// Ranks as processes with a GPU each, over NCCL. Calls put work on a stream and can be captured. Two communicators: one whose calls are
// kernels and, if NCCL and the card support it, one whose calls use copy engines and leave the multiprocessors to other work.
//
// Order of destruction: graphs with calls, lanes, memory of take(), the Comm. NCCL hangs if a graph outlives its communicator.
#pragma once
#include <memory>

#include "base/described.h"
#include "dist/comm.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

enum class Route : std::uint8_t {
  automatic,    // by size, as measured
  kernels,      // of NCCL
  copy_engines  // gathers and exchanges; an Error where they cannot be had
};

std::unique_ptr<Comm> make_nccl_comm(Rendezvous&, int device, Route = Route::automatic);

}  // namespace headroom::dist

namespace headroom {
template <>
inline constexpr auto names_of<dist::Route> = names<dist::Route>("auto", "kernels", "copy-engines");
}
