// The memory of the described cards, which is addresses without bytes behind them, and the pinned and managed memory of the host, which is real.
#pragma once
#include <cstddef>
#include <cstdint>

namespace headroom::dry {

// Memory of the calling thread's device. `function` is named in the record. Null: the card is full.
void* take(std::size_t bytes, const char* function);
void raised();                                    // PyTorch has raised an error for want of memory (Card::unlimited)
bool give(void* p, const char* function);         // false: it is not ours
void* reserve(std::size_t bytes);                 // addresses alone, each handed out once
void context_made();                              // this process has a context on its device, whether or not it takes memory there
void module_loaded();                             // the driver takes memory of its own for machine code
void beside_is(int device, std::uint64_t bytes);  // what libraries have of a card, past what its context's bytes cover
std::uint64_t used(int device);                   // used bytes of a card: ours, contexts, other processes
std::uint64_t free_bytes(int device);

bool on_device(const void* p, int* device = nullptr);

enum class Sort { pinned, managed };
void* host_take(std::size_t bytes, Sort, const char* function);
bool host_register(void* p, std::size_t bytes, const char* function);  // memory of the program's own becomes pinned
bool host_give(void* p, const char* function);
struct HostPart {
  bool found = false;
  Sort sort = Sort::pinned;
};
HostPart on_host(const void* p);

// PyTorch's blocks, by address.
void block_taken(void* p, std::size_t bytes);
void block_given(void* p);
std::uint64_t rest_of_block(const void* p);  // bytes from p to the end of its block; 0: p is in none

}  // namespace headroom::dry
