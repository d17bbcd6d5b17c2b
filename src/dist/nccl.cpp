#include "dist/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/nccl_abi.h"
#include "dist/peers.h"
#include "dist/quiet.h"
#include "gpu/buffer.h"
#include "gpu/probe.h"
#include "gpu/stream.h"

namespace headroom::dist {

namespace {

class PeersLane final : public Lane {  // peers tell its calls from those of other queues
 public:
  PeersLane(std::unique_ptr<Lane> of_gpu, Peers& peers) : of_gpu_(std::move(of_gpu)), peers_(peers) { peers_.open_lane(stream()); }
  ~PeersLane() override { peers_.close_lane(stream()); }
  void* stream() const override { return of_gpu_->stream(); }
  void follow(void* main) override { of_gpu_->follow(main); }
  void mark(int i) override { of_gpu_->mark(i); }
  void wait(int i, void* main) override { of_gpu_->wait(i, main); }

 private:
  std::unique_ptr<Lane> of_gpu_;
  Peers& peers_;
};

class NcclComm final : public Comm {
 public:
  NcclComm(Rendezvous& r, int device, Route route)
      : Comm(r.rank(), r.ranks()), rendezvous_(r), nccl_(nccl::library()), device_(device), route_(route), stream_(device) {
    const bool engines = ranks() > 1 && route == Route::copy_engines && nccl_.version >= nccl::with_copy_engines && nccl_.AlltoAll &&
                         nccl_.MemAlloc && nccl_.CommWindowRegister;
    check(route != Route::copy_engines || engines, Code::nccl,
          "copy engines: NCCL {}.{} cannot, 2.28.9 or newer is needed; leave the route to the program", nccl_.version / 10000,
          nccl_.version / 100 % 100);
    const std::size_t before = device_memory().free_bytes;
    kernels_ = join_ranks(false);
    if (engines) engines_ = join_ranks(true);
    if (route == Route::automatic) peers_ = Peers::join(r, device);
    ending_ = r.on_end([this] { abort(); });
    small_ = take(std::max<std::size_t>(std::size_t(ranks()) << 20, 4096));
    warm();
    const std::size_t after = device_memory().free_bytes;
    own_bytes_ = before > after ? before - after : 0;
  }

  ~NcclComm() override {
    small_.reset();
    ending_.reset();
    if (aborted_) return;
    // Destroying waits where a graph still holds a call, or where another rank is gone: this rank does not wait with it for ever.
    std::promise<void> done;
    auto finished = done.get_future();
    std::thread([&nccl = nccl_, kernels = kernels_, engines = engines_, device = device_, done = std::move(done)]() mutable {
      use_cuda_device(device);
      if (engines) nccl.CommDestroy(engines);
      nccl.CommDestroy(kernels);
      done.set_value();
    }).detach();
    finished.wait_for(std::chrono::seconds(5));
  }

  Backend backend() const override { return Backend::nccl; }
  std::string route(Call call) const override {
    if (engine_calls_[std::size_t(call)]) return "copy engines";
    if (!peers_ || (call != Call::exchange && call != Call::gather)) return "kernels";
    return fmt::format("peer copies from {} MiB on, else kernels{}", Peers::from_bytes >> 20,
                       peers_->way() == Peers::Way::names ? "; a context on each other's GPU" : "");  // for calls on the main queue
  }
  std::unique_ptr<Lane> make_lane(int marks) override {
    auto lane = lane_of_gpu(device_, marks);
    if (!peers_) return lane;
    return std::make_unique<PeersLane>(std::move(lane), *peers_);
  }
  std::size_t own_bytes() const override { return own_bytes_; }
  void end(const std::string& why) noexcept override { rendezvous_.end(why); }

  void check_alive() override {
    rendezvous_.check_alive();
    for (const nccl::Comm c : {kernels_, engines_}) {
      if (!c || aborted_) continue;
      nccl::Result state = nccl::success;
      nccl_.CommGetAsyncError(c, &state);
      if (state != nccl::success && state != nccl::in_progress) fail(state, "a call that was under way", c);
    }
  }

  std::shared_ptr<void> take(std::size_t bytes) override {
    if (peers_) return peers_->take(bytes);
    if (!windows()) {
      const auto buffer = std::make_shared<Buffer>(bytes);
      return {buffer, buffer->data()};
    }
    void* data = nullptr;
    const nccl::Result got = nccl_.MemAlloc(&data, std::max<std::size_t>(bytes, 1));
    check(got == nccl::success, Code::out_of_memory, "NCCL gives rank {} no {} bytes of device memory: {}", rank(), bytes,
          nccl_.GetErrorString(got));
    nccl::Window window = nullptr;  // stays so where this system cannot, and calls go the ordinary way
    const std::size_t whole = (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
    ask(nccl_.CommWindowRegister(engines_, data, whole, &window, nccl::window_symmetric), "registering memory", engines_);
    return {data, [this, window](void* p) {
              if (window && !aborted_) nccl_.CommWindowDeregister(engines_, window);
              nccl_.MemFree(p);
            }};
  }

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own own) override {
    if (mine.bytes() == 0) return;
    const std::size_t part = mine.bytes() / std::size_t(ranks());
    if (peers_ && peers_->serve(theirs.data, theirs.bytes(), alive(stream)))
      return peers_->exchange(mine.as<char>(), theirs.as<char>(), part, stream, own);
    if (engine_calls_[std::size_t(Call::exchange)])
      return ask(nccl_.AlltoAll(mine.data, theirs.data, part, nccl::int8, engines_, alive(stream)), "exchange", engines_);
    if (nccl_.AlltoAll) return ask(nccl_.AlltoAll(mine.data, theirs.data, part, nccl::int8, kernels_, alive(stream)), "exchange", kernels_);
    to_and_from_each(
        "exchange", [&](int i) { return mine.as<char>() + std::size_t(i) * part; }, theirs, part, stream);
  }

  void do_gather(const Tensor& part, const Tensor& whole, void* stream) override {
    if (whole.bytes() == 0) return;
    if (peers_ && peers_->serve(whole.data, whole.bytes(), alive(stream)))
      return peers_->gather(part.as<char>(), whole.as<char>(), part.bytes(), stream);
    const bool by_engine = engine_calls_[std::size_t(Call::gather)];
    if (!by_engine && rendezvous_.one_machine())  // NCCL's gather goes round in a ring, at half the link's rate between two H200
      return to_and_from_each(
          "gather", [&](int) { return part.as<char>(); }, whole, part.bytes(), stream);
    const nccl::Comm c = by_engine ? engines_ : kernels_;
    ask(nccl_.AllGather(part.data, whole.data, part.bytes(), nccl::int8, c, alive(stream)), "gather", c);
  }

  void do_broadcast(const Tensor& whole, int root, void* stream) override {
    if (whole.bytes() == 0) return;
    ask(nccl_.Broadcast(whole.data, whole.data, whole.bytes(), nccl::int8, root, kernels_, alive(stream)), "broadcast", kernels_);
  }

  void do_barrier(void* stream) override {  // 16 bytes of each, to all
    char* const at = static_cast<char*>(small_.get());
    constexpr std::size_t each = 16;
    ask(nccl_.AllGather(at + std::size_t(rank()) * each, at, each, nccl::int8, kernels_, alive(stream)), "barrier", kernels_);
  }

 private:
  // Each rank sends straight to each, and what comes lies in the order of the ranks.
  template <class From>
  void to_and_from_each(const char* what, const From& from, const Tensor& to, std::size_t bytes, void* stream) {
    alive(stream);
    ask(nccl_.GroupStart(), what, kernels_);
    for (int i = 0; i < ranks(); ++i) {
      char* const place = to.as<char>() + std::size_t(i) * bytes;
      if (i == rank() && from(i) == place) continue;
      ask(nccl_.Send(from(i), bytes, nccl::int8, i, kernels_, stream), what, kernels_);
      ask(nccl_.Recv(place, bytes, nccl::int8, i, kernels_, stream), what, kernels_);
    }
    ask(nccl_.GroupEnd(), what, kernels_);
  }

  // Registered memory is for copy engines, which are asked for by name: with it, ordinary calls did not come back on two H200
  // (NCCL 2.28.3 and 2.28.9; docs/decisions/ranks-move-bytes.md).
  bool windows() const { return engines_ && nccl_.MemAlloc && nccl_.MemFree && nccl_.CommWindowRegister && nccl_.CommWindowDeregister; }

  // Made by a thread of its own: it waits for the other ranks, and one that has died never comes.
  nccl::Comm join_ranks(bool by_engines) {
    std::string id(sizeof(nccl::UniqueId), '\0');
    if (rank() == 0) ask(nccl_.GetUniqueId(reinterpret_cast<nccl::UniqueId*>(id.data())), "making an id", nullptr);
    id = rendezvous_.collect(rank() == 0 ? id : "", "NCCL's id")[0];
    struct Made {
      nccl::Comm comm = nullptr;
      nccl::Result result = nccl::success;
    };
    std::promise<Made> promise;
    auto made = promise.get_future();
    std::thread([id, by_engines, n = ranks(), r = rank(), &nccl = nccl_, device = device_, promise = std::move(promise)]() mutable {
      Made m;
      try {
        use_cuda_device(device);
        nccl::UniqueId raw;
        std::memcpy(&raw, id.data(), sizeof raw);
        nccl::Config config;
        config.blocking = 1;
        if (by_engines) config.cta_policy = nccl::cta_policy_zero;
        m.result = nccl.CommInitRankConfig(&m.comm, n, raw, r, &config);
        promise.set_value(m);
      } catch (...) { promise.set_exception(std::current_exception()); }
    }).detach();
    while (made.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) rendezvous_.check_alive("joining the GPUs");
    const Made m = made.get();
    const std::string why = m.result == nccl::success ? "" : fmt::format("rank {}: {}", rank(), words_of(m.result, nullptr));
    for (const auto& w : rendezvous_.collect(why, "whether NCCL has joined them"))
      if (!w.empty()) {
        const std::string sentence = fmt::format("NCCL cannot join the GPUs: {}", w);
        if (rank() == 0) throw Error(Code::nccl, sentence);
        throw Quiet(Code::nccl, sentence);
      }
    return m.comm;
  }

  // Each kind of call once, so that connections are made and code is loaded before anything is captured; and which route it takes.
  void warm() {
    const Tensor whole(small_.get(), DType::u8, {std::int64_t(ranks()) << 18});
    const Tensor other(static_cast<char*>(small_.get()) + whole.bytes(), DType::u8, {std::int64_t(ranks()) << 18});
    const Tensor part(static_cast<char*>(small_.get()) + std::size_t(rank()) * (1 << 18), DType::u8, {1 << 18});
    void* const s = stream_.raw();
    do_exchange(whole, other, s, Own::copied), do_gather(part, whole, s), do_broadcast(whole, 0, s), do_barrier(s);
    stream_.wait();
    if (!engines_) return;
    const auto by_engines = [&](const char* what, const auto& call) {
      ask(call(), what, engines_);
      stream_.wait();
      const Nodes n = run_and_count(s, [&] { ask(call(), what, engines_); });
      return n.copies > 0;
    };
    engine_calls_[std::size_t(Call::exchange)] =
        by_engines("exchange", [&] { return nccl_.AlltoAll(whole.data, other.data, part.bytes(), nccl::int8, engines_, s); });
    engine_calls_[std::size_t(Call::gather)] =
        by_engines("gather", [&] { return nccl_.AllGather(part.data, whole.data, part.bytes(), nccl::int8, engines_, s); });
    check(route_ != Route::copy_engines || (engine_calls_[0] && engine_calls_[1]), Code::nccl,
          "copy engines: NCCL took kernels all the same; leave the route to the program");
    // The same answer on every rank, or calls would go to different communicators.
    const std::string mine{engine_calls_[0] ? '1' : '0', engine_calls_[1] ? '1' : '0'};
    for (const auto& w : rendezvous_.collect(mine, "their routes"))
      for (std::size_t i = 0; i < 2; ++i) engine_calls_[i] = engine_calls_[i] && w[i] == '1';
  }

  void* alive(void* stream) const {
    if (aborted_) rendezvous_.check_alive();
    return stream;
  }

  std::string words_of(nccl::Result r, nccl::Comm c) const {
    const char* more = nccl_.GetLastError(c);
    return more && *more ? fmt::format("{} ({})", nccl_.GetErrorString(r), more) : nccl_.GetErrorString(r);
  }
  [[noreturn]] void fail(nccl::Result r, const char* what, nccl::Comm c) const {
    rendezvous_.check_alive(what);  // the cause, where another rank is it
    throw Error(Code::nccl, fmt::format("NCCL, {}: {}", what, words_of(r, c)));
  }
  void ask(nccl::Result r, const char* what, nccl::Comm c) const {
    if (r != nccl::success && r != nccl::in_progress) fail(r, what, c);
  }

  void abort() {  // by the listening thread: what waits on the card for a rank that is gone comes back
    if (aborted_.exchange(true)) return;
    if (peers_) peers_->release();
    try {
      use_cuda_device(device_);
      for (const nccl::Comm c : {engines_, kernels_})
        if (c) nccl_.CommAbort(c);
    } catch (const Error&) {  // a card that does not answer any more: the process ends with the reason that it has heard
    }
  }

  Rendezvous& rendezvous_;
  const nccl::Library& nccl_;
  int device_;
  Route route_;
  Stream stream_;
  nccl::Comm kernels_ = nullptr, engines_ = nullptr;
  std::atomic<bool> aborted_{false};
  bool engine_calls_[4] = {};  // by Call: done by copy engines when asked of engines_
  std::unique_ptr<Peers> peers_;
  std::size_t own_bytes_ = 0;
  std::shared_ptr<void> ending_, small_;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(Rendezvous& r, int device, Route route) { return std::make_unique<NcclComm>(r, device, route); }

}  // namespace headroom::dist
