#include "engine/files/save.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/model/models.h"

namespace headroom::engine {

namespace fs = std::filesystem;

namespace {

constexpr const char* format = "headroom checkpoint 2";      // its header has a checksum
constexpr const char* old_format = "headroom checkpoint 1";  // had none: its file's name vouches for its step

enum class What : std::uint8_t { weights, everything };

// A file holds the whole model: ranks that own parts of it bring them.
std::vector<NamedTensor> tensors_of(Training& t, What what) {
  ParamStore& store = t.store();
  std::vector<NamedTensor> all;
  for (const Param& p : store.params()) {
    const std::string name = p.spec.full_name();
    if (t.comm())
      all.push_back({name,
                     Tensor(nullptr, DType::f32, p.spec.shape),
                     {},
                     [&store, &p] {
                       const auto values = store.values(p);
                       const char* bytes = reinterpret_cast<const char*>(values.data());
                       return std::vector<char>(bytes, bytes + values.size() * sizeof(float));
                     },
                     [&store, &p](const char* whole) { store.set_values(p, reinterpret_cast<const float*>(whole)); }});
    else
      all.push_back(p.rest ? NamedTensor{name, p.copy, p.rest} : NamedTensor{name, p.master});
    const auto states = store.states(p);
    for (std::size_t n = 0; n < states.size() && what == What::everything; ++n) {
      const std::string full_name = name + states[n].suffix;
      const Shape shape = states[n].shape_for(p.spec.shape);
      if (t.comm())
        all.push_back({full_name,
                       Tensor(nullptr, states[n].type, shape),
                       {},
                       [&store, &p, n] { return store.state(p, n); },
                       [&store, &p, n](const char* whole) { store.set_state(p, n, whole); }});
      else
        all.push_back({full_name, p.state[n]});
    }
  }
  if (what == What::everything) all.push_back({Optimizer::scalars_name, t.state_tensor()});
  return all;
}

std::string name_of_step(std::int64_t step) { return fmt::format("step-{:08}.safetensors", step); }

// The step that a file's name says, where save() could have given that name: step-best and step-00000004-keep are other files.
std::optional<std::int64_t> step_named(const std::string& name) {
  constexpr std::string_view head = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(head)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + head.size(), name.data() + name.size(), step);
  if (error != std::errc() || step < 0 || name != name_of_step(step)) return std::nullopt;
  return step;
}

struct CheckpointFile {
  std::int64_t step;
  std::string path;
};

std::vector<CheckpointFile> checkpoints_in(const std::string& folder) {  // the newest last
  std::vector<CheckpointFile> all;
  std::error_code none;
  for (const auto& e : fs::directory_iterator(folder, none))
    if (const auto step = step_named(e.path().filename().string()); step && e.is_regular_file(none))
      all.push_back({*step, e.path().string()});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

// A whole file that this program did not write under its name: another program's, or a copy of another step. One that is damaged may
// be ours; reading it gives the error.
bool is_of_others(const CheckpointFile& c) {
  try {
    const Metadata m = read_safetensors_header(c.path).metadata;
    const auto made = m.find("format");
    if (made != m.end() && made->second == old_format) return false;  // nothing but its name vouches for its step
    if (made == m.end() || made->second != format) return true;
    return m.contains("header_checksum") && m.contains("step") && m.at("step") != std::to_string(c.step);
  } catch (const Error&) { return false; }
}

bool is_ours(const std::string& path) {
  try {
    describe_checkpoint(path);
    return true;
  } catch (const Error&) { return false; }
}

template <class T>
T number(const Metadata& m, const char* key, const std::string& path) {
  T value{};
  const auto at = m.find(key);
  const bool there = at != m.end();
  const char* end = there ? at->second.data() + at->second.size() : nullptr;
  check(there && std::from_chars(at->second.data(), end, value).ptr == end && !at->second.empty(), Code::io,
        "'{}' has no {} of a checkpoint", path, key);
  return value;
}

}  // namespace

void make_folder(const std::string& folder) {
  std::error_code failed;
  check(!fs::exists(folder, failed) || fs::is_directory(folder, failed), Code::bad_argument,
        "'{}' is no folder; checkpoints are kept in one", folder);
  fs::create_directories(folder, failed);
  check(!failed, Code::bad_argument, "'{}' cannot be made: {}", folder, failed.message());
  const AtomicFile trial((fs::path(folder) / "checkpoint").string());
}

Descriptor claim_folder(const std::string& folder) {
  make_folder(folder);
  Descriptor held(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool taken = held && flock(held.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;  // a file system without locks has no say
  check(!taken, Code::bad_argument, "another training is saving to '{}' now; wait for its end, or save elsewhere", folder);
  return held;
}

void save(Training& t, const Position& p, const std::string& folder) {
  if (t.rank() > 0) {  // rank 0 writes; the others bring their parts as often as it asks
    for (int time = 0; time < 2; ++time)
      for (const NamedTensor& one : tensors_of(t, What::everything))
        if (one.bring) one.bring();
    return;
  }
  make_folder(folder);
  std::error_code failed;
  const std::string path = (fs::path(folder) / name_of_step(p.step)).string();
  write_safetensors(path, tensors_of(t, What::everything),
                    {{"format", format},
                     {"model", to_json(t.recipe().model)},
                     {"step", std::to_string(p.step)},
                     {"seed", std::to_string(p.seed)},
                     {"settings", p.settings}},
                    HostView(t.context()));
  auto all = checkpoints_in(folder);
  std::erase_if(all, [](const CheckpointFile& c) { return !is_ours(c.path); });  // never another program's files
  for (std::size_t i = 0; i + 2 < all.size(); ++i) fs::remove(all[i].path, failed);
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  auto all = checkpoints_in(folder);
  while (!all.empty() && is_of_others(all.back())) all.pop_back();
  if (all.empty()) return std::nullopt;
  return all.back().path;
}

void check_free(const std::string& folder, std::int64_t from, std::int64_t to) {
  for (const CheckpointFile& c : checkpoints_in(folder))
    check(c.step <= from || c.step > to || !is_of_others(c), Code::bad_argument,
          "'{}' is not a checkpoint of this program, or was renamed, and this run would replace it; move it away, or save elsewhere",
          c.path);
}

void check_room_for(Training& t, std::int64_t still_written, const std::string& folder) {
  if (still_written == 0) return;
  double bytes = 0;
  for (const NamedTensor& one : tensors_of(t, What::everything)) bytes += double(one.bytes());
  auto there = checkpoints_in(folder);
  std::erase_if(there, [](const CheckpointFile& c) { return !is_ours(c.path); });
  const auto more = std::min<std::int64_t>(still_written, 3 - std::min<std::int64_t>(2, std::int64_t(there.size())));
  check_room(folder, double(more) * bytes, fmt::format("{} of {}", counted(std::uint64_t(more), "checkpoint"), bytes_in_words(bytes)));
}

Described describe_checkpoint(const std::string& path) {
  const Metadata m = read_safetensors_header(path).metadata;
  const auto at = m.find("format");
  check(at != m.end() && (at->second == format || at->second == old_format), Code::io,
        "'{}' is a safetensors file, but not a checkpoint of this program", path);
  check(m.contains("checksum") && (at->second == old_format || m.contains("header_checksum")), Code::io,
        "'{}' is damaged: its checksum is missing", path);
  check(m.contains("model") && m.contains("settings"), Code::io, "'{}' does not say which model it is of", path);
  const auto step = number<std::int64_t>(m, "step", path);
  const auto named = step_named(fs::path(path).filename().string());
  check(!named || *named == step, Code::io, "'{}' is damaged or was renamed: it says that it is of step {}", path, step);
  return {{step, number<std::uint64_t>(m, "seed", path), m.at("settings")}, model_from_json(m.at("model"), path)};
}

namespace {
void load_from(Training& t, const std::string& path, What what) {
  const Described d = describe_checkpoint(path);
  check(same_model(d.model, t.recipe().model), Code::io, "'{}' is a checkpoint of another model: {}", path, to_json(d.model));
  read_safetensors(path, tensors_of(t, what), HostView(t.context()));
  t.store().refresh_copies();
}
}  // namespace

void load(Training& t, const std::string& path) { load_from(t, path, What::everything); }
void load_weights(Training& t, const std::string& path) { load_from(t, path, What::weights); }

}  // namespace headroom::engine
