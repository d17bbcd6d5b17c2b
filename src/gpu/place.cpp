#include "gpu/place.h"

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/divide.h"
#include "gpu/fill.h"

namespace headroom {

Place::Place(const Device& device, int threads) : threads_(threads) {
  if (device.kind == DeviceKind::cuda) queue_.emplace(device.index);
}

PlaceMemory Place::take(std::size_t bytes) const { return on_gpu() ? PlaceMemory(Buffer(bytes)) : PlaceMemory(Block(bytes)); }

void Place::fill_normal(const Tensor& t, Random random, float scale) {
  if (on_gpu()) return headroom::fill_normal(t, random, *queue_, scale);
  constexpr std::int64_t piece = 1 << 16;
  with_filled(t.dtype, [&]<class T>() {
    threads_.share(ceil_div(t.count(), piece), [&](std::int64_t n, int) {
      for (auto i = n * piece; i < std::min((n + 1) * piece, t.count()); ++i)
        t.as<T>()[i] = narrow<T>(scale * random.normal(std::uint64_t(i)));
    });
  });
}

void Place::copy_in(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (on_gpu())
    copy_to_device(to, from, bytes, *queue_);
  else
    std::memcpy(to, from, bytes);
}

void Place::copy_out(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every) const {
  if (row_bytes == 0 || rows == 0) return;
  if (on_gpu()) {
    copy_rows_to_host(to, from, row_bytes, rows, every, *queue_);
    return queue_->wait();
  }
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(static_cast<char*>(to) + i * row_bytes, static_cast<const char*>(from) + i * every, row_bytes);
}

void Place::wait() const {
  if (on_gpu()) queue_->wait();
}

}  // namespace headroom
