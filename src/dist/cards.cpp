#include "dist/cards.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "dist/nccl_abi.h"
#include "dist/peers.h"
#include "gpu/caller.h"
#include "gpu/device.h"
#include "gpu/event.h"
#include "gpu/peer.h"

namespace headroom::dist {

namespace {

constexpr std::size_t grain = 256, least_piece = 1 << 10;

std::size_t piece_of(std::size_t bytes, std::size_t pieces) {
  const std::size_t piece = bytes / pieces / grain * grain;
  check(piece >= least_piece, Code::bad_argument, "staging_bytes is {}: at least {} are needed", bytes, pieces * least_piece);
  return piece;
}

// Both directions at once, no multiprocessor but for the sums. A lane has two halves, used in turn: a half is written again after the next
// half's meeting, which a rank comes to when it has read the first.
class PeerLane final : public CardLane {
 public:
  PeerLane(Peers& peers, char* memory, std::size_t piece, int rank, int ranks)
      : peers_(peers), memory_(memory), piece_(piece), rank_(rank), ranks_(ranks) {
    peers_.open_lane(this);
  }
  ~PeerLane() override { peers_.close_lane(this); }
  static std::size_t pieces(int ranks) { return 2 * (std::size_t(ranks) + 1); }

  void begin(void* stream) override { last_.hold_up(stream); }
  void end(void* stream) override { last_.record(stream); }

  void send(const Pieces& from, void* stream) override {
    half_of_slots_ ^= 1;
    for (int n = 1; n < ranks_; ++n) {  // each begins with the next rank, so that they do not all write to one
      const int to = (rank_ + n) % ranks_;
      if (const Piece p = from(to); p.bytes) copy_by_engine(peers_.there(to, slots() + std::size_t(rank_) * piece_), p.at, p.bytes, stream);
    }
    peers_.meet(this, stream);
  }
  char* slots() const override { return memory_ + std::size_t(half_of_slots_) * std::size_t(ranks_) * piece_; }
  std::size_t apart() const override { return piece_; }

  char* shelf() const override { return memory_ + (2 * std::size_t(ranks_) + std::size_t(half_of_shelf_ ^ 1)) * piece_; }
  void give(const Piece& own, const Pieces& to, void* stream) override {
    char* const at = shelf();
    if (own.bytes && own.at != at) copy_by_engine(at, own.at, own.bytes, stream);
    half_of_shelf_ ^= 1;
    peers_.meet(this, stream);
    for (int n = 1; n < ranks_; ++n) {
      const int from = (rank_ + n) % ranks_;
      if (const Piece p = to(from); p.bytes) copy_by_engine(p.at, peers_.there(from, at), p.bytes, stream);
    }
  }
  void spread(const Piece& whole, int root, void* stream) override {
    give(
        rank_ == root ? whole : Piece{}, [&](int from) { return from == root ? whole : Piece{}; }, stream);
  }

 private:
  Peers& peers_;
  char* memory_;
  std::size_t piece_;
  int rank_, ranks_;
  int half_of_slots_ = 0, half_of_shelf_ = 0;
  Event last_;
};

class PeerCards final : public Cards {
 public:
  PeerCards(Rendezvous& r, std::unique_ptr<Peers> peers, std::size_t staging) : Cards(r.rank(), r.ranks()), peers_(std::move(peers)) {
    const std::size_t pieces = PeerLane::pieces(r.ranks());
    piece_bytes_ = piece_of(staging, lanes_in_use * pieces);
    memory_ = peers_->take(std::max(lanes_in_use * pieces * piece_bytes_, smallest_shared_bytes));
    for (std::size_t i = 0; i < lanes_in_use; ++i)
      lanes_.push_back(std::make_unique<PeerLane>(*peers_, static_cast<char*>(memory_.get()) + i * pieces * piece_bytes_, piece_bytes_,
                                                  r.rank(), r.ranks()));
    ending_ = r.on_end([this] { peers_->release(); });
  }
  ~PeerCards() override {
    lanes_.clear();
    memory_.reset();  // waits for the GPU; a rank that is gone is released meanwhile
    ending_.reset();
  }
  std::string route() const override {
    return peers_->way() == Peers::Way::names ? "copies from GPU to GPU; a context on each other's GPU" : "copies from GPU to GPU";
  }
  int lanes() const override { return int(lanes_in_use); }
  CardLane& lane(int i) override { return *lanes_[std::size_t(i)]; }

 private:
  static constexpr std::size_t lanes_in_use = 2;  // so that one's sums run beside the other's copies
  std::unique_ptr<Peers> peers_;
  std::shared_ptr<void> memory_, ending_;
  std::vector<std::unique_ptr<PeerLane>> lanes_;
};

// Over a Comm's exchanges and gathers, whose tensors are whole: what is in other places is copied.
class CommLane final : public CardLane {
 public:
  CommLane(Comm& comm, char* memory, std::size_t piece, bool on_gpu) : comm_(comm), memory_(memory), piece_(piece), on_gpu_(on_gpu) {
    if (on_gpu) last_ = std::make_unique<Event>();
  }
  static std::size_t pieces(int ranks) { return 2 * std::size_t(ranks); }

  void begin(void* stream) override {
    if (last_) last_->hold_up(stream);
  }
  void end(void* stream) override {
    if (last_) last_->record(stream);
  }
  void send(const Pieces& from, void* stream) override {
    apart_ = grain;  // ranks meet, also where none has anything to send
    for (int j = 0; j < comm_.ranks(); ++j) apart_ = std::max(apart_, (from(j).bytes + grain - 1) / grain * grain);
    for (int j = 0; j < comm_.ranks(); ++j)
      if (const Piece p = from(j); j != comm_.rank()) copy(memory_ + std::size_t(j) * apart_, p.at, p.bytes, stream);
    const auto n = std::int64_t(std::size_t(comm_.ranks()) * apart_);
    comm_.exchange({memory_, DType::u8, {n}}, {slots(), DType::u8, {n}}, stream);
  }
  char* slots() const override { return memory_ + std::size_t(comm_.ranks()) * piece_; }
  std::size_t apart() const override { return apart_; }
  void give(const Piece& own, const Pieces& to, void* stream) override {
    std::size_t most = own.bytes;
    for (int i = 0; i < comm_.ranks(); ++i) most = std::max(most, to(i).bytes);
    copy(memory_, own.at, own.bytes, stream);
    const auto n = std::int64_t(most);
    comm_.gather({memory_, DType::u8, {n}}, {slots(), DType::u8, {n * comm_.ranks()}}, stream);
    for (int i = 0; i < comm_.ranks(); ++i)
      if (const Piece p = to(i); i != comm_.rank()) copy(p.at, slots() + std::size_t(i) * most, p.bytes, stream);
  }
  void spread(const Piece& whole, int root, void* stream) override {
    comm_.broadcast({whole.at, DType::u8, {std::int64_t(whole.bytes)}}, root, stream);
  }

 private:
  void copy(char* to, const char* from, std::size_t bytes, void* stream) const {
    if (bytes == 0) return;
    on_gpu_ ? copy_by_engine(to, from, bytes, stream) : void(std::memcpy(to, from, bytes));
  }
  Comm& comm_;
  char* memory_;
  std::size_t piece_, apart_ = grain;
  bool on_gpu_;
  std::unique_ptr<Event> last_;
};

class CommCards final : public Cards {
 public:
  CommCards(Comm& comm, std::unique_ptr<Comm> owned, std::size_t staging)
      : Cards(comm.rank(), comm.ranks()), owned_(std::move(owned)), comm_(comm) {
    const std::size_t pieces = CommLane::pieces(comm.ranks());
    piece_bytes_ = piece_of(staging, pieces);
    memory_ = comm.take(pieces * piece_bytes_);
    lane_ = std::make_unique<CommLane>(comm, static_cast<char*>(memory_.get()), piece_bytes_, on_gpu());
  }
  ~CommCards() override {
    lane_.reset();
    memory_.reset();
  }
  std::string route() const override { return on_gpu() ? "NCCL's " + comm_.route(Call::exchange) : "copies"; }
  bool on_gpu() const override { return owned_ != nullptr; }
  int lanes() const override { return 1; }
  CardLane& lane(int) override { return *lane_; }

 private:
  std::unique_ptr<Comm> owned_;
  Comm& comm_;
  std::shared_ptr<void> memory_;
  std::unique_ptr<CommLane> lane_;
};

class LoneCards final : public Cards, CardLane {  // a single rank
 public:
  LoneCards() : Cards(0, 1) { piece_bytes_ = std::size_t(1) << 40; }
  std::string route() const override { return "one GPU"; }
  int lanes() const override { return 1; }
  CardLane& lane(int) override { return *this; }
  void send(const Pieces&, void*) override {}
  char* slots() const override { return nullptr; }
  std::size_t apart() const override { return 0; }
  void give(const Piece&, const Pieces&, void*) override {}
  void spread(const Piece&, int, void*) override {}
};

// The first rank's reason why not, the same on every rank.
std::string why_not_all(Rendezvous& r, const std::function<void()>& mine, const char* what) {
  std::string why;
  try {
    mine();
  } catch (const Error& e) { why = e.what(); }
  const auto all = r.collect(why, what);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].empty()) return fmt::format("rank {}: {}", i, all[i]);
  return "";
}

}  // namespace

std::unique_ptr<Cards> Cards::join(Rendezvous& r, int index, std::size_t staging_bytes, Route route) {
  const auto agreed = [&](const char* what, const std::function<void()>& mine) {
    const std::string why = why_not_all(r, mine, what);
    check(why.empty(), Code::unsupported, "the ranks' GPUs cannot be joined: {}", why);
  };
  Device device = cpu_device();
  agreed("whether they have a GPU", [&] { device = cuda_device(index); });
  const OnDevice on(device);
  if (r.ranks() == 1) return std::make_unique<LoneCards>();
  std::unique_ptr<Peers> peers;
  if (route == Route::automatic) peers = Peers::join(r, index);
  if (peers) return std::make_unique<PeerCards>(r, std::move(peers), staging_bytes);
  agreed("whether they have NCCL", [] { nccl::library(); });
  auto comm = make_nccl_comm(r, index, Route::kernels);
  Comm& ref = *comm;
  return std::make_unique<CommCards>(ref, std::move(comm), staging_bytes);
}

std::unique_ptr<Cards> Cards::over(Comm& comm, std::size_t staging_bytes) {
  return std::make_unique<CommCards>(comm, nullptr, staging_bytes);
}

}  // namespace headroom::dist
