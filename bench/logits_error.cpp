// What --logits half costs: losses and gradients of logits that were rounded to 16 bits, against FP64, beside those of FP32 logits. On the
// CPU, by the engine's own op; the gradient is stored in the precision's type either way, as in a step.
// cmake --build build/release --target logits_error && build/release/bench/logits_error
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace {

using namespace headroom;

struct Errors {
  double mean_loss = 0, token_loss = 0, gradient = 0;  // of the mean loss; RMS of a token's loss; RMS over RMS of the gradient
};

Errors errors_of(DType logits_type, DType compute, std::int64_t rows, std::int64_t vocab, double spread) {
  const Random random{42};
  std::vector<double> exact(std::size_t(rows * vocab));
  std::vector<std::byte> bytes(exact.size() * size_of(logits_type)), gradient_bytes(exact.size() * size_of(compute));
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
  std::vector<float> losses(targets.size());
  const Tensor logits(bytes.data(), logits_type, {rows, vocab}), gradient(gradient_bytes.data(), compute, {rows, vocab});
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const float x = float(spread * double(random.normal(i)));
    exact[i] = double(x);
    with_float(logits_type, [&]<class T>() { logits.as<T>()[i] = narrow<T>(x); });
  }
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = std::int32_t(random.stream(1).below(i, std::uint64_t(vocab)));
  std::vector<std::byte> room(1 << 24);
  Arena scratch(room.data(), room.size());
  const Device cpu;
  Context ctx{scratch, cpu};
  cross_entropy::run({logits, {targets.data(), DType::i32, {rows}}, {losses.data(), DType::f32, {rows}}, gradient, 1.0f, nullptr}, ctx);
  Errors e;
  double difference = 0, size = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* z = exact.data() + row * vocab;
    double sum = 0;
    for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(z[v]);
    const auto target = targets[std::size_t(row)];
    const double off = double(losses[std::size_t(row)]) - (std::log(sum) - z[target]);
    e.mean_loss += off / double(rows), e.token_loss += off * off / double(rows);
    for (std::int64_t v = 0; v < vocab; ++v) {
      const double g = std::exp(z[v]) / sum - (v == target);
      difference += std::pow(load_element(gradient.data, compute, row * vocab + v) - g, 2), size += g * g;
    }
  }
  e.token_loss = std::sqrt(e.token_loss), e.gradient = std::sqrt(difference / size);
  return e;
}

}  // namespace

int main() {
  std::printf("vocab,spread,precision,logits,mean_loss_error,token_loss_error,gradient_error\n");
  for (const std::int64_t vocab : {10000, 50304, 151936})
    for (const double spread : {1.0, 3.0})
      for (const DType compute : {DType::bf16, DType::f16})
        for (const DType logits : {DType::f32, compute}) {
          const Errors e = errors_of(logits, compute, 256, vocab, spread);
          std::printf("%lld,%g,%s,%s,%.2g,%.2g,%.2g\n", static_cast<long long>(vocab), spread, std::string(name_of(compute)).c_str(),
                      logits == DType::f32 ? "whole" : "half", std::fabs(e.mean_loss), e.token_loss, e.gradient);
          std::fflush(stdout);
        }
}
