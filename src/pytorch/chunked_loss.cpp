// The loss of a language model with its head, in parts: no whole matrix of logits.
#include <algorithm>
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

namespace {
constexpr std::int64_t torchtunes_chunks = 8;

std::int64_t ligers_rows(std::int64_t rows, std::int64_t vocab, std::int64_t width) {  // rows of one part: about as many bytes as the input
  const std::int64_t parts = (vocab + width - 1) / width, least = (rows + parts - 1) / parts;
  std::int64_t n = 1;
  while (n < least) n *= 2;
  return n;
}
}  // namespace

struct Eager::ChunkedLoss {
  struct Part {
    std::int64_t rows = 0;
    Value logits{}, log_p{}, sums{};
  };
  Eager& eager;
  Chunks how;
  DType low, held;  // of products, and of the head
  Shape input, head;
  bool trains;  // the head has a gradient
  std::int64_t width = last(input), vocab = head[0];
  std::vector<Part> parts{};
  Value dh{}, dw{}, h{}, copy{};  // kept for backward

  void divide() {
    const std::int64_t rows = input.count() / width;
    const std::int64_t each = how == Chunks::fused ? ligers_rows(rows, vocab, width) : (rows + torchtunes_chunks - 1) / torchtunes_chunks;
    for (std::int64_t begin = 0; begin < rows; begin += each) parts.push_back({.rows = std::min(each, rows - begin)});
  }

  // Liger's kernel makes the gradients in forward.
  void forward_with_gradients() {
    dh = eager.fresh("gradient of the head's input", low, input);
    if (trains) dw = eager.fresh("gradient of the head", held, head);
    const Value losses = eager.fresh("losses", DType::f32, {input.count() / width});
    for (const Part& p : parts) {
      const Value logits = eager.fresh("logits of one part", low, {p.rows, vocab});
      const Value target = eager.fresh("gradient of one part's input", low, {p.rows, width});
      eager.touch_workspace();
      eager.multiplied(vocab, p.rows, width, low, 1);
      eager.ran(Kernel::other, logits, logits, logits);  // it reads them twice and leaves their gradient in their place
      eager.multiplied(width, p.rows, vocab, low, 0);
      eager.ran(Kernel::pointwise, target, target);
      if (trains) add_to_gradient_of_head(p);
    }
  }

  void add_to_gradient_of_head(const Part& p) {
    const Value more = eager.fresh("one part's gradient of the head", low, head);
    const Value wide = low == DType::f32 ? Value{} : eager.fresh("the same in FP32", DType::f32, head);
    eager.multiplied(width, vocab, p.rows, low, 2);
    if (wide) eager.ran(Kernel::converting, wide, more);
    eager.ran(between(held, DType::f32), dw, dw, wide ? wide : more);
  }

  void forward() {
    std::vector<Value> logits;  // all of them are made before the loss of the first
    for (const Part& p : parts) {
      logits.push_back(eager.fresh("logits of one part", low, {p.rows, vocab}));
      eager.touch_workspace();
      eager.multiplied(vocab, p.rows, width, low, 1);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) keep_for_backward(parts[i], logits[i]);
  }

  void keep_for_backward(Part& p, const Value& logits) {
    if (how == Chunks::compiled) {
      p.logits = logits;
      p.sums = eager.fresh("rows' maxima and sums", DType::f32, {2, p.rows});
      return;
    }
    const Value wide = low == DType::f32 ? Value{} : eager.fresh("logits of one part as fp32", DType::f32, {p.rows, vocab});
    p.log_p = eager.fresh("log-probabilities of one part", DType::f32, {p.rows, vocab});
    if (wide) eager.ran(Kernel::converting, wide, logits);
    eager.softmax_ran(p.rows, vocab, DType::f32, false);
  }

  Node::Gradients backward() {
    if (how == Chunks::fused) return {std::move(dh), std::move(dw)};
    std::vector<Value> dx;
    for (auto p = parts.rbegin(); p != parts.rend(); ++p) {
      const Value d = gradient_of_logits(*p);
      if (trains) eager.multiplied(width, vocab, p->rows, low, 2);
      eager.multiplied(width, p->rows, vocab, low, 0);
      if (trains) add_part_to_gradient_of_head();
      dx.push_back(eager.make("gradient of one part's input", low, {p->rows, width}));
      eager.touch_workspace();
    }
    h = {}, copy = {};
    Value whole = eager.make("gradient of the head's input", low, input);
    dx.clear();
    if (dw && low != held) dw = eager.make("gradient of the head", held, head);
    return {std::move(whole), std::move(dw)};
  }

  Value gradient_of_logits(Part& p) {
    const Shape shape{p.rows, vocab};
    if (how == Chunks::compiled) {
      Value d = eager.make("d(logits of one part)", low, shape);
      p.logits = {}, p.sums = {};
      return d;
    }
    Value wide = gradient_in_fp32(shape);
    p.log_p = {};
    if (low == DType::f32) return wide;
    Value d = eager.make("d(logits of one part)", low, shape);
    eager.ran(Kernel::pointwise, d, wide);
    return d;
  }

  Value gradient_in_fp32(const Shape& shape) {
    const Value of_log_p = eager.make("d(log-probabilities of one part)", DType::f32, shape);
    Value wide = eager.make("d(logits of one part) as fp32", DType::f32, shape);
    eager.ran(Kernel::pointwise, of_log_p);
    eager.softmax_ran(shape[0], vocab, DType::f32, true);
    return wide;
  }

  void add_part_to_gradient_of_head() {
    Value more = eager.make("one part's gradient of the head", low, head);
    if (dw)
      eager.ran(Kernel::pointwise, dw, dw, more);
    else
      dw = std::move(more);
  }
};

Value Eager::chunked_loss(const std::string& name, const Value& h_given, const Parameter& head, Chunks how) {
  const DType low = autocast_.value_or(h_given.dtype), held = head.value.dtype;
  const Value h = h_given.dtype == low ? h_given : cast(name + " input", h_given, low);
  const Value copy = held == low ? head.value.saved() : fresh("head as " + std::string(name_of(low)), low, head.value.shape);
  if (held != low) ran(Engine::copy(held, low), copy, head.value);
  auto parts = std::make_shared<ChunkedLoss>(ChunkedLoss{
      .eager = *this, .how = how, .low = low, .held = held, .input = h.shape, .head = head.value.shape, .trains = bool(head.value.node)});
  parts->divide();
  if (how == Chunks::fused) {
    parts->forward_with_gradients();
  } else {
    parts->forward();
    if (parts->trains) parts->h = h.saved();
    parts->copy = copy.saved();
  }
  const Value loss = fresh(name, DType::f32, {1});
  return record(name, loss, {h, head.value}, [parts](const Value&) { return parts->backward(); });
}

}  // namespace headroom::pytorch
