// Descriptors — each rank of one machine gives each other rank a file descriptor.
#pragma once
#include <vector>

#include "dist/rendezvous.h"
#include "dist/wire.h"

namespace headroom::dist {

// By rank: what they gave; none of this one's own. Called by all ranks; where one of them fails, an Error (io) on all says why.
std::vector<Socket> exchange_descriptors(Rendezvous&, int mine);

}  // namespace headroom::dist
