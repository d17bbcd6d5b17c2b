// Torch's tensors in C++: what a call reads of one, how results are made as torch makes them, and workspace from torch's allocator.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "capi/dlpack.h"
#include "capi/python.h"
#include "headroom/headroom.h"

namespace headroom::capi::python {

// What Python gave us once.
struct Given {
  dlpack::Exchange* exchange;
  Ref tensor, parameter;              // the types of tensors that have no say in functions of torch
  Ref empty_like, new_empty_strided;  // results are torch's own, so that its allocator knows of every use
  Ref grad_is_enabled;
  Ref ambient;  // functions whose answers must be those of the time when a form was kept: modes, transforms, threads, ...
  Ref apply;    // apply of the autograd.Function in python_attention.cpp
  Ref learn;    // (settled, d_o, q, k, v, o, lse, random): what backward needs for tensors with such strides, or None
  Ref general;  // (settled, saved, d_o, dlse): backward in Python
  Ref failed;   // (status): raises

  Ref saved_tensors = name("saved_tensors"), save_for_backward = name("save_for_backward"), requires_grad = name("requires_grad");
  Ref set_materialize_grads = name("set_materialize_grads"), form = name("form"), is_neg = name("is_neg");
  Ref settled = name("settled");
  static Ref name(const char* text) { return Ref(interpreter().PyUnicode_InternFromString(text)); }
};
extern Given* given;

struct View {
  std::array<std::int64_t, 8> sizes{};  // shape and strides
  std::int32_t rank = 0;
  dlpack::Type type{};
  dlpack::Device device{};

  bool operator==(const View&) const = default;
};

struct Read {
  View view;
  void* data = nullptr;
};

// Torch's negative bit (x.conj().imag): memory holds the numbers with the other sign. Such tensors are left to Python, which makes a copy.
bool negative(Object* tensor);
bool read(Object* o, Read& out);  // false, without an error, for everything that is not a plain tensor with memory of its own
template <std::size_t n>
bool read_all(const std::array<Object*, n>& from, std::array<Read, n>& to) {
  for (std::size_t i = 0; i < n; ++i)
    if (!read(from[i], to[i])) return false;
  return true;
}
bool aligned(std::span<const Read> tensors);  // to what kernels of a GPU load at once

struct Output {
  long long like = -1;  // the tensor at hand that has its shape and strides: empty_like is the cheapest call that makes a tensor
  Ref shape, stride;    // if there is none
};
Output output_of(Object* said);  // (like, shape, stride), as Python says it
Ref make(const Output& o, std::span<Object* const> at_hand);
bool begins(const Ref& tensor, void*& at);  // where a tensor that torch has made begins; false after an error, which Python has

// One pass: the C call with shapes and strides settled, NULL if these tensors are left to Python; its workspace, and a tensor of that size
// without memory; and what Python keeps alive for it.
struct Pass {
  headroom_attention_call* call = nullptr;
  std::size_t workspace = 0;
  Ref room, owner;
};
Pass pass_of(Object* said);  // (call, bytes of workspace, room, owner), as Python says it

// Lent until the call returns: on a GPU torch's allocator keeps it for what the stream was given, a CPU's small ones are kept by the thread.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  ~Workspace() {
    if (lent_) lent_->deleter(lent_);
  }

  bool take(const Pass&, const dlpack::Device&);  // false after an error, which Python has
  void* data() const {
    const auto at = reinterpret_cast<std::uintptr_t>(data_) + HEADROOM_ALIGNMENT - 1;
    return reinterpret_cast<void*>(at / HEADROOM_ALIGNMENT * HEADROOM_ALIGNMENT);
  }

 private:
  dlpack::Managed* lent_ = nullptr;
  Ref room_;
  void* data_ = nullptr;
};

}  // namespace headroom::capi::python
