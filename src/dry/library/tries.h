// PyTorch's choice among all plans of a convolution, which torch.backends.cudnn.benchmark asks for: it makes every plan that cuDNN lists, takes the largest
// workspace that one of them asks for, gives back what it keeps, runs the first plans in that workspace (ten, unless benchmark_limit has another
// number), and keeps the fastest. Which one that is only a card knows: an H200 kept one whose workspace is the first's, within 64 KiB, in 129 of 162 passes
// (bench/results/h200_cudnn_benchmark_2026-11-30.csv). Here it is the first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dry/card_workspace.h"

namespace headroom::dry {

class Tries {
 public:
  struct Listed {
    std::int64_t engine = -1;
    bool tensor_cores = false;
  };
  std::vector<Listed> listed;  // by cuDNN's heuristics, best first

  bool lists(std::int64_t engine) const {
    return std::ranges::any_of(listed, [&](const Listed& l) { return l.engine == engine; });
  }

  // A plan was made, of the entry `at` of the list; −1: of another list, which comes after it. Returns its number; its workspace is changed to hold what
  // engines ask for that are listed on a card only.
  int made(const ConvolutionShape& s, int at, bool alone, WorkspaceRange& own) {
    const int number = plans_++;
    if (number == 0) {  // entries that PyTorch passed over are those by tensor cores, where FP32 may not be tf32
      const auto passed = std::span(listed).first(at < 0 ? listed.size() : std::min(listed.size(), std::size_t(at)));
      const bool cores = std::ranges::none_of(passed, &Listed::tensor_cores);
      if (alone) unlisted_ = workspace_of_unlisted(s, cores, lists(listed_beside_fourier));
      const std::uint64_t transforms = winograd_listed(s) ? winograd_workspace(s) : 0;
      if (alone && !cores && transforms > 0)  // the fastest then
        own = {std::min(own.least, transforms), transforms, std::max(own.most, transforms)};
    }
    if (number == 1) {
      own.likely = std::max(own.likely, unlisted_.likely);
      own.most = std::max(own.most, unlisted_.most);
    }
    all_ = {std::max(all_.least, own.least), std::max(all_.likely, own.likely), std::max(all_.most, own.most)};
    return number;
  }

  // A plan runs. True while it is tried; `took` is what it asks for by itself.
  bool runs(int number, const WorkspaceRange& took) {
    constexpr int runs_of_a_try = 2;
    if (number == 0 && ++runs_of_first_ > runs_of_a_try) return false;
    tried_ = tried_count_ == 0 ? took : WorkspaceRange{std::min(tried_.least, took.least), tried_.likely, std::max(tried_.most, took.most)};
    tried_count_ = std::max(tried_count_, number + 1);
    return true;
  }

  const WorkspaceRange& all() const { return all_; }
  std::uint64_t least_if_all_are_listed() const { return std::max(all_.least, unlisted_.likely); }
  bool first_told() { return !std::exchange(told_, true); }

  // The workspace of the plan that is kept. Where few plans are listed, those that only a card lists are tried, too.
  WorkspaceRange kept(std::uint64_t likely) const {
    constexpr int limit = 10;
    const std::uint64_t most = tried_count_ < limit ? std::max(tried_.most, unlisted_.most) : tried_.most;
    return {std::min(tried_.least, likely), likely, std::max(most, likely)};
  }

 private:
  int plans_ = 0, tried_count_ = 0, runs_of_first_ = 0;
  bool told_ = false;
  WorkspaceRange unlisted_, all_, tried_;
};

}  // namespace headroom::dry
