// What torch.cuda.memory_allocated() would say: every storage, rounded up to 512 bytes, from the line that makes it until the
// last reference to it goes. Nothing is allocated; a C++ reference here lives exactly as long as the Python or autograd one there.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "memory/ledger.h"

namespace headroom::pytorch {

constexpr std::uint64_t rounding = 512;  // the caching allocator's smallest block
constexpr std::uint64_t rounded(std::uint64_t bytes) { return (bytes + rounding - 1) / rounding * rounding; }

struct Piece {  // one storage
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t bytes, taken;
  Phase phase;  // when it was made
  bool live = true;
};

class Allocator;

class Storage {  // gives its bytes back when the last reference goes
 public:
  Storage(Allocator& of, std::uint32_t piece) : of_(of), piece_(piece) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

 private:
  Allocator& of_;
  std::uint32_t piece_;
};

class Allocator {
 public:
  struct Event {
    std::uint32_t piece;
    bool take;
    std::uint64_t live;  // after it
  };

  std::shared_ptr<Storage> make(std::string name, DType, Shape);
  std::shared_ptr<Storage> make_bytes(std::string name, std::uint64_t bytes);  // a workspace

  void enter(Phase p) { phase_ = p; }
  std::uint64_t live() const { return live_; }
  std::uint64_t peak() const { return peak_; }
  void start_peak() { peak_ = live_, peak_event_ = events_.size(); }

  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::vector<Event>& events() const { return events_; }
  std::vector<std::uint32_t> standing() const;  // pieces live now
  std::vector<std::uint32_t> at_peak() const;   // pieces live at the high mark

 private:
  friend class Storage;
  std::shared_ptr<Storage> take(Piece);
  void give(std::uint32_t piece);

  std::vector<Piece> pieces_;
  std::vector<Event> events_;
  std::uint64_t live_ = 0, peak_ = 0;
  std::size_t peak_event_ = 0;
  Phase phase_ = Phase::input;
};

}  // namespace headroom::pytorch
