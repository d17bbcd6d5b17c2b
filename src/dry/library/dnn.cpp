// cuDNN's graphs. PyTorch asks for the workspace of every plan and takes it from its allocator, so the answer has to be cuDNN's own: each call
// also goes to the program's libcudnn, with the card's description where it wants a device (real_cudnn.h). Handles stay here.
//
// A plan of convolutions is made for real, because PyTorch tries configurations until one succeeds. A plan with attention is not: that
// compiles a kernel (seconds), and its workspace is the configuration's. Where the program's cuDNN does not answer without a device, a search
// finds one engine with the workspace that attention was seen to take; any other operation is named in the record. The numbers are cuDNN's
// published enumerations.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dry/card_workspace.h"
#include "dry/library/public.h"
#include "dry/library/real_cudnn.h"
#include "dry/library/torch.h"
#include "dry/library/tries.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

enum Type {  // types of descriptors
  engine = 2,
  engine_config = 3,
  engine_search = 4,
  plan = 5,
  knob_choice = 7,
  convolution_forward = 10,
  convolution_backward_filter = 11,
  convolution_backward_data = 12,
  graph = 15,
  matmul = 19,
  norm_forward = 29,
  norm_backward = 30,
  attention_forward = 41,
  attention_backward = 43
};

enum Attribute {
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_padding = 105,
  search_mode = 200,
  search_graph = 201,
  search_results = 202,
  search_card = 204,
  config_engine = 300,
  config_knobs = 302,
  config_workspace = 303,
  config_shared = 304,
  plan_config = 401,
  plan_workspace = 402,
  plan_card = 407,
  knob_type = 600,
  knob_value = 601,
  forward_how = 702,
  forward_filter = 703,
  forward_input = 704,
  forward_output = 705,
  data_how = 708,
  data_filter = 709,
  data_input = 710,
  data_output = 711,
  filter_how = 714,
  filter_filter = 715,
  filter_input = 716,
  filter_output = 717,
  graph_operations = 801,
  tensor_type = 901,
  tensor_dims = 902,
  tensor_strides = 903,
  pack_workspace = 1003,
  engine_graph = 1300,
  engine_index = 1301,
  engine_notes = 1303,
  engine_card = 1307,
  pointwise_mode = 0,
  pointwise_of = 750,
  matmul_a = 1520,
  matmul_b = 1521,
  forward_q = 2800,
  forward_k = 2801,
  backward_q = 2851,
  backward_k = 2852
};

enum Knob { knob_tile_size = 2, knob_tile_k = 13, knob_workspace = 25, knob_cluster_m = 27, knob_cluster_n = 28 };

constexpr int of_handles = 0, of_sizes = 3, of_knobs = 9, of_notes = 11, of_descriptors = 15;
std::size_t bytes_of(int attribute_type) {
  switch (attribute_type) {
    case 0:
    case 3:
    case 5:
    case 6:
    case of_descriptors: return 8;  // handle, int64, double, pointer
    case 2:
    case 24: return 1;   // boolean, char
    case 26: return 16;  // fraction
    default: return 4;
  }
}

struct Convolved {
  ConvolutionPass pass = ConvolutionPass::forward;
  std::vector<std::int64_t> filter, input, output;
  std::uint64_t element_bytes = 4;
  bool channels_innermost = false, dilated = false;
  std::vector<std::int64_t> strides, padding;

  ConvolutionShape shape() const { return {pass, filter, input, output, element_bytes, channels_innermost, dilated, strides, padding}; }
};

struct Work {
  const char* name = "cuDNN graph";
  bool attention = false, workspace_known = false;
  AttentionShape shape;
  ProductShape product;               // a convolution's
  std::vector<std::uint64_t> turned;  // bytes of its tensors whose channels are not innermost: kernels of tensor cores need them so
  std::int64_t workspace_bytes = 0;
  Convolved convolved;                    // its filter is empty: it is no convolution
  bool alone = false;                     // its graph has no other operation
  std::optional<WorkspaceRange> on_card;  // a plan's of a convolution
  std::shared_ptr<Tries> tries;           // a graph's, where PyTorch chooses by trying
  bool by_heuristics = false;             // a list's
  int listed_at = -1, number = -1;        // an entry of that list; a plan that is one of several
  WorkspaceRange own;                     // such a plan's
};

// A program destroys a descriptor as soon as another has taken it: those that took it keep it.
struct Descriptor : std::enable_shared_from_this<Descriptor> {
  struct Value {
    std::int64_t count = 0;
    std::vector<char> bytes;
    std::vector<std::shared_ptr<Descriptor>> parts;
  };
  explicit Descriptor(int which) : type(which) {
    if (real_cudnn()) real_cudnn()->create(type, &real);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (real) real_cudnn()->destroy(real);
  }

  const int type;
  std::map<int, Value> values;
  Work work;
  void* real = nullptr;              // in the program's libcudnn; null: it is answered from here
  std::shared_ptr<Descriptor> self;  // until the program destroys it

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto at = values.find(attribute);
    if (at == values.end()) return {};
    std::vector<T> out(at->second.bytes.size() / sizeof(T));
    std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  std::span<const std::shared_ptr<Descriptor>> parts(int attribute) const {
    const auto at = values.find(attribute);
    if (at == values.end()) return {};
    return at->second.parts;
  }
  Descriptor* one(int attribute) const {
    const auto v = parts(attribute);
    return v.empty() ? nullptr : v[0].get();
  }
};

const char* name_of_operation(int type) {
  switch (type) {
    case convolution_forward: return "cuDNN convolution, forward";
    case convolution_backward_filter: return "cuDNN convolution, backward of the filter";
    case convolution_backward_data: return "cuDNN convolution, backward of the data";
    case norm_forward: return "cuDNN norm, forward";
    case norm_backward: return "cuDNN norm, backward";
    default: return nullptr;
  }
}

struct Convolution {
  const Descriptor *how, *filter, *input, *output;  // null: not told
};
Convolution convolution_of(const Descriptor& op) {
  const bool forward = op.type == convolution_forward, data = op.type == convolution_backward_data;
  return {op.one(forward ? forward_how
                 : data  ? data_how
                         : filter_how),
          op.one(forward ? forward_filter
                 : data  ? data_filter
                         : filter_filter),
          op.one(forward ? forward_input
                 : data  ? data_input
                         : filter_input),
          op.one(forward ? forward_output
                 : data  ? data_output
                         : filter_output)};
}

constexpr int cudnn_half = 2, cudnn_brain = 9;
int type_of(const Descriptor* tensor) {
  const auto type = tensor ? tensor->all<int>(tensor_type) : std::vector<int>{};
  return type.empty() ? 0 : type[0];
}

std::vector<std::int64_t> dims_of(const Descriptor* tensor) {
  return tensor ? tensor->all<std::int64_t>(tensor_dims) : std::vector<std::int64_t>{};
}

std::uint64_t element_bytes_of(const Descriptor* tensor) { return type_of(tensor) == cudnn_brain || type_of(tensor) == cudnn_half ? 2 : 4; }

Convolved convolved_of(const Convolution& c, int type) {
  const auto strides = c.input ? c.input->all<std::int64_t>(tensor_strides) : std::vector<std::int64_t>{};
  const auto dilations = c.how ? c.how->all<std::int64_t>(convolution_dilations) : std::vector<std::int64_t>{};
  return {.pass = type == convolution_forward         ? ConvolutionPass::forward
                  : type == convolution_backward_data ? ConvolutionPass::data
                                                      : ConvolutionPass::weight,
          .filter = dims_of(c.filter),
          .input = dims_of(c.input),
          .output = dims_of(c.output),
          .element_bytes = element_bytes_of(c.filter),
          .channels_innermost = strides.size() < 3 || strides[1] == 1,
          .dilated = std::ranges::any_of(dilations, [](std::int64_t d) { return d > 1; }),
          .strides = c.how ? c.how->all<std::int64_t>(convolution_strides) : std::vector<std::int64_t>{},
          .padding = c.how ? c.how->all<std::int64_t>(convolution_padding) : std::vector<std::int64_t>{}};
}

// A convolution is a product: as many rows as its output has places, as many columns as it has channels. That of FP32 is tf32, as PyTorch has it
// unless it is told otherwise.
ProductShape product_of(const Convolution& c) {
  constexpr int cuda_half = 2, cuda_brain = 14, fast_tf32 = 77;
  const auto filter = dims_of(c.filter), input = dims_of(c.input), output = dims_of(c.output);
  if (filter.size() < 3 || input.size() < 3 || output.size() < 3 || filter[1] == 0) return {};
  const std::int64_t groups = std::max<std::int64_t>(input[1] / filter[1], 1);
  ProductShape p{.m = output[0], .n = filter[0] / groups, .k = filter[1], .batch = groups};
  for (std::size_t i = 2; i < output.size(); ++i) p.m *= output[i];
  for (std::size_t i = 2; i < filter.size(); ++i) p.k *= filter[i];
  const int type = type_of(c.filter);
  p.type_a = p.type_b = p.type_c = type == cudnn_brain ? cuda_brain : type == cudnn_half ? cuda_half : 0;
  p.compute = fast_tf32;
  return p;
}

std::vector<std::uint64_t> turned_of(const Convolution& c) {
  std::vector<std::uint64_t> bytes;
  for (const Descriptor* tensor : {c.input, c.filter, c.output}) {
    const auto dims = dims_of(tensor);
    const auto strides = tensor ? tensor->all<std::int64_t>(tensor_strides) : std::vector<std::int64_t>{};
    if (dims.size() < 3 || strides.size() != dims.size() || strides[1] == 1) continue;
    std::uint64_t n = element_bytes_of(tensor);
    for (const std::int64_t d : dims) n *= std::uint64_t(std::max<std::int64_t>(d, 0));
    bytes.push_back(n);
  }
  return bytes;
}

// A mask by positions, as a causal one is, begins with numbering them.
bool tells_positions(const Descriptor& op) {
  constexpr int number_positions = 501;
  const Descriptor* const how = op.one(pointwise_of);
  const auto mode = how ? how->all<int>(pointwise_mode) : std::vector<int>{};
  return !mode.empty() && mode[0] == number_positions;
}

template <class T>
std::optional<T> told(void* of, int attribute, int type) {
  std::int64_t count = 0;
  T value{};
  if (real_cudnn()->get(of, attribute, type, 1, &count, &value) != ok || count != 1) return std::nullopt;
  return value;
}

// A descriptor of the program's libcudnn that is filled here.
class RealDescriptor {
 public:
  explicit RealDescriptor(int type) { real_cudnn()->create(type, &at); }
  RealDescriptor(const RealDescriptor&) = delete;
  RealDescriptor& operator=(const RealDescriptor&) = delete;
  ~RealDescriptor() {
    if (at) real_cudnn()->destroy(at);
  }
  void* at = nullptr;
};

// Whether an engine multiplies in tensor cores. In FP32 it does unless the program has not allowed tf32.
bool by_tensor_cores(void* engine) {
  constexpr int note_of_tensor_cores = 0;
  std::int64_t count = 0;
  std::array<int, 16> notes{};
  if (real_cudnn()->get(engine, engine_notes, of_notes, std::int64_t(notes.size()), &count, notes.data()) != ok) return false;
  const auto end = notes.begin() + std::clamp<std::int64_t>(count, 0, std::int64_t(notes.size()));
  return std::find(notes.begin(), end, note_of_tensor_cores) != end;
}

EngineChoice choice_of(void* config, void* engine) {
  constexpr std::size_t most_knobs = 40;
  EngineChoice c{.engine = told<std::int64_t>(engine, engine_index, of_sizes).value_or(-1)};
  std::vector<std::unique_ptr<RealDescriptor>> kept;
  std::vector<void*> to;
  for (std::size_t i = 0; i < most_knobs; ++i) to.push_back(kept.emplace_back(std::make_unique<RealDescriptor>(knob_choice))->at);
  std::int64_t count = 0;
  if (real_cudnn()->get(config, config_knobs, of_descriptors, most_knobs, &count, to.data()) != ok) return c;
  const std::pair<int, std::int64_t EngineChoice::*> read[] = {{knob_tile_size, &EngineChoice::tile_size},
                                                               {knob_tile_k, &EngineChoice::tile_k},
                                                               {knob_workspace, &EngineChoice::workspace},
                                                               {knob_cluster_m, &EngineChoice::cluster_m},
                                                               {knob_cluster_n, &EngineChoice::cluster_n}};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, most_knobs); ++i) {
    const auto which = told<int>(to[std::size_t(i)], knob_type, of_knobs);
    const auto value = told<std::int64_t>(to[std::size_t(i)], knob_value, of_sizes);
    for (const auto& [knob, member] : read)
      if (which == knob && value) c.*member = *value;
  }
  return c;
}

// What a card takes was seen on cards of one kind, with one cuDNN.
bool cards_were_asked() { return card().sm == 90 && card().units == units_of_an_h200 && cudnn_version() / 100 == 919; }

std::uint64_t bytes_of_copies(const Work& w) {
  std::uint64_t copies = 0;
  for (const std::uint64_t bytes : w.turned) copies += bytes;
  return copies;
}

// A configuration's engine.
class EngineOf {
 public:
  explicit EngineOf(void* config) {
    std::int64_t count = 0;
    if (real_cudnn()->get(config, config_engine, of_descriptors, 1, &count, &engine_.at) == ok) found_ = true;
  }
  explicit operator bool() const { return found_; }
  void* at() const { return engine_.at; }

 private:
  RealDescriptor engine_{engine};
  bool found_ = false;
};

std::optional<WorkspaceRange> workspace_of_plan(Descriptor& made) {
  Work& w = made.work;
  const auto said = told<std::int64_t>(made.real, plan_workspace, of_sizes);
  if (w.convolved.filter.empty() || !said || *said < 0) return std::nullopt;
  const ConvolutionShape shape = w.convolved.shape();
  void* const config = made.one(plan_config)->real;
  const EngineOf engine_of(config);
  const bool known = cards_were_asked() && engine_of;
  if (!w.tries || !torch_tries_convolutions()) {
    if (!known) return unknown_workspace(shape, std::uint64_t(*said));
    return workspace_on_card(shape, choice_of(config, engine_of.at()), by_tensor_cores(engine_of.at()), bytes_of_copies(w),
                             std::uint64_t(*said));
  }
  w.own = known ? workspace_of_listed(shape, choice_of(config, engine_of.at()), bytes_of_copies(w), std::uint64_t(*said))
                : unknown_workspace(shape, std::uint64_t(*said));
  if (known) tell_tries_are_known();
  WorkspaceRange room = w.own;
  w.number = w.tries->made(shape, w.listed_at, w.alone, room);
  if (w.number == 0) w.own = room;
  return room;
}

// What PyTorch is told of a list, the best first.
void note_listed(const Descriptor& search, std::span<Descriptor* const> entries) {
  const bool first = search.work.by_heuristics && search.work.tries && search.work.tries->listed.empty() && torch_tries_convolutions();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i]->work.listed_at = search.work.by_heuristics ? int(i) : -1;
    if (!first) continue;
    const EngineOf engine_of(entries[i]->real);
    if (engine_of)
      search.work.tries->listed.push_back(
          {told<std::int64_t>(engine_of.at(), engine_index, of_sizes).value_or(-1), by_tensor_cores(engine_of.at())});
  }
}

// Attention is an operation of its own, or two products (four more when backward) around a softmax.
Work work_of(const Descriptor* of) {
  Work w;
  int products = 0;
  const Descriptor *q = nullptr, *k = nullptr;
  if (!of) return w;
  w.tries = of->work.tries;
  w.alone = of->parts(graph_operations).size() == 1;
  for (const auto& op : of->parts(graph_operations)) {
    if (!op) continue;
    if (const char* const name = name_of_operation(op->type)) w.name = name;
    if (op->type >= convolution_forward && op->type <= convolution_backward_data) {
      const Convolution c = convolution_of(*op);
      w.product = product_of(c);
      w.turned = turned_of(c);
      w.convolved = convolved_of(c, op->type);
    }
    if (op->type == matmul && products++ == 0) {
      q = op->one(matmul_a);
      k = op->one(matmul_b);
    }
    if (op->type == attention_forward) {
      q = op->one(forward_q);
      k = op->one(forward_k);
    }
    if (op->type == attention_backward) {
      q = op->one(backward_q);
      k = op->one(backward_k);
      w.shape.backward = true;
    }
  }
  if (!q || !k) return w;
  w.shape.masked = std::ranges::any_of(of->parts(graph_operations), [](const auto& op) { return op && tells_positions(*op); });
  const auto a = q->all<std::int64_t>(tensor_dims), b = k->all<std::int64_t>(tensor_dims);
  if (a.size() != 4 || b.size() != 4) return w;
  w.attention = true;
  w.shape.backward |= products > 2;
  w.name = w.shape.backward ? "cuDNN attention, backward" : "cuDNN attention";
  w.shape.batch = a[0];
  w.shape.heads = a[1];
  w.shape.len_q = a[2];
  w.shape.len_k = products ? b[3] : b[2];  // a product's right side is transposed
  w.shape.head_dim = a[3];
  w.shape.kv_heads = b[1];
  if (const auto type = q->all<int>(tensor_type); !type.empty()) w.shape.type = type[0];
  w.workspace_known = true;
  w.workspace_bytes = 256;  // either way, of every shape that was measured on an H200 with cuDNN 9.19
  return w;
}

struct Handle {
  StreamHandle stream = nullptr;
};

int answer(std::int64_t number, std::int64_t* count, void* to) {
  if (count) *count = 1;
  if (to) std::memcpy(to, &number, sizeof number);
  return ok;
}

}  // namespace

extern "C" {
int cudnnCreate(Handle** out) {
  *out = new Handle;
  return ok;
}
int cudnnDestroy(Handle* h) {
  delete h;
  return ok;
}
int cudnnSetStream(Handle* h, StreamHandle s) {
  h->stream = s;
  return ok;
}
int cudnnGetStream(const Handle* h, StreamHandle* s) {
  *s = h->stream;
  return ok;
}

int cudnnBackendCreateDescriptor(int type, Descriptor** out) {
  const auto d = std::make_shared<Descriptor>(type);
  d->self = d;
  *out = d.get();
  return ok;
}
int cudnnBackendInitialize(Descriptor*) { return ok; }
int cudnnBackendDestroyDescriptor(Descriptor* d) {
  if (d) d->self.reset();  // others may still keep it
  return ok;
}
int cudnnBackendSetAttribute(Descriptor* d, int attribute, int type, std::int64_t count, const void* from) {
  const char* const bytes = static_cast<const char*>(from);
  Descriptor::Value& v = d->values[attribute];
  v.count = count;
  if (bytes && type != of_descriptors) v.bytes.assign(bytes, bytes + std::size_t(count) * bytes_of(type));
  std::vector<void*> real;
  if (type == of_descriptors) {
    v.parts.clear();
    for (Descriptor* const part : std::span(static_cast<Descriptor* const*>(from), from ? std::size_t(count) : 0)) {
      v.parts.push_back(part ? part->shared_from_this() : nullptr);
      real.push_back(part ? part->real : nullptr);
    }
  }
  if (!d->real || type == of_handles) return ok;
  if (type != of_descriptors) return real_cudnn()->set(d->real, attribute, type, count, from);
  return real_cudnn()->set(d->real, attribute, type, count, real.data());
}
int cudnnBackendFinalize(Descriptor* d) {
  const auto take_from = [&](int attribute) {
    if (const Descriptor* const from = d->one(attribute)) d->work = from->work;
  };
  if (d->type == graph) d->work.tries = std::make_shared<Tries>();
  if (d->type == engine_search) {
    constexpr int fallback = 2;
    d->work = work_of(d->one(search_graph));
    const auto mode = d->all<int>(search_mode);
    d->work.by_heuristics = !mode.empty() && mode[0] != fallback;
  }
  if (d->type == engine) d->work = work_of(d->one(engine_graph));
  if (d->type == engine_config) take_from(config_engine);
  if (d->type == plan) take_from(plan_config);
  if (!d->real && d->type == plan && !d->work.convolved.filter.empty())
    d->work.on_card = unasked_workspace(d->work.convolved.shape(), bytes_of_copies(d->work));
  if (!d->real) return ok;
  if (d->type == plan && d->work.attention) return ok;
  const int card = d->type == engine_search ? search_card : d->type == engine ? engine_card : d->type == plan ? plan_card : 0;
  if (card != 0) real_cudnn()->set(d->real, card, of_descriptors, 1, &real_cudnn()->card);
  const int done = real_cudnn()->finalize(d->real);
  if (d->type == plan && done == ok) d->work.on_card = workspace_of_plan(*d);
  return done;
}
int cudnnBackendGetAttribute(Descriptor* d, int attribute, int type, std::int64_t room, std::int64_t* count, void* to) {
  if (d->real && type == of_descriptors) {  // the caller brings the descriptors that are filled
    std::vector<void*> real;
    for (std::int64_t i = 0; to && i < room; ++i) {
      Descriptor* const part = static_cast<Descriptor**>(to)[i];
      part->work = d->work;
      real.push_back(part->real);
    }
    std::int64_t filled = 0;
    const int done = real_cudnn()->get(d->real, attribute, type, room, &filled, to ? real.data() : nullptr);
    if (count) *count = filled;
    if (done == ok && to && attribute == search_results)
      note_listed(*d, std::span(static_cast<Descriptor* const*>(to), std::size_t(std::clamp<std::int64_t>(filled, 0, room))));
    return done;
  }
  if (d->real && d->type == plan && d->work.attention && attribute == plan_workspace)
    return real_cudnn()->get(d->one(plan_config)->real, config_workspace, type, room, count, to);
  if (d->type == plan && d->work.on_card && attribute == plan_workspace) return answer(std::int64_t(d->work.on_card->likely), count, to);
  if (d->real) return real_cudnn()->get(d->real, attribute, type, room, count, to);
  std::int64_t none;
  std::int64_t& n = count ? *count : none;
  n = 0;
  switch (attribute) {
    case search_results:
    case config_engine:  // the caller brings the descriptor that is filled
      n = 1;
      if (room > 0 && to) (*static_cast<Descriptor**>(to))->work = d->work;
      break;
    case plan_workspace:
    case config_workspace: return answer(d->work.workspace_bytes, count, to);
    case engine_index:
      n = 1;
      if (to) std::memset(to, 0, sizeof(std::int64_t));
      break;
    case config_shared:
      n = 1;
      if (to) std::memset(to, 0, sizeof(std::int32_t));
      break;
    default:
      if (const auto at = d->values.find(attribute); at != d->values.end()) {
        n = at->second.count;
        if (to && type != of_descriptors)
          std::memcpy(to, at->second.bytes.data(), std::min(at->second.bytes.size(), std::size_t(room) * bytes_of(type)));
      }
  }
  return ok;
}
int cudnnBackendExecute(const Handle* h, Descriptor* p, const Descriptor* pack) {
  const Work& w = p->work;
  if (!p->real && !w.workspace_known && !w.on_card) {
    note(Said::no_workspace, w.name);
    say("workspace unknown:", w.name);
  }
  std::int64_t workspace = 0;
  cudnnBackendGetAttribute(p, plan_workspace, 3, 1, nullptr, &workspace);
  const auto at = pack ? pack->all<const void*>(pack_workspace) : std::vector<const void*>{};
  std::optional<WorkspaceRange> range = w.on_card;
  bool tell = true, trying = false;
  if (w.number >= 0) {
    trying = w.tries->runs(w.number, w.own);
    range = trying ? w.tries->all() : w.tries->kept(std::uint64_t(workspace));
    tell = !trying || w.tries->first_told();
    constexpr double behind_s = 0.05;  // the first is the fastest, and all together take about as long as on a card, which needs 0.3 to 1 s
    if (trying && w.number > 0) occupied(h->stream, behind_s);
  }
  if (range && tell && !range->certain()) {
    note(p->real ? Said::by_library : Said::by_another_version, "cuDNN convolutions", unsure_bytes(*range));
    if (!at.empty() && at[0]) tell_workspace(at[0], *range, trying ? w.tries->least_if_all_are_listed() : range->least);
  }
  static KernelName& turning = *new KernelName("cudnn::engines_precompiled::nchwToNhwcKernel");
  for (const std::uint64_t bytes : w.turned) launched(turning, {unsigned(bytes / 2048 + 1), 1, 1}, {256, 1, 1}, 0, h->stream, 2 * bytes);
  if (w.attention)
    attended(w.name, h->stream, w.shape, workspace);
  else
    multiplied(w.name, h->stream, w.product);
  return ok;
}

// PyTorch compares it with the version that it was built for.
int cudnnGetProperty(int which, int* out) {
  const int version = cudnn_version();
  *out = which == 0 ? version / 10000 : which == 1 ? version / 100 % 100 : version % 100;
  return ok;
}
}
