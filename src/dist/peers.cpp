#include "dist/peers.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "dist/descriptors.h"
#include "gpu/buffer.h"
#include "gpu/event.h"
#include "gpu/probe.h"

namespace headroom::dist {

namespace {
constexpr int steps = 2;
constexpr std::size_t word_bytes = 64;  // each in a line of its own
}  // namespace

Peers::Peers(Rendezvous& r, int device, Way way)
    : rendezvous_(r),
      rank_(r.rank()),
      ranks_(r.ranks()),
      device_(device),
      way_(way),
      stream_(device),
      words_(r, word_bytes * std::size_t(most_lanes * steps * ranks_ * ranks_)),
      words_of_gpu_(words_.at(0), words_.bytes()) {
  beside_.front() = std::make_unique<Beside>(device);
}

Peers::~Peers() {
  over_ = true;
  if (releaser_.joinable()) releaser_.join();
}

std::unique_ptr<Peers> Peers::join(Rendezvous& r, int device) {
  if (r.ranks() == 1 || !r.one_machine()) return nullptr;
  const auto all_can = [&](bool mine) {
    const auto words = r.collect(mine ? "1" : "0", "whether its GPU sees the others' memory");
    return std::all_of(words.begin(), words.end(), [](const std::string& w) { return w == "1"; });
  };
  for (const Way way : {Way::descriptors, Way::names}) {
    std::unique_ptr<Peers> peers;
    bool mine = true;
    try {
      peers.reset(new Peers(r, device, way));
    } catch (const Error& e) {
      if (e.at.code != Code::cuda) throw;
      mine = false;
    }
    if (!all_can(mine)) return nullptr;
    if (all_can(peers->works())) return peers;
  }
  return nullptr;
}

// Called by all ranks: a rank that cannot map another's says so before any of them goes on.
Peers::Region Peers::share(std::size_t bytes) {
  Region region{nullptr, bytes, std::vector<std::shared_ptr<char>>(std::size_t(ranks_))};
  way_ == Way::descriptors ? map_by_descriptors(region) : map_by_names(region);
  return region;
}

void Peers::map_by_descriptors(Region& region) {
  std::string why;
  Socket fd;
  std::exception_ptr full;
  try {
    const auto memory = std::make_shared<SharedMemory>(device_, region.bytes);
    fd = Socket(memory->descriptor());
    region.mine = {memory, memory->data()};
  } catch (const Error& e) {
    why = e.what();
    if (e.at.code == Code::out_of_memory) full = std::current_exception();
  }
  const auto agreed = [&](const char* what) {
    const auto all = rendezvous_.collect(why, what);
    if (full) std::rethrow_exception(full);
    for (const auto& w : all) check(w.empty(), Code::cuda, "{}", w);
  };
  agreed("their memory");
  const std::vector<Socket> theirs = [&] {
    try {
      return exchange_descriptors(rendezvous_, fd.fd());
    } catch (const Error& e) { throw Error(Code::cuda, e.what()); }  // the same on every rank
  }();
  for (int i = 0; i < ranks_ && why.empty(); ++i) {
    if (i == rank_) continue;
    try {
      const auto view = std::make_shared<SharedMemory>(device_, region.bytes, theirs[std::size_t(i)].fd());
      region.theirs[std::size_t(i)] = {view, view->data()};
    } catch (const Error& e) { why = e.what(); }
  }
  agreed("whether it sees their memory");
}

void Peers::map_by_names(Region& region) {
  const auto memory = std::make_shared<Buffer>(region.bytes);
  region.mine = {memory, static_cast<char*>(memory->data())};
  std::string name, why;
  try {
    name = name_of_allocation(region.mine.get());
  } catch (const Error& e) { why = e.what(); }
  const auto names = rendezvous_.collect(name, "their memory");
  for (int i = 0; i < ranks_ && why.empty(); ++i) {
    if (i == rank_) continue;
    try {
      const auto view = std::make_shared<PeerView>(names[std::size_t(i)]);
      region.theirs[std::size_t(i)] = {view, view->data()};
    } catch (const Error& e) { why = e.what(); }
  }
  for (const auto& w : rendezvous_.collect(why, "whether it sees their memory")) check(w.empty(), Code::cuda, "{}", w);
}

std::shared_ptr<void> Peers::take(std::size_t bytes) {
  if (bytes < smallest_shared_bytes) {
    const auto buffer = std::make_shared<Buffer>(bytes);
    return {buffer, buffer->data()};
  }
  const auto region = std::make_shared<Region>(share(bytes));
  regions_.push_back(region);
  return {region->mine.get(), [this, region](void*) { std::erase(regions_, region); }};
}

const Peers::Region* Peers::region_of(const void* data) const {
  const auto* at = static_cast<const char*>(data);
  for (const auto& r : regions_) {
    const char* begin = r->mine.get();
    if (at >= begin && at < begin + r->bytes) return r.get();
  }
  return nullptr;
}

void Peers::open_lane(void* stream) {
  const auto free = std::find(lanes_.begin() + 1, lanes_.end(), nullptr);
  check(free != lanes_.end(), Code::bad_argument, "ranks: {} queues beside the main one are in use, and that is all there are",
        most_lanes - 1);
  const auto lane = std::size_t(free - lanes_.begin());
  *free = stream;
  met_[lane] = Step::done;
  if (!beside_[lane]) beside_[lane] = std::make_unique<Beside>(device_);
}

void Peers::close_lane(void* stream) noexcept { std::replace(lanes_.begin() + 1, lanes_.end(), stream, static_cast<void*>(nullptr)); }

int Peers::lane_of(const void* stream) const {
  const auto found = stream ? std::find(lanes_.begin() + 1, lanes_.end(), stream) : lanes_.end();
  return found == lanes_.end() ? 0 : int(found - lanes_.begin());
}

bool Peers::serve(const void* whole, std::size_t bytes, void* stream) {
  return bytes >= (lane_of(stream) == 0 ? from_bytes : from_bytes_beside) && region_of(whole);
}

// Where it is said to `rank` by rank `of`.
std::size_t Peers::word(int rank, Step step, int of, int lane) const {
  return word_bytes * std::size_t(((rank * most_lanes + lane) * steps + int(step)) * ranks_ + of);
}

std::vector<Signal> Peers::said(Step step, int lane) const {
  std::vector<Signal> signals;
  for (int i = 0; i < ranks_; ++i)
    if (i != rank_) signals.push_back({Signal::What::write, words_of_gpu_.device_data() + word(i, step, rank_, lane), 1});
  return signals;
}

std::vector<Signal> Peers::heard(Step step, int lane) const {
  std::vector<Signal> signals;
  for (int i = 0; i < ranks_; ++i) {
    if (i == rank_) continue;
    void* const from = words_of_gpu_.device_data() + word(rank_, step, i, lane);
    signals.push_back({Signal::What::wait, from, 1});
    signals.push_back({Signal::What::write, from, 0});
  }
  return signals;
}

void Peers::copy_own(char* to, const char* from, std::size_t bytes, int lane, void* stream) {
  const Beside& beside = *beside_[std::size_t(lane)];
  beside.begins.record(stream);
  beside.begins.hold_up(beside.stream.raw());
  copy_by_engine(to, from, bytes, beside.stream.raw());
  beside.ends.record(beside.stream.raw());
}

// from(i): what rank i gets; it lies at this rank's place of the whole there.
template <class From>
void Peers::send(const From& from, char* whole, std::size_t part, void* stream, Own own_part) {
  const Region& region = *region_of(whole);
  const auto place = whole - region.mine.get() + std::ptrdiff_t(std::size_t(rank_) * part);
  const int lane = lane_of(stream);
  put_signals(said(Step::come, lane), stream);
  char* const own = whole + std::size_t(rank_) * part;
  const bool copies_own = own_part == Own::copied && from(rank_) != own, beside = copies_own && part >= beside_from_bytes;
  if (beside)
    copy_own(own, from(rank_), part, lane, stream);
  else if (copies_own)
    copy_by_engine(own, from(rank_), part, stream);  // while others come
  put_signals(heard(Step::come, lane), stream);
  for (int n = 1; n < ranks_; ++n) {  // each begins with the next rank, so that they do not all write to one
    const int i = (rank_ + n) % ranks_;
    copy_by_engine(region.theirs[std::size_t(i)].get() + place, from(i), part, stream);
  }
  auto signals = said(Step::done, lane);
  for (const Signal& one : heard(Step::done, lane)) signals.push_back(one);
  put_signals(signals, stream);
  if (beside) beside_[std::size_t(lane)]->ends.hold_up(stream);
}

void Peers::exchange(const char* mine, char* theirs, std::size_t part, void* stream, Own own) {
  send([&](int i) { return mine + std::size_t(i) * part; }, theirs, part, stream, own);
}

void Peers::gather(const char* part, char* whole, std::size_t bytes, void* stream) {
  send([&](int) { return part; }, whole, bytes, stream);
}

// A word that was waited for is reset, and written again only in the meeting after the next, to which its reader came after that.
void Peers::meet(const void* name, void* stream) {
  const int lane = lane_of(name);
  Step& step = met_[std::size_t(lane)];
  step = step == Step::come ? Step::done : Step::come;
  auto signals = said(step, lane);
  for (const Signal& one : heard(step, lane)) signals.push_back(one);
  put_signals(signals, stream);
}

char* Peers::there(int rank, const void* mine) const {
  const Region& region = *region_of(mine);
  return region.theirs[std::size_t(rank)].get() + (static_cast<const char*>(mine) - region.mine.get());
}

void Peers::pretend_all_came() {
  const std::size_t first = word(rank_, Step::come, 0, 0), end = first + word_bytes * std::size_t(most_lanes * steps * ranks_);
  for (std::size_t at = first; at < end; at += word_bytes)
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(words_.at(at))).store(1, std::memory_order_release);
}

void Peers::release() noexcept {
  if (releaser_.joinable()) return;
  releaser_ = std::thread([this] {
    while (!over_) {  // again and again: recorded steps wait many times
      pretend_all_came();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
}

// Waits for the stream, but not for ever; false where a signal did not arrive.
bool Peers::comes_back() {
  Event reached;
  reached.record(stream_.raw());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  bool in_time = true;
  while (!reached.passed()) {
    rendezvous_.check_alive("trying copies between GPUs");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (std::chrono::steady_clock::now() < end) continue;
    in_time = false;
    pretend_all_came();
  }
  return in_time;
}

// One of each call on this machine, recorded and not, with its values looked at.
bool Peers::works() {
  try {
    const std::size_t part = 1 << 16;
    const auto held = take(std::max(smallest_shared_bytes, 2 * part * std::size_t(ranks_)));
    auto* const mine = static_cast<char*>(held.get());
    char* const theirs = mine + part * std::size_t(ranks_);
    void* const s = stream_.raw();
    const auto value = [&](int from, int to) { return char(1 + from * 16 + to); };
    std::vector<char> words(part * std::size_t(ranks_)), expected = words, got = words;
    for (int i = 0; i < ranks_; ++i) {
      std::fill_n(words.begin() + std::ptrdiff_t(std::size_t(i) * part), part, value(rank_, i));
      std::fill_n(expected.begin() + std::ptrdiff_t(std::size_t(i) * part), part, value(i, rank_));
    }
    copy_to_device(mine, words.data(), words.size(), stream_);
    fill_bytes(theirs, 0, words.size(), stream_);
    stream_.wait();
    exchange(mine, theirs, part, s);
    if (!comes_back()) return false;
    copy_to_host(got.data(), theirs, got.size(), stream_);
    stream_.wait();
    bool right = got == expected;
    const Nodes nodes = run_and_count(s, [&] { exchange(mine, theirs, part, s); });
    right = right && nodes.copies > 0;
    for (const char* from : {theirs + std::size_t(rank_) * part, static_cast<char*>(mine)}) {  // in place, and from elsewhere
      gather(from, theirs, part, s);
      if (!comes_back()) return false;
      copy_to_host(got.data(), theirs, got.size(), stream_);
      stream_.wait();
      for (int i = 0; i < ranks_; ++i) right = right && got[std::size_t(i) * part] == value(i, from == mine ? 0 : i);
    }
    return right;
  } catch (const Error& e) {
    if (e.at.code != Code::cuda) throw;
    return false;
  }
}

}  // namespace headroom::dist
