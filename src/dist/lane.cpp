// A lane on a GPU: a stream of its own, and events where it meets the main one.
#include <vector>

#include "dist/comm.h"
#include "gpu/event.h"
#include "gpu/stream.h"

namespace headroom::dist {

namespace {

class StreamLane final : public Lane {
 public:
  StreamLane(int device, int marks) : stream_(device) {
    for (int i = 0; i < marks; ++i) marks_.emplace_back();
  }
  void* stream() const override { return stream_.raw(); }
  void follow(void* main) override {
    follow_.record(main);
    follow_.hold_up(stream_.raw());
  }
  void mark(int i) override { marks_.at(std::size_t(i)).record(stream_.raw()); }
  void wait(int i, void* main) override { marks_.at(std::size_t(i)).hold_up(main); }

 private:
  Stream stream_;
  Event follow_;
  std::vector<Event> marks_;
};

}  // namespace

std::unique_ptr<Lane> lane_of_gpu(int device, int marks) { return std::make_unique<StreamLane>(device, marks); }

}  // namespace headroom::dist
