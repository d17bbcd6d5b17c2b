// cuDNN's recurrent layers. Weights have their published sizes, layer by layer, matrices first. What a pass takes beside its tensors follows
// what a card was seen to take, and the record names it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "dry/cuda_types.h"
#include "dry/library/public.h"
#include "dry/library/tensor.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

enum Cell { relu, tanh, lstm, gru };                             // cudnnRNNMode_t
enum Algorithm { standard, persistent, dynamic, small_hidden };  // cudnnRNNAlgo_t
constexpr int training = 1;                                      // cudnnForwardMode_t
constexpr int no_bias = 0, both_biases = 2;

struct Dropout {  // a cudnnDropoutDescriptor
  float rate = 0;
};

struct Layers {  // a cudnnRNNDescriptor
  int algorithm = standard, cell = lstm, bias = both_biases, both_ways = 0, type = cudnn_type::single, input = 0, hidden = 0, projected = 0,
      layers = 0;
  bool drops = false;  // numbers between layers

  std::int64_t gates() const { return cell == lstm ? 4 : cell == gru ? 3 : 1; }
  std::int64_t ways() const { return both_ways ? 2 : 1; }
  std::int64_t out() const { return projected > 0 ? projected : hidden; }
  std::int64_t in(std::int64_t layer) const { return layer == 0 ? input : ways() * out(); }
  std::int64_t biases() const { return bias == no_bias ? 0 : bias == both_biases ? 2 : 1; }
  std::size_t element() const { return cudnn_type::bytes_of(type); }

  // Elements of a layer's matrices in one direction: those of its input, those of its state, the projection.
  std::int64_t matrices(std::int64_t layer) const {
    return gates() * hidden * (in(layer) + out()) + (projected > 0 && projected != hidden ? std::int64_t(hidden) * projected : 0);
  }
  std::int64_t all_matrices() const {
    std::int64_t sum = 0;
    for (int layer = 0; layer < layers; ++layer) sum += ways() * matrices(layer);
    return sum;
  }
  std::int64_t elements() const { return all_matrices() + layers * ways() * biases() * gates() * hidden; }
};

struct Sequences {  // a cudnnRNNDataDescriptor
  int type = 0, length = 0, batch = 0, width = 0;
  bool packed = false;
  std::int64_t places = 0;  // of all sequences; packed ones have no padding
};

// What a pass takes beside its tensors; cuDNN does not publish it. The sizes below give every byte of 288 passes of an H100 with cuDNN 9.19
// (bench/results/h100_scratch_recurrent*_2026-11-24.csv) and of 360 with packed sequences of an H200 (h200_scratch_recurrent_packed_2026-11-29.csv); a test
// walks them. What dropout adds, and lengths that are no multiples of 32 bytes, follow from four more shapes of an H200, two LSTMs and a GRU in FP32, one way,
// and an LSTM both ways in fp16; what odd rows add from one GRU, both ways in fp16 (2026-11-30). Other shapes may take more or less.
struct Scratch {
  std::int64_t work = 0, reserve = 0, unsure = 0;  // bytes; `unsure`: how much more or less the work may take
  bool odd_rows = false;                           // of 16-bit numbers, no multiples of 16 bytes: one more copy of input and output
  bool known = false;                              // false: by the same sizes, but of such layers no card was asked
};

struct Sizes {  // in elements
  // piece: no longer than the sequence. A GRU of two layers with one place took 50988224 bytes on an H200; this gives two states more.
  std::int64_t output, input, state, pairs, more, piece;
  bool one_way, several;

  Sizes(const Layers& l, const Sequences& x)
      : output(x.places * l.hidden * l.ways()),
        input(x.places * l.input),
        state(std::int64_t(x.batch) * l.hidden),
        pairs(l.layers * l.ways()),
        more(2 * (l.ways() - 1)),
        piece(std::min(x.length, x.batch > 8 ? 8 : 16) * state),
        one_way(l.ways() == 1),
        several(l.layers > 1) {}
  // Layers in one direction with small matrices are computed in pieces of the sequence.
  bool in_pieces(const Layers& l) const { return one_way && several && l.gates() * l.hidden <= 1024; }
};

std::int64_t at_once_elements(const Layers& l, const Sizes& n) {
  return (l.gates() + 1 + n.more) * n.output + n.input + ((l.cell == lstm ? 10 : 5) + n.more) * n.pairs * n.state;
}

// Elements beside the weights, in one of two arrangements: every gate of a layer at once, or one layer's inputs and outputs in a copy.
std::int64_t padded_elements(const Layers& l, const Sizes& n, bool fast) {
  const std::int64_t at_once = at_once_elements(l, n);
  const std::int64_t copied = (n.one_way ? 4 : 5) * n.output + n.several * n.output + 2 * n.input + (5 + n.more) * n.pairs * n.state;
  const std::int64_t in_pieces = 3 * n.output + (l.layers + 1) * n.piece + 2 * n.input + (l.cell == lstm ? 11 : 5) * n.pairs * n.state;
  const std::int64_t whole = n.output / l.ways();
  if (fast && l.cell == lstm) return at_once + 16 * whole - (n.one_way ? 2 : 3) * n.pairs * n.state;
  if (fast) return copied + (l.cell == gru ? 14 : 9) * whole + (n.one_way ? l.layers * n.state : 0);
  if (n.in_pieces(l)) return in_pieces;
  return std::max(at_once, n.one_way && n.several ? in_pieces : copied);
}

// The same where sequences are packed: their inputs and outputs need no copies, and the standard algorithm runs.
std::int64_t packed_elements(const Layers& l, const Sizes& n) {
  constexpr std::int64_t of_a_piece = 1024;  // places
  if (l.cell == lstm || l.cell == gru)
    return (l.gates() + n.more) * (n.in_pieces(l) ? std::min(n.output, of_a_piece * l.hidden) : n.output) +
           ((l.cell == lstm ? 6 : 3) + n.more) * n.pairs * n.state;
  if (n.one_way && n.several) return n.output + (l.layers + 1) * n.piece + n.pairs * n.state;
  return (n.one_way ? 2 : 3) * n.output + n.several * n.output + (1 + n.more) * n.pairs * n.state;
}

constexpr std::int64_t in_full(std::int64_t bytes) { return (bytes + 31) / 32 * 32; }

Scratch scratch_of(const Layers& l, const Sequences& x, bool for_backward) {
  const Sizes n(l, x);
  const std::int64_t element = std::int64_t(l.element());
  const bool fast =
      l.algorithm == persistent || (l.algorithm == small_hidden && l.type != cudnn_type::brain);  // in bfloat16 the standard one runs
  const bool drops = l.drops && n.several && for_backward;
  const std::int64_t elements = x.packed                      ? packed_elements(l, n)
                                : drops && n.one_way && !fast ? at_once_elements(l, n)
                                                              : padded_elements(l, n, fast);

  constexpr std::int64_t of_a_stream = 8 << 20, head = 256;
  Scratch s;
  s.work = in_full(l.all_matrices() * element) + in_full(elements * element) + n.pairs * of_a_stream + head +
           (x.packed ? 0 : (std::int64_t(x.batch) + 3) / 4 * 32);
  if (drops && n.one_way) s.work += in_full(n.output * element);  // what is left of a layer's output; both ways it has a place among `more`
  // Kept for backward: of each layer the activated gates and the cell's state (of a GRU two states more), what goes from layer to layer, and a bit for each
  // number that may be dropped there.
  const std::int64_t kept = l.cell == lstm ? 5 : l.cell == gru ? 6 : 1;
  if (for_backward) s.reserve = in_full(n.output * element * (kept * l.layers + l.layers - 1)) + head;
  if (drops) s.reserve += l.ways() * (l.layers - 1) * in_full((n.output + 7) / 8);
  s.known = l.out() == l.hidden && l.type != cudnn_type::twice && l.algorithm != dynamic;
  s.unsure = (n.output + n.input) * element;
  s.odd_rows = element == 2 && l.hidden * element % 16 != 0 && !fast && !x.packed;
  if (s.odd_rows) s.work += s.unsure;
  return s;
}

// A card may give it without that copy.
void tell_range(const void* work, const Scratch& s) {
  if (!work || !s.odd_rows) return;
  const auto all = std::uint64_t(s.work);
  tell_workspace(work, {std::uint64_t(s.work - s.unsure), all, all});
}

const char* name_of(const Layers& l) { return l.cell == lstm ? "cuDNN LSTM" : l.cell == gru ? "cuDNN GRU" : "cuDNN RNN"; }

// FP32 computes in tf32, as PyTorch has it unless it is told otherwise.
ProductShape of_type(const Layers& l, ProductShape s) {
  s.type_a = s.type_b = s.type_c = cudnn_type::cuda_type_of(l.type);
  s.compute = cublas_compute::fast_tf32;
  return s;
}

enum class Direction { forward, backward };

// A layer goes to the card as cuDNN's standard algorithm has it: one product with all inputs, then at every place of the sequence, one after
// another, a product with the state (backward it is long, so its sum comes in pieces that are added) and a kernel of the cell. A persistent
// kernel does all places at once.
void passed(const char* name, Direction pass, StreamHandle stream, const Layers& l, const Sequences& x) {
  static KernelName& cell = *new KernelName("cuDNN recurrent layers, cell");
  static KernelName& pieces = *new KernelName("cuDNN recurrent layers, pieces of a sum");
  const std::int64_t gates = l.gates() * l.hidden;
  const bool at_once = l.algorithm == persistent || l.algorithm == small_hidden;
  for (int layer = 0; layer < l.layers; ++layer) {
    const std::int64_t in = l.in(layer) + (at_once ? l.out() : 0);
    multiplied(name, stream, of_type(l, {.m = x.places, .n = gates, .k = in, .batch = l.ways()}));
    if (at_once) continue;
    const bool back = pass == Direction::backward;
    const ProductShape state = of_type(l, {.m = x.batch, .n = back ? l.out() : gates, .k = back ? gates : l.out()});
    const std::uint64_t bytes = std::uint64_t(x.batch) * std::uint64_t(gates + 2 * l.hidden) * l.element();
    constexpr unsigned threads = 256;
    const auto blocks = unsigned((std::int64_t(x.batch) * l.hidden + threads - 1) / threads);
    for (std::int64_t place = 0; place < x.length * l.ways(); ++place) {
      multiplied("cuDNN recurrent layers, state", stream, state);
      if (back) launched(pieces, {blocks, 1, 1}, {threads, 1, 1}, 0, stream, bytes);
      launched(cell, {blocks, 1, 1}, {threads, 1, 1}, 0, stream, bytes);
    }
  }
}

}  // namespace

extern "C" int cudnnGetStream(const void* handle, StreamHandle*);  // dnn.cpp

namespace {
StreamHandle stream_of_handle(const void* handle) {
  StreamHandle stream = nullptr;
  cudnnGetStream(handle, &stream);
  return stream;
}
}  // namespace

extern "C" {

int cudnnCreateRNNDescriptor(Layers** out) {
  *out = new Layers;
  return ok;
}
int cudnnDestroyRNNDescriptor(Layers* l) {
  delete l;
  return ok;
}
int cudnnSetRNNDescriptor_v8(Layers* l, int algorithm, int cell, int bias, int direction, int, int type, int, int, int input, int hidden,
                             int projected, int layers, const Dropout* dropout, unsigned) {
  *l = {algorithm, cell, bias, direction, type, input, hidden, projected, layers, dropout && dropout->rate > 0};
  return ok;
}
int cudnnCreateDropoutDescriptor(Dropout** out) {
  *out = new Dropout;
  return ok;
}
int cudnnDestroyDropoutDescriptor(Dropout* d) {
  delete d;
  return ok;
}
int cudnnSetDropoutDescriptor(Dropout* d, const void*, float rate, void*, std::size_t, unsigned long long) {
  d->rate = rate;
  return ok;
}
int cudnnRestoreDropoutDescriptor(Dropout* d, const void*, float rate, void*, std::size_t, unsigned long long) {
  d->rate = rate;
  return ok;
}
int cudnnCreateRNNDataDescriptor(Sequences** out) {
  *out = new Sequences;
  return ok;
}
int cudnnDestroyRNNDataDescriptor(Sequences* s) {
  delete s;
  return ok;
}
int cudnnSetRNNDataDescriptor(Sequences* s, int type, int layout, int length, int batch, int width, const int* lengths, void*) {
  constexpr int sequences_packed = 1;  // cudnnRNNDataLayout_t
  const bool packed = layout == sequences_packed && lengths;
  *s = {type,  length, batch,
        width, packed, packed ? std::accumulate(lengths, lengths + batch, std::int64_t(0)) : std::int64_t(length) * batch};
  return ok;
}

int cudnnGetRNNWeightSpaceSize(const void*, const Layers* l, std::size_t* bytes) {
  *bytes = std::size_t(l->elements()) * l->element();
  return ok;
}
int cudnnGetRNNWeightParams(const void*, const Layers* l, int which, std::size_t, const void* weights, int linear, Tensor* matrix,
                            void** matrix_at, Tensor* bias, void** bias_at) {
  const std::int64_t layer = which / l->ways(), gates = l->gates();
  std::int64_t before = 0;  // elements
  for (std::int64_t i = 0; i < layer; ++i) before += l->ways() * l->matrices(i);
  before += which % l->ways() * l->matrices(layer);
  const bool of_state = linear >= gates, projection = linear == 2 * gates;
  const std::int64_t rows = projection ? l->out() : l->hidden, columns = projection ? l->hidden : of_state ? l->out() : l->in(layer);
  before += l->hidden * (projection ? gates * (l->in(layer) + l->out())
                         : of_state ? gates * l->in(layer) + (linear - gates) * l->out()
                                    : linear * l->in(layer));
  char* const at = const_cast<char*>(static_cast<const char*>(weights));
  const auto fill = [&](Tensor* t, std::int64_t height, std::int64_t width) {
    *t = {l->type, 3, {1, int(height), int(width)}, {int(height * width), int(width), 1}};
  };
  if (matrix_at) *matrix_at = at + before * std::int64_t(l->element());
  if (matrix) fill(matrix, rows, columns);
  const bool has_bias = !projection && (l->bias == both_biases || (l->bias == 1 && !of_state) || (l->bias == 3 && of_state));
  const std::int64_t within = l->bias == both_biases ? linear : linear % gates;
  const std::int64_t bias_before = l->all_matrices() + (which * l->biases() * gates + within) * l->hidden;
  if (bias_at) *bias_at = has_bias ? at + bias_before * std::int64_t(l->element()) : nullptr;
  if (bias) fill(bias, has_bias ? l->hidden : 0, 1);
  return ok;
}
// A generator's state for each thread of 1024 a unit. PyTorch keeps them as a tensor.
int cudnnDropoutGetStatesSize(const void*, std::size_t* bytes) {
  constexpr std::size_t threads = 1024, state = 48;
  *bytes = std::size_t(card().units) * threads * state;
  note(Said::by_rule, "cuDNN dropout", std::uint64_t(*bytes) / 8);
  return ok;
}
int cudnnGetRNNTempSpaceSizes(const void*, const Layers* l, int mode, const Sequences* x, std::size_t* work, std::size_t* reserve) {
  const Scratch s = scratch_of(*l, *x, mode == training);
  note(s.known ? Said::by_rule : Said::by_formula, name_of(*l), std::uint64_t(s.unsure));
  if (work) *work = std::size_t(s.work);
  if (reserve) *reserve = std::size_t(s.reserve);
  return ok;
}

int cudnnRNNForward(const void* handle, const Layers* l, int mode, const int*, const Sequences* x, const void*, const Sequences*, void*,
                    const Tensor*, const void*, void*, const Tensor*, const void*, void*, std::size_t, const void*, std::size_t,
                    void* work) {
  tell_range(work, scratch_of(*l, *x, mode == training));
  passed("cuDNN recurrent layers, forward", Direction::forward, stream_of_handle(handle), *l, *x);
  return ok;
}
int cudnnRNNBackwardData_v8(const void* handle, const Layers* l, const int*, const Sequences*, const void*, const void*, const Sequences* x,
                            void*, const Tensor*, const void*, const void*, void*, const Tensor*, const void*, const void*, void*,
                            std::size_t, const void*, std::size_t, void* work) {
  tell_range(work, scratch_of(*l, *x, true));
  passed("cuDNN recurrent layers, backward of the data", Direction::backward, stream_of_handle(handle), *l, *x);
  return ok;
}
int cudnnRNNBackwardWeights_v8(const void* handle, const Layers* l, int, const int*, const Sequences* x, const void*, const Tensor*,
                               const void*, const Sequences*, const void*, std::size_t, void*, std::size_t, void* work) {
  tell_range(work, scratch_of(*l, *x, true));
  for (int layer = 0; layer < l->layers; ++layer) {
    const ProductShape whole{.m = l->gates() * l->hidden, .n = l->in(layer) + l->out(), .k = x->places, .batch = l->ways()};
    multiplied("cuDNN recurrent layers, backward of the weights", stream_of_handle(handle), of_type(*l, whole));
  }
  return ok;
}
}
