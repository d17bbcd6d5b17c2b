// Shared by the tests of ops: tensors on the host and on the card with guard bands and poison; ops that run on both in arenas of exactly
// the size of a dry run; and the comparison of errors.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "memory/block.h"
#include "ops/op.h"
#include "tests/each_element.h"

namespace headroom::on_card {

constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

inline double unit_of(DType t) { return t == DType::bf16 ? 0x1p-9 : t == DType::f16 ? 0x1p-12 : 0x1p-24; }  // half a last place of 1

// A tensor on the host and on the card. Every byte is 0xff (a NaN in every format) until written. `shift` elements move it off the 256-byte
// boundary. `rows_apart`: elements from one row of a matrix to the next, for gaps between rows.
class Twin {
 public:
  Twin() = default;
  Twin(DType type, Shape shape, std::int64_t shift = 0, std::int64_t rows_apart = 0) : view_(nullptr, type, shape) {
    if (rows_apart > 0) view_.stride[0] = rows_apart;
    begin_ = band + std::size_t(shift) * size_of(type);
    std::int64_t end = shape.count() == 0 ? 0 : 1;
    for (int d = 0; d < shape.rank && end; ++d) end += (shape[d] - 1) * view_.stride[std::size_t(d)];
    bytes_.assign(begin_ + std::size_t(end) * size_of(type) + band, std::byte{0xff});
  }
  Tensor here() { return at(bytes_.data()); }
  Tensor there() const { return buffer_ ? at(buffer_->data()) : Tensor(); }
  explicit operator bool() const { return !bytes_.empty(); }
  std::vector<std::byte>& bytes() { return bytes_; }

  void normal(std::uint64_t stream, double scale = 1) {
    const Random random = Random{7}.stream(stream);
    each([&](std::int64_t flat, std::int64_t offset) { set(offset, float(scale * double(random.normal(std::uint64_t(flat))))); });
  }
  void set(std::int64_t offset, float value) {
    with_float(view_.dtype, [&]<class T>() { here().as<T>()[offset] = narrow<T>(value); });
  }
  std::vector<double> values() {
    std::vector<double> all(std::size_t(view_.count()));
    each([&](std::int64_t flat, std::int64_t offset) { all[std::size_t(flat)] = load_element(here().data, view_.dtype, offset); });
    return all;
  }
  bool guards_intact() {
    std::vector<bool> element(bytes_.size(), false);
    const auto size = size_of(view_.dtype);
    each([&](std::int64_t, std::int64_t offset) {
      for (std::size_t i = 0; i < size; ++i) element[begin_ + std::size_t(offset) * size + i] = true;
    });
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!element[i] && bytes_[i] != std::byte{0xff}) return false;
    return true;
  }
  void up(const Stream& s) {
    if (!buffer_) buffer_ = std::make_shared<Buffer>(bytes_.size());
    copy_to_device(buffer_->data(), bytes_.data(), bytes_.size(), s);
  }
  void down(const Stream& s) {
    copy_to_host(bytes_.data(), buffer_->data(), bytes_.size(), s);
    s.wait();
  }

 private:
  static constexpr std::size_t band = 256;
  Tensor at(void* base) const {
    Tensor t = view_;
    t.data = static_cast<std::byte*>(base) + begin_;
    return t;
  }
  template <class F>
  void each(F&& f) {
    each_element(view_, f);
  }

  Tensor view_;
  std::size_t begin_ = 0;
  std::vector<std::byte> bytes_;
  std::shared_ptr<Buffer> buffer_;
};

// The largest error, relative to the value plus the RMS of all values; `least` is added to the RMS, for sums of terms that cancel.
inline double worst_error(const std::vector<double>& got, const std::vector<double>& expected, double least = 1e-30) {
  double squares = 0, worst = 0;
  for (double x : expected) squares += x * x;
  const double rms = std::sqrt(squares / double(std::max<std::size_t>(1, expected.size()))) + least;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(got[i] - expected[i]) / (std::fabs(expected[i]) + rms);
    if (!(error <= worst)) worst = error;  // NaN counts as the worst
    if (std::isnan(worst)) break;
  }
  return worst;
}

// At most twice the error of an honest computation, and a few roundings.
inline void expect_honest(const char* what, const std::vector<double>& got, const std::vector<double>& honest,
                          const std::vector<double>& oracle, DType type, double least = 1e-30) {
  EXPECT_LE(worst_error(got, oracle, least), 2 * worst_error(honest, oracle, least) + 4 * unit_of(type)) << what << " " << name_of(type);
}

class OnCard : public testing::Test {
 protected:
  using Work = std::function<void(Context&)>;

  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    device = cuda_device(0);
    stream = std::make_unique<Stream>(0);
  }
  static std::size_t scratch_of(const Device& d, const Work& work, int workers = 1) {
    Arena dry;
    Context ctx{dry, d};
    ctx.dry_workers = workers;
    work(ctx);
    return dry.peak();
  }
  void on_cpu(const Work& work) {
    const Block memory(scratch_of(cpu, work, threads.count()) + 1);
    Arena arena(memory.data(), memory.bytes());
    Context ctx{arena, cpu, &threads};
    work(ctx);
  }
  void on_gpu(const Work& work) {
    const auto bytes = scratch_of(device, work);
    const Buffer memory(bytes + 256);
    fill_bytes(memory.data(), 0xff, memory.bytes(), *stream);
    Arena arena(memory.data(), bytes + 1);
    Context ctx{arena, device};
    ctx.stream = stream->raw();
    work(ctx);
    stream->wait();
    EXPECT_EQ(arena.peak(), bytes) << "the dry run promised other scratch";
  }
  // Runs several times, then as a recorded graph. `reset` restores the inputs; `outputs` must have the same bits each time.
  void expect_same_bits(const Work& work, const std::function<void()>& reset, const std::vector<Twin*>& outputs) {
    std::vector<std::vector<std::byte>> first;
    const auto compare = [&](const char* when) {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        outputs[i]->down(*stream);
        if (first.size() < outputs.size())
          first.push_back(outputs[i]->bytes());
        else
          ASSERT_TRUE(first[i] == outputs[i]->bytes()) << when << ": other bits in output " << i;
      }
    };
    for (int again = 0; again < 20; ++again) {
      reset();
      on_gpu(work);
      compare("again");
    }
    const auto bytes = scratch_of(device, work);
    const Buffer memory(bytes + 256);
    const Graph graph(*stream, [&] {
      Arena arena(memory.data(), bytes + 1);
      Context ctx{arena, device};
      ctx.stream = stream->raw();
      work(ctx);
    });
    for (int again = 0; again < 3; ++again) {
      reset();
      graph.launch(*stream);
      compare("in a graph");
    }
  }
  void up(std::initializer_list<Twin*> all) {
    for (Twin* t : all)
      if (*t) t->up(*stream);
  }
  void down(std::initializer_list<Twin*> all) {
    for (Twin* t : all) {
      if (!*t) continue;
      t->down(*stream);
      EXPECT_TRUE(t->guards_intact()) << "written past the end";
    }
  }

  Device device;
  const Device cpu{};
  Threads threads{2};
  std::unique_ptr<Stream> stream;
};

}  // namespace headroom::on_card
