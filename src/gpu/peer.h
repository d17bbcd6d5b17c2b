// Memory of a GPU that other processes of this machine see, and signals in it: words that a stream writes into another GPU's memory, and that a
// stream there waits for. Copies and signals take no multiprocessor, and can be recorded in a graph.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

// Of an allocation of its own (from 2 MiB on): the name by which another process maps it.
inline constexpr std::size_t smallest_shared_bytes = 2 << 20;
std::string name_of_allocation(const void* data);

class PeerView {  // another process's allocation, mapped here
 public:
  explicit PeerView(const std::string& name);
  ~PeerView();
  PeerView(const PeerView&) = delete;
  PeerView& operator=(const PeerView&) = delete;
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
};

struct Signal {
  enum class What : std::uint8_t { write, wait } what;  // wait: until the word has the value
  void* word;                                           // of 32 bits
  std::uint32_t value;
};
void put_signals(const std::vector<Signal>&, void* stream);  // a cudaStream_t; in this order

void copy_by_engine(void* to, const void* from, std::size_t bytes, void* stream);
void set_words(void* words, std::uint32_t value, std::size_t count, void* stream);

}  // namespace headroom
