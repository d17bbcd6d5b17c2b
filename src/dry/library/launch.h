// A kernel that can be launched: its name, and what its machine code says, read when that is first asked for.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "dry/library/images.h"
#include "dry/library/public.h"
#include "dry/library/work.h"

namespace headroom::dry {

class Function {
 public:
  Function(std::string text, const void* container) : name(std::move(text)), container_(container) {}
  Function(std::string text, KernelCode code) : name(std::move(text)), code_(std::move(code)) {}

  const KernelCode& code();

  KernelName name;
  std::atomic<std::uint32_t> recorded = 0;  // the generation of the record that has its Kernel entry

 private:
  const void* container_ = nullptr;
  KernelCode code_;
  std::once_flag read_;
};

Function& function_at(const void* host);

void launch(Function&, Dim grid, Dim block, std::size_t shared_bytes, StreamHandle, void* const* parameters);

}  // namespace headroom::dry
