// What PyTorch's step gives to the card: the record that a dry run of the same program would leave (dry/record.h), written from the account's walk. The
// clock (dry/clock.h) times it as it times a program's. Which kernels an operator launches was read off dry runs of bench/peers/pytorch_memory.py
// with PyTorch 2.11.
#pragma once
#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "dry/write.h"
#include "memory/ledger.h"

namespace headroom::pytorch {

enum class Kernel : std::uint8_t {
  pointwise,           // operands of one type whose elements are neighbours
  converting,          // the same of two types, or to a wider one
  strided,             // operands whose elements are not neighbours
  strided_converting,  // the same of two types
  reducing,            // sums of rows or columns
  norm,                // F.rms_norm
  norm_backward,
  norm_weights,    // the gradient of its weights
  generated,       // by torch.compile: elementwise
  generated_sums,  // the same with sums of rows
  other
};

class Launches {
 public:
  Launches(Precision, int sm);  // the products' precision, the card's sm

  void enter(Phase);  // what comes is forward's, backward's or the optimizer's
  void end_step();

  void kernel(Kernel, std::int64_t elements, double bytes);
  // m x k times k x n, as cuBLAS has them: columns first. `transposed`: 1 the left side, 2 the right one.
  void product(std::int64_t m, std::int64_t n, std::int64_t k, DType, std::uint32_t transposed, std::int64_t batch = 1);
  void attention(const Shape& q, std::int64_t len_k, DType, bool backward);  // q: batch, heads, len, dim; as many key heads
  void softmax(std::int64_t rows, std::int64_t columns, DType, bool backward);
  void embedding_gradient(std::int64_t tokens, std::int64_t vocab, std::int64_t width, DType);
  // An operator over lists of tensors of so many numbers in all: `lists` tensors for each entry, of which `read` are read and one is written.
  void list(const char* functor, std::int64_t numbers, DType, int lists, int read);
  void fused_adam(std::int64_t numbers, DType);

  // Other ranks: what this rank contributes to a collective, on a stream of its own. It begins when the work before it is done, or at once.
  enum class Begins : std::uint8_t { at_once, after_work };
  std::uint32_t collective(const char* name, double bytes, std::int64_t ranks, std::uint32_t stream, Begins);  // an event: its end
  void await(std::uint32_t event);  // work that follows waits for it; 0: for nothing
  void await_collectives();         // for all

  const dry::RecordWriter& written() const { return record_; }

 private:
  void launch(const std::string& name, double blocks, std::uint32_t threads, double bytes, std::uint32_t y = 1, std::uint32_t z = 1);
  void lists(const std::string& name, double numbers, double bytes);

  Precision precision_;
  int sm_;
  dry::RecordWriter record_;
  std::int64_t steps_ = 0;
  std::uint32_t events_ = 0;
  std::vector<std::uint32_t> collectives_;  // events that nothing has waited for
};

}  // namespace headroom::pytorch
