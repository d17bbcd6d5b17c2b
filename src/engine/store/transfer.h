// Copies values between a step's tensors, on any device, and the host. On a GPU each call waits for all work on the stream:
// use it between steps, never inside one.
#pragma once
#include <vector>

#include "ops/op.h"

namespace headroom::engine {

void read(const Tensor& from, void* to, const Context&);  // contiguous tensors
void write(const void* from, const Tensor& to, const Context&);

template <class T>
std::vector<T> values_of(const Tensor& t, const Context& ctx) {
  std::vector<T> all(std::size_t(t.count()));
  read(t, all.data(), ctx);
  return all;
}

// The bytes of one tensor after another as the host sees them: in place on a CPU, through a buffer of the largest on a GPU. With a rest
// the tensor is the upper half of FP32 values (ops/copy/split.h), and these are what the host sees.
class HostView {
 public:
  HostView() = default;  // for tensors on a CPU
  explicit HostView(const Context& ctx) : ctx_(&ctx) {}
  const char* read(const Tensor&, const Tensor& rest = {});  // good until the next call
  char* room(const Tensor&, const Tensor& rest = {});        // fill it, then hand it to write()
  void write(const Tensor&, const Tensor& rest = {});

 private:
  bool on_gpu() const { return ctx_ && ctx_->on_gpu(); }
  template <class T>
  std::vector<T> halves_of(const Tensor&) const;
  void put(const void* from, const Tensor& to) const;
  const Context* ctx_ = nullptr;
  std::vector<char> buffer_;
};

}  // namespace headroom::engine
