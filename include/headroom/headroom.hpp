// The C++ interface: headroom.h with owners, exceptions and views made from pointers. Header only; C++17 and later.
//
//   headroom::api::Context context;                       // every core of this machine; Context(0, HEADROOM_DEVICE_CUDA): a GPU
//   auto p = headroom::api::attention_problem();          // then p.batch, p.heads, p.len_q, …
//   headroom::api::Attention attention(context, p);       // brings workspace and saved memory of the context's device, once
//   attention.forward({q, k, v, o, lse});                 // views: headroom::api::tensor(pointer, {batch, len, heads, dim})
//   attention.backward({q, k, v, o, lse, d_o, {}, dq, dk, dv});
//
// With a GPU's context every view points to device memory. headroom::api::Memory owns such memory: Memory(context, bytes), write(), read().
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "headroom/headroom.h"

namespace headroom::api {

struct Error : std::runtime_error {
  headroom_status status;
  explicit Error(headroom_status s) : std::runtime_error(headroom_last_error()), status(s) {}
};

inline void check(headroom_status status) {
  if (status != HEADROOM_OK) throw Error(status);
}

template <class T>
constexpr headroom_dtype dtype_of();
template <>
constexpr headroom_dtype dtype_of<float>() {
  return HEADROOM_F32;
}
template <>
constexpr headroom_dtype dtype_of<int32_t>() {
  return HEADROOM_I32;
}

// Without strides a view is contiguous, and `bytes` is the shape's size. With strides, give the readable size in `bytes` (0: not known).
inline headroom_tensor tensor(void* data, headroom_dtype dtype, std::initializer_list<int64_t> shape,
                              std::initializer_list<int64_t> stride = {}, int64_t bytes = 0) {
  if (shape.size() > 4 || (stride.size() != 0 && stride.size() != shape.size()))
    throw std::invalid_argument("headroom: a tensor has at most 4 dimensions, and a stride for each or none");
  headroom_tensor t = headroom_contiguous(data, dtype, int32_t(shape.size()), shape.begin());
  if (t.rank == 0 && shape.size() > 0) throw std::invalid_argument("headroom: no memory holds a tensor of that shape");
  if (stride.size() == 0) return t;
  std::copy(stride.begin(), stride.end(), t.stride);
  t.bytes = bytes;
  return t;
}
template <class T>
headroom_tensor tensor(T* data, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride = {}, int64_t bytes = 0) {
  return tensor(data, dtype_of<T>(), shape, stride, bytes);
}

inline headroom_attention_problem attention_problem() { return HEADROOM_ATTENTION_PROBLEM_INIT; }

class Context {
 public:
  explicit Context(int threads = 0, headroom_device device = HEADROOM_DEVICE_CPU, int device_index = 0) {
    headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
    settings.threads = threads, settings.device = device, settings.device_index = device_index;
    headroom_context* made = nullptr;
    check(headroom_context_create(&settings, &made));
    context_.reset(made);
  }
  headroom_context* get() const { return context_.get(); }
  int threads() const { return headroom_context_threads(get()); }

 private:
  struct Destroy {
    void operator()(headroom_context* c) const { headroom_context_destroy(c); }
  };
  std::unique_ptr<headroom_context, Destroy> context_;
};

class Memory {  // owned bytes of the context's device, aligned as Headroom asks; `context` outlives it
 public:
  Memory(const Context& context, std::size_t bytes) : context_(context.get()) {
    check(headroom_memory_allocate(context_, bytes, &memory_));
  }
  ~Memory() { headroom_memory_free(context_, &memory_); }
  Memory(Memory&& other) noexcept : context_(other.context_), memory_(std::exchange(other.memory_, {nullptr, 0})) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_), std::swap(memory_, other.memory_);
    return *this;
  }
  headroom_memory lend() const { return memory_; }
  void* data() const { return memory_.data; }
  std::size_t bytes() const { return memory_.bytes; }

  // Copies from and to the host. Both wait until the bytes have arrived.
  void write(const void* from_host, std::size_t bytes, void* stream = nullptr) {
    fits(bytes);
    check(headroom_memory_write(context_, memory_.data, from_host, bytes, stream));
  }
  void read(void* to_host, std::size_t bytes, void* stream = nullptr) const {
    fits(bytes);
    check(headroom_memory_read(context_, to_host, memory_.data, bytes, stream));
  }

 private:
  void fits(std::size_t bytes) const {
    if (bytes > memory_.bytes) throw std::invalid_argument("headroom: more bytes than the memory has");
  }
  headroom_context* context_;
  headroom_memory memory_{nullptr, 0};
};

inline std::size_t workspace_bytes(const Context& c, const headroom_attention_problem& p, headroom_pass pass) {
  std::size_t bytes = 0;
  check(headroom_attention_workspace_bytes(c.get(), &p, pass, &bytes));
  return bytes;
}

inline std::size_t saved_bytes(const Context& c, const headroom_attention_problem& p) {
  std::size_t bytes = 0;
  check(headroom_attention_saved_bytes(c.get(), &p, &bytes));
  return bytes;
}

inline std::string explain(const Context& c, const headroom_attention_problem& p) {
  std::size_t needed = 0;
  check(headroom_attention_explain(c.get(), &p, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(headroom_attention_explain(c.get(), &p, text.data(), text.size(), nullptr));
  text.pop_back();  // the closing zero
  return text;
}

struct Forward {
  headroom_tensor q, k, v;
  headroom_tensor o, lse;  // written
  headroom_tensor sink{};  // this and those below: for problems that have them, see headroom.h
  headroom_tensor cu_q{}, cu_k{};
  headroom_tensor pages{};
  headroom_tensor random{};  // dropout reads this, or the two below
  uint64_t seed = 0, offset = 0;
  headroom_tensor alibi{};
};

struct Backward {
  headroom_tensor q, k, v, o, lse, d_o;
  headroom_tensor dlse;        // {}: there is none
  headroom_tensor dq, dk, dv;  // overwritten
  headroom_tensor sink{}, cu_q{}, cu_k{};
  headroom_tensor dsink{};  // overwritten; {} if it is not needed
  headroom_tensor random{};
  uint64_t seed = 0, offset = 0;
  headroom_tensor alibi{};
};

// One problem with its memory, for one stream of calls: backward reads what the last forward saved. `context` outlives it.
// Two threads must not use it at once: they would share the memory.
class Attention {
 public:
  Attention(const Context& context, const headroom_attention_problem& problem)
      : context_(context),
        problem_(problem),
        saved_(context, api::saved_bytes(context, problem)),
        workspace_(context, std::max(api::workspace_bytes(context, problem, HEADROOM_FORWARD),
                                     problem.page || problem.quantise ? 0 : api::workspace_bytes(context, problem, HEADROOM_BACKWARD))) {}

  void forward(const Forward& t, void* stream = nullptr) {
    headroom_attention_forward_arguments a{};
    a.struct_size = sizeof a;
    a.q = t.q, a.k = t.k, a.v = t.v, a.o = t.o, a.lse = t.lse;
    a.sink = t.sink, a.cu_q = t.cu_q, a.cu_k = t.cu_k, a.pages = t.pages;
    a.random = t.random, a.seed = t.seed, a.offset = t.offset, a.alibi = t.alibi;
    a.saved = saved_.lend(), a.workspace = workspace_.lend(), a.stream = stream;
    check(headroom_attention_forward(context_.get(), &problem_, &a));
  }

  void backward(const Backward& t, void* stream = nullptr) {
    headroom_attention_backward_arguments a{};
    a.struct_size = sizeof a;
    a.q = t.q, a.k = t.k, a.v = t.v, a.o = t.o, a.lse = t.lse, a.d_o = t.d_o, a.dlse = t.dlse;
    a.dq = t.dq, a.dk = t.dk, a.dv = t.dv;
    a.sink = t.sink, a.cu_q = t.cu_q, a.cu_k = t.cu_k, a.dsink = t.dsink;
    a.random = t.random, a.seed = t.seed, a.offset = t.offset, a.alibi = t.alibi;
    a.saved = saved_.lend(), a.workspace = workspace_.lend(), a.stream = stream;
    check(headroom_attention_backward(context_.get(), &problem_, &a));
  }

  std::size_t saved_bytes() const { return saved_.bytes(); }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }
  std::string explain() const { return api::explain(context_, problem_); }

 private:
  const Context& context_;
  headroom_attention_problem problem_;
  Memory saved_, workspace_;
};

}  // namespace headroom::api
