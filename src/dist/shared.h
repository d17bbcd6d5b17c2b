// Ranks as processes of one machine, over memory that they share. The memory has no name in any file system, so none is left behind however
// a process ends. A call copies through windows of it, half of a window filled while the other half is read.
#pragma once
#include <cstddef>
#include <memory>

#include "dist/comm.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

std::unique_ptr<Comm> make_shared_comm(Rendezvous&,
                                       std::size_t window_bytes = 1 << 20);  // an Error where the ranks are on several machines

}  // namespace headroom::dist
