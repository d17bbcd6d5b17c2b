// libheadroom_cuda.so begins here: its one symbol, and what of this room the program calls.
#include "gpu/across.h"
#include "gpu/beside.h"

extern "C" __attribute__((visibility("default"))) const headroom::beside::Door* headroom_cuda() {
  static const headroom::beside::Door door{headroom::beside::this_build, headroom::beside::all_offers()};
  return &door;
}

namespace headroom {

namespace {

using beside::construct, beside::destroy, beside::offer;

const beside::Offers of_this_room{
    offer<cuda_device_count>(),
    offer<cuda_device>(),
    offer<free_memory_bytes>(),
    offer<use_cuda_device>(),
    offer<construct<Stream, int>>(),
    offer<destroy<Stream>>(),
    offer<&Stream::wait>(),
    offer<construct<UrgentStream, int>>(),
    offer<destroy<UrgentStream>>(),
    offer<priority_of>(),
    offer<construct<Graph, void*, across::Work>>(),
    offer<destroy<Graph>>(),
    offer<across::launch_graph>(),
    offer<run_and_count>(),
    offer<being_recorded>(),
    offer<construct<Event>>(),
    offer<destroy<Event>>(),
    offer<&Event::record>(),
    offer<&Event::hold_up>(),
    offer<&Event::passed>(),
    offer<&Event::wait>(),
    offer<construct<Stopwatch>>(),
    offer<destroy<Stopwatch>>(),
    offer<&Stopwatch::start>(),
    offer<&Stopwatch::stop>(),
    offer<&Stopwatch::elapsed_ms>(),
    offer<construct<SharedMemory, int, std::size_t>>(),
    offer<construct<SharedMemory, int, std::size_t, int>>(),
    offer<destroy<SharedMemory>>(),
    offer<&SharedMemory::descriptor>(),
    offer<name_of_allocation>(),
    offer<construct<PeerView, const std::string&>>(),
    offer<destroy<PeerView>>(),
    offer<put_signals>(),
    offer<copy_by_engine>(),
    offer<construct<SeenByGpu, void*, std::size_t>>(),
    offer<destroy<SeenByGpu>>(),
    offer<card_bytes>(),
    offer<give_back_card_bytes>(),
    offer<copy_to_device>(),
    offer<copy_to_host>(),
    offer<copy_rows_to_host>(),
    offer<copy_on_device>(),
    offer<set_bytes>(),
    offer<set_rows>(),
    offer<fill_normal>(),
    offer<device_memory>(),
    offer<read_from_device>(),
    offer<write_to_device>(),
    offer<copy_across>(),
    offer<construct<Pinned, std::size_t>>(),
    offer<destroy<Pinned>>(),
    offer<across::make_map>(),
    offer<make_byte_map>(),
    offer<blas::multiply>(),
    offer<construct<blas::Measuring>>(),
    offer<destroy<blas::Measuring>>(),
    offer<construct<OnDevice, const Device&>>(),
    offer<destroy<OnDevice>>(),
    offer<check_reachable>(),
    offer<check_host_memory>(),
    offer<push_range>(),
    offer<pop_range>(),
};

}  // namespace

}  // namespace headroom
