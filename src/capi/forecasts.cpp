// Forecasts for programs: a request in JSON, an answer in JSON. What is asked goes into the settings structs of the engine and the studies;
// every key that nobody knows is refused, so that a misspelt one does not become a default.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/described.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "capi/edge.h"
#include "engine/forecast.h"
#include "gpu/device.h"
#include "report/render.h"
#include "studies/memory/model_pytorch.h"
#include "studies/memory/room.h"
#include "studies/plan/plan.h"

using namespace headroom;
using namespace headroom::capi;
using Json = nlohmann::ordered_json;

namespace {

constexpr int json_version = 1;

// Keys and words of answers: what people read (name_of) may change, these do not.
constexpr std::array<std::string_view, phase_count> phase_words = {"input", "parameter", "gradient", "optimizer",
                                                                   "saved", "forward",   "backward", "workspace"};
constexpr std::string_view word_of(Phase p) { return phase_words[std::size_t(p)]; }
static_assert(word_of(Phase::input) == "input" && word_of(Phase::saved) == "saved" && word_of(Phase::workspace) == "workspace");

class Request {  // reads each key once; done() refuses what nobody read
 public:
  explicit Request(const char* text) : json_(parse_json<Json>(&given(text, "request"), "the request")) {
    check(json_.is_object(), Code::bad_argument, "the request is {}, it must be an object", json_.type_name());
    const auto version = integer("version", json_version);
    check(version == json_version, Code::unsupported, "the request has version {}, this library answers version {}", version, json_version);
  }

  bool has(const char* key) {
    known_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null();
  }
  const Json& at(const char* key) { return json_.at(key); }

  std::int64_t integer(const char* key, std::int64_t otherwise) { return has(key) ? integer_of(json_.at(key), key) : otherwise; }
  std::vector<std::int64_t> integers(const char* key, std::vector<std::int64_t> otherwise) {
    if (!has(key)) return otherwise;
    std::vector<std::int64_t> out;
    for (const Json& x : list(key)) out.push_back(integer_of(x, key));
    return out;
  }
  std::string text(const char* key, std::string otherwise) { return has(key) ? text_of(json_.at(key), key) : otherwise; }
  std::vector<std::string> texts(const char* key, std::vector<std::string> otherwise) {
    if (!has(key)) return otherwise;
    std::vector<std::string> out;
    for (const Json& x : list(key)) out.push_back(text_of(x, key));
    return out;
  }
  template <NamedEnum E>
  std::vector<E> some_of(const char* key, std::vector<E> otherwise) {
    if (!has(key)) return otherwise;
    std::vector<E> out;
    for (const std::string& word : texts(key, {})) out.push_back(value_named<E>(word, key));
    return out;
  }
  template <NamedEnum E>
  E one_of(const char* key, E otherwise) {
    return has(key) ? value_named<E>(text_of(json_.at(key), key), key) : otherwise;
  }

  void done() const {
    const std::vector<std::string> words(known_.begin(), known_.end());
    for (const auto& [key, value] : json_.items())
      check(known_.count(key) != 0, Code::bad_argument, "the request has a key '{}' that nobody reads; allowed are {}{}", key,
            joined(words), did_you_mean(key, words));
  }

 private:
  static std::int64_t integer_of(const Json& x, const char* key) {
    check(x.is_number_integer() && (!x.is_number_unsigned() || x.get<std::uint64_t>() < 1ull << 62), Code::bad_argument,
          "{} is {}, it must be a whole number", key, x.dump());
    return x.get<std::int64_t>();
  }
  static std::string text_of(const Json& x, const char* key) {
    check(x.is_string(), Code::bad_argument, "{} is {}, it must be a word", key, x.dump());
    return x.get<std::string>();
  }
  Json list(const char* key) {
    const Json& x = json_.at(key);
    check(!x.is_array() || !x.empty(), Code::bad_argument, "{} is an empty list", key);
    return x.is_array() ? x : Json::array({x});
  }

  Json json_;
  std::set<std::string> known_;
};

engine::ModelConfig model_of(Request& r) {
  check(r.has("model"), Code::bad_argument, "the request has no model: a preset's name, a file, or an object of its fields");
  const Json& m = r.at("model");
  if (m.is_object()) return engine::model_from_json(m.dump(), "given");
  check(m.is_string(), Code::bad_argument, "model is {}: a preset's name, a file, or an object of its fields", m.dump());
  return engine::model_described(m.get<std::string>());
}

Device device_of(Request& r, const char* otherwise) {
  const std::string name = r.text("device", otherwise);
  if (name == "cpu") return cpu_device();
  if (name.empty()) return cuda_device_count() > 0 ? cuda_device(0) : cpu_device();
  if (name == "cuda") return cuda_device(0);
  if (name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 && name.find_first_not_of("0123456789", 5) == std::string::npos)
    return cuda_device(std::stoi(name.substr(5)));
  return device_described(name);
}

Precision precision_of(const std::string& word) {
  static const std::vector<std::string> words = {"fp32", "tf32", "bf16", "fp16"};
  const auto p = precision_named(word);
  check(p && std::find(words.begin(), words.end(), word) != words.end(), Code::bad_argument,
        "precision: there is no '{}'; allowed are {}{}", word, joined(words), did_you_mean(word, words));
  return *p;
}
std::vector<Precision> precisions_of_words(const std::vector<std::string>& words) {
  std::vector<Precision> out;
  for (const auto& w : words) out.push_back(precision_of(w));
  return out;
}

std::optional<std::uint64_t> memory_of(Request& r) {
  if (!r.has("memory_bytes")) return {};
  const auto bytes = r.integer("memory_bytes", 0);
  check(bytes >= 0, Code::bad_argument, "memory_bytes is {}, it must be at least 0", bytes);
  return std::uint64_t(bytes);
}

void check_between(std::int64_t x, std::int64_t low, std::int64_t high, const char* key) {
  check(x >= low && x <= high, Code::bad_argument, "{} is {}, it must be {} to {}", key, x, low, high);
}

void hand_out(const Json& answer, char** out) {
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
}

Json answer_from(const Record& r) {  // as --format json prints it
  Json out = {{"version", json_version}};
  out.update(parse_json<Json>(render_json(r), "the answer"));
  return out;
}

struct Stood {  // tensors of one name, over all blocks
  Entry first;
  std::int64_t now = 0, count = 0;
  std::uint64_t now_bytes = 0, bytes = 0, at_peak = 0;
};

Json components_of(const engine::Forecast& f) {  // largest first; a tensor that comes and goes counts as often as it stood at once
  using Key = std::pair<Phase, std::string>;
  std::map<Key, Stood> all;
  const auto of = [&](const Entry& e) -> Stood& { return all.try_emplace({e.phase, e.name.text}, Stood{e}).first->second; };
  for (const auto& event : f.events) {
    const Entry& e = f.entries[event.entry];
    Stood& s = of(e);
    s.now += event.take ? 1 : -1;
    s.now_bytes = event.take ? s.now_bytes + e.taken : s.now_bytes - e.taken;
    if (s.now_bytes > s.bytes) s.bytes = s.now_bytes, s.count = s.now, s.first = e;
  }
  for (const Entry& e : f.at_peak) of(e).at_peak += e.taken;
  std::vector<std::pair<Key, Stood>> order(all.begin(), all.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  Json out = Json::array();
  for (const auto& [key, s] : order) {
    Json shape = Json::array();
    for (int i = 0; i < s.first.shape.rank; ++i) shape.push_back(s.first.shape[i]);
    out.push_back({{"name", key.second},
                   {"phase", word_of(key.first)},
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

Json forecast_answer(Request& r) {
  engine::Recipe recipe;
  recipe.model = model_of(r);
  recipe.batch = r.integer("batch", 1), recipe.len = r.integer("len", 1024);
  check_between(recipe.batch, 1, 1 << 30, "batch"), check_between(recipe.len, 1, 1 << 30, "len");
  const auto micro = r.integer("micro_batches", 1);
  check_between(micro, 1, 4096, "micro_batches");
  check(recipe.batch % micro == 0, Code::bad_argument, "batch {} cannot be shared out to {} micro-batches; make it a multiple",
        recipe.batch, micro);
  recipe.batch /= micro, recipe.micro_batches = int(micro);
  recipe.precision = precision_of(r.text("precision", "fp32"));
  recipe.keep = {r.one_of("keep", engine::Keep::everything)};
  recipe.attention = r.text("attention", "flash");
  recipe.holding.masters = r.one_of("masters", recipe.holding.masters);
  recipe.holding.updating = r.one_of("update", recipe.holding.updating);
  recipe.holding.gradients = r.one_of("gradients", recipe.holding.gradients);
  const Device device = device_of(r, "");
  const Room room = room_of(device, memory_of(r));
  const bool with_timeline = r.integer("timeline", 1) != 0;
  r.done();
  check(recipe.precision.math != Math::tf32 || device.kind != DeviceKind::cpu, Code::bad_argument,
        "precision tf32 needs a GPU, and its bytes are fp32's; use fp32, or name a GPU, present or not, as \"h200\"");
  const int workers = device.kind == DeviceKind::cpu ? available_cores() : 1;

  const engine::Forecast f = engine::forecast(recipe, device, workers);
  const auto peak_of = [&](engine::Purpose purpose) {
    engine::Recipe part = recipe;
    part.purpose = purpose;
    return engine::forecast_peak(part, device, workers);
  };
  const std::size_t stand_in = engine::stand_in_bytes(recipe, device);
  Json phases = Json::object();
  for (int p = 0; p < phase_count; ++p) phases[std::string(word_of(Phase(p)))] = f.bytes_at_peak(Phase(p));
  Json out = {{"version", json_version},
              {"model", recipe.model.name},
              {"config", parse_json<Json>(engine::to_json(recipe.model), "the model")},
              {"params", engine::param_count(recipe.model)},
              {"batch", recipe.batch * micro},
              {"micro_batches", micro},
              {"len", recipe.len},
              {"precision", name_of(recipe.precision)},
              {"keep", name_of(recipe.keep[0])},
              {"attention", recipe.attention},
              {"masters", name_of(recipe.holding.masters)},
              {"gradients", name_of(recipe.holding.gradients)},
              {"update", name_of(recipe.holding.updating)},
              {"device", device.name},
              {"memory_bytes", room.memory_bytes},
              {"peak_bytes", f.peak_bytes},
              {"standing_bytes", f.standing_bytes},
              {"forward_peak_bytes", peak_of(engine::Purpose::forward)},
              {"forward_backward_peak_bytes", peak_of(engine::Purpose::gradients)},
              {"overhead_bytes", room.overhead_bytes},
              {"stand_in_bytes", stand_in},
              {"fits", room.holds(f.peak_bytes + stand_in)},
              {"flops", f.flops},
              {"model_flops", f.model_flops},
              {"traffic_bytes", f.bytes},
              {"ms_at_least", f.ms > 0 ? Json(f.ms) : Json()},
              {"at_peak_bytes", phases},
              {"components", components_of(f)}};
  if (with_timeline) out["timeline"] = timeline_of(f);
  const std::vector<engine::Recipe> one{recipe};
  Json notes = Json::array();
  if (!room.words.empty()) notes.push_back(room.words);
  if (const std::string said = engine::counted_by(one, device); !said.empty()) notes.push_back(said);
  for (const std::string& what : recipe.model.left_out) notes.push_back(fmt::format("Not in the forecast: {}.", what));
  out["notes"] = notes;
  return out;
}

Json plan_answer(Request& r) {
  Plan p;
  p.model = model_of(r);
  p.batch = r.integer("batch", 4), p.len = r.integer("len", 1024);
  check_between(p.batch, 1, 4096, "batch"), check_between(p.len, 1, 1 << 30, "len");
  p.device = device_of(r, "");
  const bool gpu = p.device.kind == DeviceKind::cuda;
  p.memory_bytes = memory_of(r);
  const auto gpus = r.integer("gpus", 1), most = r.integer("most", 10);
  check_between(gpus, 1, gpu ? 4096 : 1, "gpus"), check_between(most, 1, 10000, "most");
  p.gpus = int(gpus), p.most = std::size_t(most);
  p.precisions = precisions_of_words(
      r.texts("precision", gpu ? std::vector<std::string>{"fp32", "tf32", "bf16"} : std::vector<std::string>{"fp32", "bf16"}));
  p.attentions = r.texts("attention", {"flash", "plain"});
  for (const auto& a : p.attentions)
    check(a == "flash" || a == "plain", Code::bad_argument, "attention: there is no '{}'; allowed are flash, plain", a);
  p.keeps = r.some_of("keep", p.keeps), p.masters = r.some_of("masters", p.masters);
  p.gradients = r.some_of("gradients", p.gradients), p.updates = r.some_of("update", p.updates);
  p.workers = gpu ? 1 : available_cores();
  r.done();
  const Answer answer = headroom::plan(p);
  Json out = answer_from(answer.record);
  out["fits"] = answer.fits;
  return out;
}

Json pytorch_answer(Request& r) {
  const engine::ModelConfig c = model_of(r);
  PyTorchModelMemory m;
  m.name = c.name;
  m.model.vocab = c.vocab, m.model.width = c.width, m.model.ffn = c.ffn, m.model.layers = c.layers;
  m.model.heads = c.heads, m.model.kv_heads = c.kv_heads, m.model.head_dim = c.head_dim, m.model.tied = c.tied;
  const auto is = [&](const char* key, const char* usual, const char* other) {
    const std::string word = r.text(key, usual);
    check(word == usual || word == other, Code::bad_argument, "{}: there is no '{}'; allowed are {}, {}", key, word, usual, other);
    return word == other;
  };
  m.model.fused_attention = is("attention", "plain", "flash");
  m.model.softmax = is("softmax", "builtin", "composed") ? pytorch::Softmax::composed : pytorch::Softmax::builtin;
  m.model.adam = is("adam", "foreach", "fused") ? pytorch::Adam::fused : pytorch::Adam::foreach;
  m.batches = r.integers("batch", {1}), m.lens = r.integers("len", {1024});
  for (const auto b : m.batches) check_between(b, 1, 1 << 30, "batch");
  for (const auto n : m.lens) check_between(n, 1, 1 << 30, "len");
  m.precisions = precisions_of_words(r.texts("precision", {"fp32"}));
  m.device = device_of(r, "h200");
  check(m.device.kind == DeviceKind::cuda, Code::bad_argument,
        "device cpu: this is an account of PyTorch's CUDA allocator; name a GPU, present or not, as \"h200\"");
  m.memory_bytes = memory_of(r);
  if (r.has("workspace_bytes")) {
    const auto bytes = r.integer("workspace_bytes", 0);
    check_between(bytes, 0, std::int64_t(4) << 30, "workspace_bytes");
    m.workspace_bytes = std::uint64_t(bytes);
  }
  r.done();
  Json out = answer_from(memory_model_as_pytorch(m).record);
  std::vector<std::string> left_out = c.left_out;
  if (c.qkv_bias) left_out.emplace_back("the biases of q, k and v");
  if (c.qk_norm) left_out.emplace_back("the norms of q and k");
  if (!out.contains("notes")) out["notes"] = Json::array();
  for (const std::string& what : left_out) out["notes"].push_back(fmt::format("Not in the account: {}.", what));
  return out;
}

template <class Answer>
headroom_status answered(const char* request, char** out, Answer answer) {
  return guard([&] {
    given(out, "answer") = nullptr;
    Request r(request);
    hand_out(answer(r), out);
  });
}

}  // namespace

headroom_status headroom_forecast(const char* request, char** answer) { return answered(request, answer, forecast_answer); }
headroom_status headroom_plan(const char* request, char** answer) { return answered(request, answer, plan_answer); }
headroom_status headroom_memory_as_pytorch(const char* request, char** answer) { return answered(request, answer, pytorch_answer); }
void headroom_text_free(char* text) { std::free(text); }
