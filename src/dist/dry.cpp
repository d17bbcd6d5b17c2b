#include "dist/dry.h"

#include <algorithm>
#include <map>

#include "base/element.h"

namespace headroom::dist {

DryComm::DryComm(int rank, int ranks, double link_bytes_per_s, std::function<std::size_t()> steps_so_far)
    : Comm(rank, ranks), link_bytes_per_s_(link_bytes_per_s), steps_so_far_(std::move(steps_so_far)) {}

void DryComm::do_exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own) {
  note(Call::exchange, mine, mine.data, theirs.data, stream);
}

// A rank's own place in `whole` differs from rank to rank, so a part that lies there is noted by where the whole is.
void DryComm::do_gather(const Tensor& part, const Tensor& whole, void* stream) {
  const bool in_place = part.data == element_of(whole, rank() * part.count());
  note(Call::gather, whole, in_place ? whole.data : part.data, whole.data, stream);
}

void DryComm::do_broadcast(const Tensor& whole, int, void* stream) { note(Call::broadcast, whole, whole.data, whole.data, stream); }
void DryComm::do_barrier(void* stream) { note(Call::barrier, Tensor(nullptr, DType::u8, {0}), nullptr, nullptr, stream); }

void DryComm::note(Call call, const Tensor& larger, const void* from, const void* to, void* stream) {
  const double link = sent_bytes(call, double(larger.bytes()), ranks());
  log_.push_back({call, carried(), larger.dtype, larger.bytes(), reinterpret_cast<std::size_t>(from), reinterpret_cast<std::size_t>(to),
                  link, link_bytes_per_s_ > 0 ? link / link_bytes_per_s_ * 1e3 : 0, static_cast<const Lane*>(stream), step()});
}

class DryComm::DryLane final : public Lane {
 public:
  explicit DryLane(DryComm& comm) : comm_(comm) {}
  void* stream() const override { return static_cast<Lane*>(const_cast<DryLane*>(this)); }  // the main queue's is null
  void follow(void*) override { note(Joint::Kind::follow, 0); }
  void mark(int m) override { note(Joint::Kind::mark, m); }
  void wait(int m, void*) override { note(Joint::Kind::wait, m); }
  void busy_for(double ms) override { note(Joint::Kind::takes, 0, ms); }

 private:
  void note(Joint::Kind kind, int mark, double ms = 0) { comm_.joints_.push_back({kind, this, mark, comm_.log_.size(), comm_.step(), ms}); }
  DryComm& comm_;
};

std::unique_ptr<Lane> DryComm::make_lane(int) { return std::make_unique<DryLane>(*this); }

Exposed exposed_ms(std::span<const Sent> log, std::span<const Joint> joints, std::span<const double> step_ms,
                   double (*begins)(const Sent&)) {
  std::size_t call = 0, step = 0;
  double main = 0;  // the moment that the main queue has reached
  Exposed exposed;
  struct Reached {
    double now = 0;
    std::map<int, double> marks;
    bool calls = false;  // it carries them
  };
  std::map<const Lane*, Reached> lanes;
  for (const Sent& s : log)
    if (s.lane) lanes[s.lane].calls = true;
  const auto advance = [&](std::size_t to) {
    for (; step < to && step < step_ms.size(); ++step) main += step_ms[step];
  };
  const auto run_calls = [&](std::size_t to) {
    for (; call < to; ++call) {
      advance(log[call].step);
      const double ms = log[call].link_ms + (begins ? begins(log[call]) : 0);
      if (log[call].lane) {
        lanes[log[call].lane].now += ms;
      } else {
        main += ms, exposed.link_ms += ms;
      }
    }
  };
  for (const Joint& j : joints) {
    run_calls(j.calls);
    advance(j.step);
    Reached& lane = lanes[j.lane];
    switch (j.kind) {
      case Joint::Kind::follow: lane.now = std::max(lane.now, main); break;
      case Joint::Kind::mark: lane.marks[j.mark] = lane.now; break;
      case Joint::Kind::takes: lane.now += j.ms; break;
      case Joint::Kind::wait:
        if (const double until = lane.marks[j.mark]; until > main) {
          (lane.calls ? exposed.link_ms : exposed.other_ms) += until - main;
          main = until;
        }
    }
  }
  run_calls(log.size());
  return exposed;
}

double DryComm::link_bytes() const {
  double sum = 0;
  for (const Sent& s : log_) sum += s.link_bytes;
  return sum;
}

double DryComm::link_ms() const {
  double sum = 0;
  for (const Sent& s : log_) sum += s.link_ms;
  return sum;
}

std::string in_words(const Sent& s) {
  return fmt::format("{} of {}, {} bytes of {} from {} to {}", names_of<Call>.of(s.call), s.what.text[0] ? s.what.full() : "unnamed bytes",
                     s.bytes, name_of(s.dtype), s.from, s.to);
}

std::vector<std::uint64_t> hashes(const std::vector<Sent>& log) {  // FNV-1a over the words that people would read
  std::vector<std::uint64_t> out;
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const Sent& s : log) {
    for (const char c : in_words(s)) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull;
    out.push_back(h);
  }
  return out;
}

}  // namespace headroom::dist
