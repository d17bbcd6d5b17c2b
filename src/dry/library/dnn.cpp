// cuDNN's graphs. PyTorch asks for the workspace of every plan and takes it from its allocator, so the answer has to be cuDNN's own: each call
// also goes to the program's libcudnn, with the card's description where it wants a device (real_cudnn.h). Handles stay here.
//
// A plan of convolutions is made for real, because PyTorch tries configurations until one succeeds. A plan is not made where that compiles a
// kernel (a second): one with attention, and one of a convolution whose engine says so, as those of depthwise ones do. Its workspace is the
// configuration's. Of 293 such plans of convolutions (cuDNN 9.19 and 9.26, seven cards) each could be made and had that workspace. Where the
// program's cuDNN does not answer without a device, a search finds one engine with the workspace that attention was seen to take; any other
// operation is named in the record. The numbers are cuDNN's published enumerations.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dry/library/beside.h"
#include "dry/library/dnn_descriptor.h"
#include "dry/library/dnn_graph.h"
#include "dry/library/dnn_numbers.h"
#include "dry/library/dnn_workspace.h"
#include "dry/library/real_cudnn.h"
#include "dry/library/torch.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;
using namespace headroom::dry::dnn;

namespace {

struct Handle {
  StreamHandle stream = nullptr;
};

// Makes the plan after all: the program asks it for more than its workspace.
int make_late(Descriptor& plan) {
  plan.left_unmade = false;
  return real_cudnn()->finalize(plan.real);
}

int answer(std::int64_t number, std::int64_t* count, void* to) {
  if (count) *count = 1;
  if (to) std::memcpy(to, &number, sizeof number);
  return ok;
}

}  // namespace

extern "C" {
int cudnnCreate(Handle** out) {
  takes_beside(Beside::dnn_or_attention, device());
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
  if (d->type == plan) d->left_unmade = d->work.attention || is_compiled_for_its_shape(*d);
  const int card = d->type == engine_search ? search_card : d->type == engine ? engine_card : d->type == plan ? plan_card : 0;
  if (card != 0) real_cudnn()->set(d->real, card, of_descriptors, 1, &real_cudnn()->card);
  const int done = d->left_unmade ? ok : real_cudnn()->finalize(d->real);
  if (d->type == plan && done == ok) d->work.on_card = workspace_of_plan(*d);
  return done;
}
int cudnnBackendGetAttribute(Descriptor* d, int attribute, int type, std::int64_t room, std::int64_t* count, void* to) {
  if (d->left_unmade && attribute != plan_workspace)
    if (const int made = make_late(*d); made != ok) return made;
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
  if (d->type == plan && d->work.on_card && attribute == plan_workspace) return answer(std::int64_t(d->work.on_card->likely), count, to);
  if (d->left_unmade && attribute == plan_workspace)
    return real_cudnn()->get(d->one(plan_config)->real, config_workspace, type, room, count, to);
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
