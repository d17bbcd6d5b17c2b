// What a kernel's machine code says: its registers and shared memory, which decide how many blocks are resident and so how much scratch some
// libraries ask for; and the sizes of its parameters, in which addresses of memory are found.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dry/parameters.h"

namespace headroom::dry {

struct KernelCode {
  int registers = 32, shared_bytes = 0;
  int sm = 0;  // the serving image's: 86 for a card of 89; 0: unknown
  std::vector<std::uint16_t> parameter_bytes;
};

using Codes = std::map<std::string, KernelCode, std::less<>>;

// Adds the kernels of one ELF image. `bytes` 0: as long as its own header says.
void read_image(const char* image, std::size_t bytes, Codes& out);

// The code of a library's kernel: `container` has one image for each architecture, each compressed. Read at its first launch.
const KernelCode* code_of(const void* container, std::string_view kernel);

// What a launch can reach: from every address among its parameters, or the first few of them, to the end of PyTorch's block there.
std::uint64_t reached_bytes(const KernelCode&, Holds, void* const* parameters, std::size_t first = ~std::size_t(0));

// The same of a launch of so many blocks whose first parameter is a table of tensors.
std::uint64_t reached_by_lists(const Lists&, std::size_t blocks, void* const* parameters);

// Blocks of so many threads that a multiprocessor runs at once.
int resident_blocks(const KernelCode&, int threads, std::size_t dynamic_shared_bytes);

}  // namespace headroom::dry
