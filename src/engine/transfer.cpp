#include "engine/transfer.h"

#include <cstring>

#include "gpu/staging.h"

namespace headroom::engine {

void read(const Tensor& from, void* to, const Context& ctx) {
  if (from.count() == 0) return;
  if (ctx.on_gpu()) return read_from_device(to, from.data, from.bytes(), ctx.stream);
  std::memcpy(to, from.data, from.bytes());
}

void write(const void* from, const Tensor& to, const Context& ctx) {
  if (to.count() == 0) return;
  if (ctx.on_gpu()) return write_to_device(to.data, from, to.bytes(), ctx.stream);
  std::memcpy(to.data, from, to.bytes());
}

const char* HostView::read(const Tensor& t) {
  if (in_place()) return t.as<char>();
  engine::read(t, room(t), *ctx_);
  return buffer_.data();
}

char* HostView::room(const Tensor& t) {
  if (in_place()) return t.as<char>();
  if (buffer_.size() < t.bytes()) buffer_.resize(t.bytes());
  return buffer_.data();
}

void HostView::write(const Tensor& t) {
  if (!in_place()) engine::write(buffer_.data(), t, *ctx_);
}

}  // namespace headroom::engine
