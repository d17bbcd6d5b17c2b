#include "engine/store/transfer.h"

#include <cstring>

#include "gpu/staging.h"
#include "ops/copy/split.h"

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

const char* HostView::read(const Tensor& t, const Tensor& rest) {
  if (!rest && !on_gpu()) return t.as<char>();
  char* to = room(t, rest);
  if (!rest) {
    engine::read(t, to, *ctx_);
    return to;
  }
  const auto upper = halves_of<bf16>(t);
  const auto lower = halves_of<std::uint16_t>(rest);
  auto* values = reinterpret_cast<float*>(to);
  for (std::size_t i = 0; i < upper.size(); ++i) values[i] = copy::join({upper[i], lower[i]});
  return to;
}

char* HostView::room(const Tensor& t, const Tensor& rest) {
  if (!rest && !on_gpu()) return t.as<char>();
  const std::size_t bytes = rest ? std::size_t(t.count()) * sizeof(float) : t.bytes();
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  return buffer_.data();
}

void HostView::write(const Tensor& t, const Tensor& rest) {
  if (rest) {
    const auto* values = reinterpret_cast<const float*>(buffer_.data());
    std::vector<bf16> upper(std::size_t(t.count()));
    std::vector<std::uint16_t> lower(upper.size());
    for (std::size_t i = 0; i < upper.size(); ++i) {
      const copy::Halves h = copy::split(values[i]);
      upper[i] = h.upper;
      lower[i] = h.rest;
    }
    put(upper.data(), t);
    put(lower.data(), rest);
  } else if (on_gpu()) {
    engine::write(buffer_.data(), t, *ctx_);
  }
}

template <class T>
std::vector<T> HostView::halves_of(const Tensor& t) const {
  if (on_gpu()) return values_of<T>(t, *ctx_);
  return {t.as<T>(), t.as<T>() + t.count()};
}

void HostView::put(const void* from, const Tensor& to) const {
  if (on_gpu()) return engine::write(from, to, *ctx_);
  std::memcpy(to.data, from, to.bytes());
}

}  // namespace headroom::engine
