// Memory of a GPU that other processes of this machine see, and signals: words in host memory that a stream of one GPU writes and a stream of
// another waits for. Copies and signals take no multiprocessor, and can be recorded in a graph.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

inline constexpr std::size_t smallest_shared_bytes = 2 << 20;

// Memory of this process's GPU with a file descriptor. A process that maps it needs no context on this GPU, as it would with a name.
class SharedMemory {
 public:
  SharedMemory(int device, std::size_t bytes);  // an allocation; throws Error (out_of_memory), or (cuda) where the driver cannot
  SharedMemory(int device, std::size_t bytes, int descriptor);  // another process's, mapped for this device
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  char* data() const { return reinterpret_cast<char*>(address_); }
  int descriptor() const;  // a new one, which the caller closes

 private:
  void map(int device);

  std::size_t bytes_ = 0;  // rounded up to whole pages
  unsigned long long handle_ = 0, address_ = 0;
  bool mapped_ = false;
};

// The name by which another process maps an allocation; it must be one of its own.
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
  void* word;                                           // a word of 32 bits
  std::uint32_t value;
};
void put_signals(const std::vector<Signal>&, void* stream);  // a cudaStream_t; in this order

void copy_by_engine(void* to, const void* from, std::size_t bytes, void* stream);

class SeenByGpu {  // makes foreign host memory visible to this process's GPUs
 public:
  SeenByGpu(void* data, std::size_t bytes);
  ~SeenByGpu();
  SeenByGpu(const SeenByGpu&) = delete;
  SeenByGpu& operator=(const SeenByGpu&) = delete;
  char* device_data() const { return device_data_; }

 private:
  void* data_;
  char* device_data_ = nullptr;
};

}  // namespace headroom
