// Lines of source, as the stacks of a dry run's record name them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dry/read.h"

namespace headroom::studies {

// Where in the source, as a person looks for it.
struct Lines {
  std::string line;  // the innermost that is not PyTorch's
  std::string own;   // the innermost that is neither installed nor Python's
};

std::string shown_file(std::string_view file);

class LinesOf {
 public:
  explicit LinesOf(const dry::Process& p) : process_(p) {}
  const Lines& operator()(std::uint32_t stack);

 private:
  std::string words(const dry::Frame&) const;
  Lines look(std::uint32_t stack) const;
  const dry::Process& process_;
  std::unordered_map<std::uint32_t, Lines> known_;
};

// "model.layers.17.mlp" of thirty-two: "model.layers.*.mlp".
std::string folded(std::string_view module);

}  // namespace headroom::studies
