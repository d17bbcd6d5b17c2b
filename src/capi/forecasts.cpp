// Forecasts for programs: a request in JSON, an answer in JSON. What is asked is read into described settings, those of the studies or
// ForecastAsked below.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/threads.h"
#include "capi/edge.h"
#include "capi/request.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "gpu/device.h"
#include "report/render.h"
#include "studies/memory/model.h"
#include "studies/memory/room.h"
#include "studies/memory/standing.h"
#include "studies/plan/plan.h"

using namespace headroom;
using namespace headroom::capi;
using Json = nlohmann::ordered_json;

namespace {

// Keys and words of answers: what people read (name_of) may change, these do not.
constexpr std::array<std::string_view, phase_count> phase_words = {"input", "parameter", "gradient", "optimizer",
                                                                   "saved", "forward",   "backward", "workspace"};
constexpr std::string_view word_of(Phase p) { return phase_words[std::size_t(p)]; }
static_assert(word_of(Phase::input) == "input" && word_of(Phase::saved) == "saved" && word_of(Phase::workspace) == "workspace");

struct ForecastAsked {
  std::int64_t batch = 1, len = 1024, micro_batches = 1;
  std::vector<std::int64_t> documents{};
  engine::Levers levers{};
  engine::Ranks ranks{};
  std::optional<std::uint64_t> memory_bytes;
  bool timeline = true;
};
void describe(Of<ForecastAsked> auto& a, auto&& f) {
  f(a.batch, {.name = "batch", .about = "Sequences of a rank's step; micro-batches divide it", .allowed = {1, 1 << 30}});
  f(a.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(a.micro_batches, {.name = "micro_batches", .about = "Whose gradients add up to a step", .allowed = {1, 4096}});
  f(a.documents, {.name = "documents", .about = "Lengths of documents, packed into each row in place of len", .allowed = {0, 1 << 30}});
  describe(a.levers, [&](auto& member, Description d) {
    if (std::string_view(d.name) == "attention") d.choices = nullptr;  // a variant too
    f(member, d);
  });
  describe(a.ranks, [&](auto& member, Description d) {
    if (!*d.about) d.about = "Ranks that take the step together; the forecast is of one";
    f(member, d);
  });
  f(a.memory_bytes, studies::memory_limit);
  f(a.timeline, {.name = "timeline", .about = "Every allocation and its end are part of the answer"});
}

engine::Decoder model_of(Request& r) {
  const Json& m = r.need("model", "a preset's name, a file, or an object of its fields");
  if (m.is_object()) return engine::model_from_json(m.dump(), "given");
  check(m.is_string(), Code::bad_argument, "model is {}: a preset's name, a file, or an object of its fields", m.dump());
  return engine::model_described(m.get<std::string>());
}

Device device_of(Request& r, const std::string& otherwise) {
  const Json* given = r.find("device");
  check(!given || given->is_string(), Code::bad_argument, "device is {}, it must be a word", given ? given->dump() : "");
  const std::string name = given ? given->get<std::string>() : otherwise;
  check(!given || !name.empty(), Code::bad_argument, "device is empty (an unset variable?); name a machine or leave it out");
  if (name == "cpu") return cpu_device();
  if (name.empty()) return cuda_by_default() ? cuda_device(0) : cpu_device();
  if (name == "cuda") return cuda_device(0);
  if (name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 && name.find_first_not_of("0123456789", 5) == std::string::npos)
    return cuda_device(std::stoi(name.substr(5)));
  return device_described(name);
}

int workers_of(const Device& d, int ranks) { return d.kind == DeviceKind::cpu ? std::max(1, available_cores() / ranks) : 1; }

void hand_out(const Json& answer, char** out) {
  const std::string text = escaped_in_json(text_of_json(answer));
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
}

// As --format json prints it.
Json answer_from(const Record& r) {
  Json out = {{"version", json_version}};
  out.update(parse_json<Json>(render_json(r), "the answer"));
  return out;
}

Json components_of(const engine::Forecast& f) {  // largest first
  auto all = studies::standing_by_name(f);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  Json out = Json::array();
  for (const studies::Standing& s : all) {
    Json shape = Json::array();
    for (int i = 0; i < s.first.shape.rank; ++i) shape.push_back(s.first.shape[i]);
    out.push_back({{"name", s.first.name.text},
                   {"phase", word_of(s.first.phase)},
                   {"dtype", name_of(s.first.dtype)},
                   {"shape", shape},
                   {"tensors", s.count},
                   {"bytes", s.bytes},
                   {"at_peak_bytes", s.at_peak}});
  }
  return out;
}

Json timeline_of(const engine::Forecast& f) {
  Json out = Json::array();
  for (const auto& event : f.events) {
    const Entry& e = f.entries[event.entry];
    out.push_back(
        {{"what", e.name.full()}, {"phase", word_of(e.phase)}, {"take", event.take}, {"bytes", e.taken}, {"live_bytes", event.live}});
  }
  return out;
}

engine::Recipe step_of(const ForecastAsked& a, engine::Decoder model, bool len_given) {
  check(a.batch % a.micro_batches == 0, Code::bad_argument, "batch {} cannot be shared out to {} micro-batches; make it a multiple",
        a.batch, a.micro_batches);
  check(a.documents.empty() || !len_given, Code::bad_argument, "documents fill a row: their lengths are its len; leave len out");
  const std::int64_t packed = std::accumulate(a.documents.begin(), a.documents.end(), std::int64_t(0));
  check(a.documents.empty() || packed > 0, Code::bad_argument, "documents have no token; give lengths above 0");
  check(a.ranks.count > 1 || (a.ranks.sharding == engine::Sharding::none && !a.ranks.split_tokens), Code::bad_argument,
        "{}: there is one rank; give ranks", a.ranks.split_tokens ? "split_tokens" : "shard");
  engine::Recipe recipe = engine::recipe_of(std::move(model), a.batch / a.micro_batches, packed > 0 ? packed : a.len, a.levers,
                                            engine::Purpose::training, a.ranks);
  recipe.micro_batches = int(a.micro_batches);
  recipe.documents = engine::packed_as(a.documents);
  engine::check(recipe);
  return recipe;
}

Json forecast_answer(Request& r) {
  ForecastAsked asked;
  engine::Decoder model = model_of(r);
  const Device device = device_of(r, "");
  asked.levers.precision = engine::usual_precision(device);
  describe(asked, r.reader());
  const bool len_given = r.find("len") != nullptr;
  r.done();
  studies::check_served(lists_of(asked.levers), device);
  engine::Recipe recipe = step_of(asked, std::move(model), len_given);
  const studies::Room room = studies::room_of(device, asked.memory_bytes, recipe.ranks.count);
  const int workers = workers_of(device, recipe.ranks.count);
  engine::find_keep(recipe, room.for_peak(), device, workers);  // auto

  const engine::Forecast f = engine::forecast(recipe, device, workers);
  const auto peak_of = [&](engine::Purpose purpose) {
    engine::Recipe part = recipe;
    part.purpose = purpose;
    return engine::forecast_peak(part, device, workers);
  };
  Json phases = Json::object();
  for (int p = 0; p < phase_count; ++p) phases[std::string(word_of(Phase(p)))] = f.bytes_at_peak(Phase(p));
  Json settings = {{"micro_batches", asked.micro_batches}, {"documents", asked.documents}};
  const auto add_setting = [&](const auto& member, const Description& d) { settings[d.name] = json_of_member(member); };
  describe(asked.levers, add_setting);
  describe(asked.ranks, add_setting);
  Json out = {{"version", json_version},
              {"schema_version", json_schema_version},
              {"model", recipe.model.name},
              {"config", parse_json<Json>(engine::to_json(recipe.model), "the model")},
              {"params", engine::param_count(recipe.model)},
              {"batch", asked.batch},
              {"micro_batches", asked.micro_batches},
              {"len", recipe.len},
              {"settings", settings},
              {"device", device.name},
              {"memory_bytes", room.memory_bytes},
              {"peak_bytes", f.peak_bytes},
              {"standing_bytes", f.standing_bytes},
              {"forward_peak_bytes", peak_of(engine::Purpose::forward)},
              {"forward_backward_peak_bytes", peak_of(engine::Purpose::gradients)},
              {"overhead_bytes", room.overhead_bytes},
              {"fits", room.holds(f.peak_bytes, f.host_bytes)},
              {"flops", f.flops},
              {"model_flops", f.model_flops},
              {"traffic_bytes", f.bytes},
              {"host_bytes", f.host_bytes},
              {"ms_at_least", f.ms > 0 ? Json(f.ms) : Json()},
              {"ms", f.expected ? Json(f.expected->ms) : Json()},
              {"ms_low", f.expected ? Json(f.expected->low_ms) : Json()},
              {"ms_high", f.expected ? Json(f.expected->high_ms) : Json()},
              {"ms_by", f.expected ? f.expected->by : f.why_no_ms},
              {"at_peak_bytes", phases},
              {"components", components_of(f)}};
  if (asked.timeline) out["timeline"] = timeline_of(f);
  for (const auto& [key, value] : settings.items()) out[key] = value;  // beside the others, where callers of earlier versions read them
  out["kept"] = engine::kept_in_words(recipe);
  const std::vector<engine::Recipe> one{recipe};
  Json notes = Json::array();
  if (!room.words.empty()) notes.push_back(room.words);
  for (const std::string& said : {engine::counted_by(one, device), engine::in_words_of_fp8(one, device)})
    if (!said.empty()) notes.push_back(said);
  for (const std::string& what : recipe.model.not_counted) notes.push_back(fmt::format("Not in the forecast: {}.", what));
  out["notes"] = notes;
  return out;
}

Json plan_answer(Request& r) {
  studies::Plan p;
  p.model = model_of(r);
  p.device = device_of(r, "");
  describe(p, r.reader());
  r.done();
  p.workers = workers_of(p.device, p.gpus);
  const studies::Outcome outcome = studies::plan(p);
  Json out = answer_from(outcome.record);
  out["fits"] = outcome.answer == studies::Answer::yes;
  return out;
}

Json pytorch_answer(Request& r) {
  studies::ModelMemory m;
  m.model = model_of(r);
  m.whose = studies::Whose::pytorch;
  m.batches = {1};
  m.device = device_of(r, "h200");
  describe_cases(m, r.reader());
  const auto read = r.reader();
  describe_levers(m, [&](auto& member, const Description& d) {  // only levers that PyTorch has
    for (const std::string_view theirs : {"precision", "attention", "keep", "ranks", "shard"})
      if (d.name == theirs) read(member, d);
  });
  describe(m.as_pytorch, r.reader());
  r.done();
  return answer_from(studies::memory_model(m).record);
}

template <class Answer>
headroom_status answered(const char* request, char** out, Answer answer) {
  return guard([&] {
    given(out, "answer") = nullptr;
    Request r(&given(request, "request"));
    hand_out(answer(r), out);
  });
}

}  // namespace

headroom_status headroom_forecast(const char* request, char** answer) { return answered(request, answer, forecast_answer); }
headroom_status headroom_plan(const char* request, char** answer) { return answered(request, answer, plan_answer); }
headroom_status headroom_memory_as_pytorch(const char* request, char** answer) { return answered(request, answer, pytorch_answer); }
void headroom_text_free(char* text) { std::free(text); }
