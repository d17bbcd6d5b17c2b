// What libheadroom_cuda.so offers of CUPTI (gpu/beside.h).
#include "gpu/beside.h"
#include "instruments/profile/activity.h"
#include "instruments/profile/counters.h"

namespace headroom::profile {

namespace {

using beside::offer;

const beside::Offers of_cupti{
    offer<start_activity>(), offer<flush_activity>(), offer<stop_activity>(),     offer<push_link>(),
    offer<pop_link>(),       offer<mark_of_node>(),   offer<count_tensor_work>(),
};

}  // namespace

}  // namespace headroom::profile
