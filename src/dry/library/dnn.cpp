// cuDNN's graphs. A descriptor keeps what it is given; the search for engines finds one, and its plan asks for the workspace that the operation
// was seen to take on a card. Where that is not known (convolutions, norms) the record says so, by name. The numbers are cuDNN's
// published enumerations.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "dry/library/public.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

enum Type {  // of descriptors
  engine = 2,
  engine_config = 3,
  engine_search = 4,
  plan = 5,
  convolution_forward = 10,
  convolution_backward_filter = 11,
  convolution_backward_data = 12,
  graph = 15,
  matmul = 19,
  norm_forward = 32,
  norm_backward = 33,
  attention_forward = 41,
  attention_backward = 43
};

enum Attribute {
  search_graph = 201,
  search_results = 202,
  config_engine = 300,
  config_workspace = 303,
  config_shared = 304,
  plan_config = 401,
  plan_workspace = 402,
  graph_operations = 801,
  tensor_type = 901,
  tensor_dims = 902,
  engine_graph = 1300,
  engine_index = 1301,
  matmul_a = 1520,
  matmul_b = 1521,
  forward_q = 2800,
  forward_k = 2801,
  backward_q = 2851,
  backward_k = 2852
};

constexpr int of_descriptors = 15;
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

struct Work {
  const char* name = "cuDNN graph";
  bool attention = false, workspace_known = false;
  AttentionShape shape;
  std::int64_t workspace_bytes = 0;
};

struct Descriptor {
  struct Value {
    std::int64_t count;
    std::vector<char> bytes;
  };
  int type;
  std::map<int, Value> values;
  Work work;

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto at = values.find(attribute);
    if (at == values.end()) return {};
    std::vector<T> out(at->second.bytes.size() / sizeof(T));
    std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  const Descriptor* one(int attribute) const {
    const auto v = all<const Descriptor*>(attribute);
    return v.empty() ? nullptr : v[0];
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

// Attention is an operation of its own, or two products (four more when backward) around a softmax.
Work work_of(const Descriptor* of) {
  Work w;
  int products = 0;
  const Descriptor *q = nullptr, *k = nullptr;
  for (const Descriptor* op : of ? of->all<const Descriptor*>(graph_operations) : std::vector<const Descriptor*>{}) {
    if (const char* const name = name_of_operation(op->type)) w.name = name;
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
  // Seen on an H200 with cuDNN 9.19: forward takes nothing, backward fits one of PyTorch's smallest blocks.
  w.workspace_known = true;
  w.workspace_bytes = w.shape.backward ? 512 : 0;
  return w;
}

struct Handle {
  StreamHandle stream = nullptr;
};

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
  *out = new Descriptor{type, {}, {}};
  return ok;
}
int cudnnBackendInitialize(Descriptor*) { return ok; }
int cudnnBackendDestroyDescriptor(Descriptor* d) {
  delete d;
  return ok;
}
int cudnnBackendSetAttribute(Descriptor* d, int attribute, int type, std::int64_t count, const void* from) {
  const char* const bytes = static_cast<const char*>(from);
  Descriptor::Value& v = d->values[attribute];
  v.count = count;
  if (bytes) v.bytes.assign(bytes, bytes + std::size_t(count) * bytes_of(type));
  return ok;
}
int cudnnBackendFinalize(Descriptor* d) {
  const auto take_from = [&](int attribute) {
    if (const Descriptor* const from = d->one(attribute)) d->work = from->work;
  };
  if (d->type == engine_search) d->work = work_of(d->one(search_graph));
  if (d->type == engine) d->work = work_of(d->one(engine_graph));
  if (d->type == engine_config) take_from(config_engine);
  if (d->type == plan) take_from(plan_config);
  return ok;
}
int cudnnBackendGetAttribute(Descriptor* d, int attribute, int type, std::int64_t room, std::int64_t* count, void* to) {
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
    case config_workspace:
      n = 1;
      if (to) std::memcpy(to, &d->work.workspace_bytes, sizeof d->work.workspace_bytes);
      break;
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
int cudnnBackendExecute(const Handle* h, const Descriptor* p, const Descriptor*) {
  const Work& w = p->work;
  if (!w.workspace_known) {
    note(Said::no_workspace, w.name);
    say("workspace unknown:", w.name);
  }
  attended(w.name, h->stream, w.shape, w.workspace_bytes);
  return ok;
}
}
