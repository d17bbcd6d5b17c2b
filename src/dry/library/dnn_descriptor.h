// A descriptor of cuDNN's graphs, and what the graph that it belongs to computes. Each has its twin in the program's libcudnn, if that answers.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dry/card_workspace.h"
#include "dry/library/real_cudnn.h"
#include "dry/library/tries.h"
#include "dry/library/work.h"

namespace headroom::dry::dnn {

struct Convolved {
  ConvolutionPass pass = ConvolutionPass::forward;
  std::vector<std::int64_t> filter, input, output;
  std::uint64_t element_bytes = 4;
  bool channels_innermost = false, dilated = false;
  std::vector<std::int64_t> strides, padding;

  ConvolutionShape shape() const { return {pass, filter, input, output, element_bytes, channels_innermost, dilated, strides, padding}; }
};

struct Work {
  const char* name = "cuDNN graph";
  bool attention = false, workspace_known = false;
  AttentionShape shape;
  ProductShape product;               // a convolution's
  std::vector<std::uint64_t> turned;  // by tensor: what kernels of tensor cores copy of it
  std::int64_t workspace_bytes = 0;
  Convolved convolved;                    // its filter is empty: it is no convolution
  bool alone = false;                     // its graph has no other operation
  std::optional<WorkspaceRange> on_card;  // a plan's of a convolution
  std::shared_ptr<Tries> tries;           // a graph's, where PyTorch chooses by trying
  bool by_heuristics = false;             // a list's
  int listed_at = -1, number = -1;        // an entry of that list; a plan that is one of several
  WorkspaceRange own;                     // such a plan's
};

// A program destroys a descriptor as soon as another has taken it: those that took it keep it.
struct Descriptor : std::enable_shared_from_this<Descriptor> {
  struct Value {
    std::int64_t count = 0;
    std::vector<char> bytes;
    std::vector<std::shared_ptr<Descriptor>> parts;
  };
  explicit Descriptor(int which) : type(which) {
    if (real_cudnn()) real_cudnn()->create(type, &real);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (real) real_cudnn()->destroy(real);
  }

  const int type;
  std::map<int, Value> values;
  Work work;
  void* real = nullptr;              // in the program's libcudnn; null: it is answered from here
  bool left_unmade = false;          // a plan that is not made there: making it would compile a kernel
  std::shared_ptr<Descriptor> self;  // until the program destroys it

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto at = values.find(attribute);
    if (at == values.end()) return {};
    std::vector<T> out(at->second.bytes.size() / sizeof(T));
    std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  std::span<const std::shared_ptr<Descriptor>> parts(int attribute) const {
    const auto at = values.find(attribute);
    if (at == values.end()) return {};
    return at->second.parts;
  }
  Descriptor* one(int attribute) const {
    const auto v = parts(attribute);
    return v.empty() ? nullptr : v[0].get();
  }
};

}  // namespace headroom::dry::dnn
