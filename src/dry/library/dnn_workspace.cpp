#include "dry/library/dnn_workspace.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dry/library/dnn_numbers.h"
#include "dry/library/torch.h"
#include "dry/library/world.h"

namespace headroom::dry::dnn {
namespace {

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

// Whether a note is among those that cuDNN has on an engine.
bool has_note(void* engine, int notes_of, int type, int note) {
  std::int64_t count = 0;
  std::array<int, 16> notes{};
  if (real_cudnn()->get(engine, notes_of, type, std::int64_t(notes.size()), &count, notes.data()) != ok) return false;
  const auto end = notes.begin() + std::clamp<std::int64_t>(count, 0, std::int64_t(notes.size()));
  return std::find(notes.begin(), end, note) != end;
}

// Whether an engine multiplies in tensor cores. In FP32 it does unless the program has not allowed tf32.
bool by_tensor_cores(void* engine) {
  constexpr int note_of_tensor_cores = 0;
  return has_note(engine, engine_notes, of_notes, note_of_tensor_cores);
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

}  // namespace

std::uint64_t bytes_of_copies(const Work& w) {
  std::uint64_t copies = 0;
  for (const std::uint64_t bytes : w.turned) copies += bytes;
  return copies;
}

bool is_compiled_for_its_shape(const Descriptor& made) {
  constexpr int note_of_compilation = 0;
  const Descriptor* const config = made.one(plan_config);
  if (made.work.convolved.filter.empty() || !config) return false;
  const EngineOf engine_of(config->real);
  return engine_of && has_note(engine_of.at(), engine_behaviors, of_behaviors, note_of_compilation);
}

std::optional<WorkspaceRange> workspace_of_plan(Descriptor& made) {
  Work& w = made.work;
  void* const config = made.one(plan_config)->real;
  const auto said =
      made.left_unmade ? told<std::int64_t>(config, config_workspace, of_sizes) : told<std::int64_t>(made.real, plan_workspace, of_sizes);
  if (w.convolved.filter.empty() || !said || *said < 0) return std::nullopt;
  const ConvolutionShape shape = w.convolved.shape();
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

}  // namespace headroom::dry::dnn
