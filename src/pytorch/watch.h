// Watches an allocator during a part of a run and makes an account's components and timeline from it.
#pragma once
#include "memory/account.h"
#include "pytorch/allocator.h"

namespace headroom::pytorch {

class Watch {
 public:
  explicit Watch(Allocator& memory) : memory_(memory), first_piece_(memory.pieces().size()) {}

  void start();                                          // the stretch begins here: what stands now, and the peak
  void mark_saved();                                     // the forward pass is over: what it made and still stands is saved for backward
  void stop() { end_event_ = memory_.events().size(); }  // what comes after is not of the stretch; else all is
  std::uint64_t workspaces() const;                      // bytes of cuBLAS workspaces standing now

  // Shapes of everything made since construction, workspaces left out: the probe that formulas are read from.
  std::vector<Shape> shapes() const;
  // Fills components and timeline. The peak is sought up to mark_saved's moment, or to the end.
  void describe(Account&, bool forward_only, const std::vector<Shape>& probe, std::span<const Symbol>) const;

 private:
  Allocator& memory_;
  std::size_t first_piece_, first_event_ = 0, saved_event_ = 0, end_event_ = 0;
  std::vector<std::uint32_t> standing_, saved_;
  std::uint64_t live_ = 0;
};

}  // namespace headroom::pytorch
