// The value of torch.cuda.memory_allocated(): every storage counts from its creation to the end of its last reference.
// Nothing is allocated; a C++ reference here lives exactly as long as the Python or autograd reference.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/divide.h"
#include "base/tensor.h"
#include "memory/ledger.h"

namespace headroom::pytorch {

constexpr std::uint64_t rounding = 512;  // the caching allocator's smallest block
constexpr std::uint64_t rounded(std::uint64_t bytes) { return round_up(bytes, rounding); }

enum class Count : std::uint8_t {
  rounded,  // a storage counts with its bytes rounded up to 512: exact unless a reused block was a little too large
  blocks    // and with what is left of a reused block when it is not worth splitting: the allocator's own search, replayed
};

// The caching allocator's memory: segments cut into blocks. A request takes the smallest free block that holds it (up to 1 MiB in
// the small pool, otherwise in the large one), and what is left over is split off from 512 bytes (small) or above 1 MiB (large).
class Segments {
 public:
  struct Lent {
    std::uint64_t at, size;
    std::uint32_t block;
  };
  Lent take(std::uint64_t size);  // size is rounded already
  void give(std::uint32_t block);
  std::uint64_t reserved() const { return reserved_; }  // bytes of all segments

 private:
  static constexpr std::uint32_t none = ~0u;
  struct Block {
    std::uint64_t at = 0, size = 0;
    std::uint32_t before = none, after = none;  // its neighbours in the segment
    bool free = true, small = false;
  };
  struct FreeBlock {  // the smallest first, then the lowest address
    std::uint64_t size, at;
    std::uint32_t block;
    auto operator<=>(const FreeBlock&) const = default;
  };
  using Pool = std::vector<FreeBlock>;  // sorted: a few hundred at most, so that moving them is quicker than a tree
  Pool& pool_of(const Block& b) { return b.small ? free_small_ : free_large_; }
  FreeBlock as_free(std::uint32_t block) const { return {blocks_[block].size, blocks_[block].at, block}; }
  std::uint32_t add(Block);
  void enter_pool(std::uint32_t block);
  void leave_pool(std::uint32_t block);
  std::uint32_t joined(std::uint32_t left, std::uint32_t right);  // two free neighbours, which have left the pool

  std::vector<Block> blocks_;
  std::vector<std::uint32_t> unused_;  // places of blocks_ that joined others
  Pool free_small_, free_large_;
  std::uint64_t reserved_ = 0, next_segment_ = 0;
};

struct Piece {  // one storage
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t bytes, taken;
  Phase phase;  // when it was made
  bool live = true;
  std::uint64_t at = 0;     // in the segments
  std::uint32_t block = 0;  // there
  int stream = 0;
};

class Allocator;

class Storage {  // gives its bytes back when the last reference goes
 public:
  Storage(Allocator& of, std::uint32_t piece) : of_(of), piece_(piece) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void resize_to_nothing();  // references stay; it is refilled before the next read
  void refill();             // as large as it was

 private:
  friend class Allocator;
  Allocator& of_;
  std::uint32_t piece_;
  bool empty_ = false;
};

class Allocator {
 public:
  struct Event {
    std::uint32_t piece;
    bool take;
    std::uint64_t live;  // after it
  };

  explicit Allocator(Count count = Count::rounded) : count_(count) {}
  std::shared_ptr<Storage> make(std::string name, DType, Shape);
  std::shared_ptr<Storage> make_empty(std::string name, DType, Shape);         // until it is refilled
  std::shared_ptr<Storage> make_bytes(std::string name, std::uint64_t bytes);  // a workspace

  void becomes(const Storage& s, std::string name, Phase p) { pieces_[s.piece_].name = std::move(name), pieces_[s.piece_].phase = p; }
  void enter(Phase p) { phase_ = p; }
  Phase phase() const { return phase_; }
  void on_stream(int s) { stream_ = s; }  // a block is lent again only on the stream that it was cut for
  std::uint64_t reserved() const;         // bytes of all segments; nothing is returned to the driver, so this is their peak
  std::uint64_t live() const { return live_; }
  std::uint64_t peak() const { return peak_; }
  void start_peak() { peak_ = live_; }

  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::vector<Event>& events() const { return events_; }
  std::vector<std::uint32_t> standing() const;  // pieces live now
  std::vector<std::uint64_t> state() const;  // name, address and size of every live piece: from equal states equal calls take equal bytes

 private:
  friend class Storage;
  std::shared_ptr<Storage> take(Piece);
  std::uint32_t enter_piece(Piece);
  void give(std::uint32_t piece);

  std::vector<Piece> pieces_;
  std::vector<Event> events_;
  Count count_;
  std::map<int, Segments> segments_;  // by stream
  int stream_ = 0;
  std::uint64_t live_ = 0, peak_ = 0;
  Phase phase_ = Phase::input;
};

}  // namespace headroom::pytorch
