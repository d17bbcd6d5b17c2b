#include "studies/train/going_on.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "engine/files/pretrained.h"

namespace headroom::studies {

using engine::Training;

engine::Decoder model_of_init(const std::string& folder) {
  if (const auto checkpoint = engine::newest_checkpoint(folder)) return engine::describe_checkpoint(*checkpoint).model;
  return engine::pretrained_model(folder);
}

bool go_on_as_checkpoint(TrainRun& r, const std::function<bool(const std::string& option)>& named, bool names_model) {
  const auto newest = engine::newest_checkpoint(r.folder);
  if (!newest) return false;
  RowObject settings;
  try {
    const auto described = engine::describe_checkpoint(*newest);
    settings = parse_json_or_discard<RowObject>(described.position.settings);
    if (!names_model) r.recipe.model = described.model;
  } catch (const Error&) { return false; }  // going on from it says what is wrong
  if (!settings.is_object()) return true;
  describe(r, [&](auto& member, const Description& d) {
    const std::string_view name = d.name;
    const bool not_of_fp8 = r.switch_precision || size_of(r.recipe.precision.dtype) != 1;  // precision is described before them
    const bool of_its_own =
        name == "micro_batches" || (name == "warmup" && named("--steps")) || ((name == "scales" || name == "copies") && not_of_fp8);
    if (d.role != Role::asked || of_its_own || named(first_option_of(d))) return;
    if (const auto at = settings.find(d.name); at != settings.end()) read_member(*at, member);
  });
  return true;
}

std::optional<Precision> precision_of_checkpoint(const std::string& folder) {
  const auto newest = engine::newest_checkpoint(folder);
  if (!newest) return {};
  nlohmann::json settings;
  try {
    settings = parse_json_or_discard(engine::describe_checkpoint(*newest).position.settings);
  } catch (const Error&) { return {}; }  // going on from it says what is wrong
  if (!settings.is_object() || !settings.contains("precision") || !settings["precision"].is_string()) return {};
  const auto words = WordsOf<Precision>::all();
  const std::string word = settings["precision"];
  if (std::find(words.begin(), words.end(), word) == words.end()) return {};
  return word_read<Precision>(word, "precision", {});
}

std::string settings_of(const TrainRun& r, const engine::Data& data) {
  auto settings = parse_json(key_of(r), "settings");
  settings["micro_batches"] = r.recipe.micro_batches_of_all();  // whichever ranks take them
  settings["data"] = data.fingerprint();
  return settings.dump();
}

std::string settings_going_on(const TrainRun& r, const std::string& asked, const std::string& theirs, std::int64_t step,
                              const std::string& path) {
  auto mine = parse_json(asked, "settings");
  auto before = parse_json_or_discard(theirs);
  check(before.is_object(), Code::io, "'{}' has damaged settings", path);
  for (const auto& [key, value] : before.items())
    check(mine.contains(key) || key == extended_at, Code::unsupported,
          "'{}' was trained with {} {}, a setting that this version does not know: go on with the version that saved it", path, key,
          value.dump());
  const auto usual_settings = parse_json(key_of(TrainRun{}), "settings");
  for (const auto& [key, usual] : usual_settings.items())
    if (!before.contains(key)) before[key] = usual;  // a lever that the program which saved it did not have
  const auto steps_of = [&](const nlohmann::json& j) {
    return j.contains("steps") && j["steps"].is_number_integer() ? j["steps"].get<std::int64_t>() : 0;
  };
  const bool extended = steps_of(mine) > steps_of(before) && steps_of(before) > 0;
  const auto in_words = [](const nlohmann::json& value) { return value.is_null() ? "none" : value.dump(); };
  const auto refuse_other = [&](const std::string& key, const nlohmann::json& value) {
    const bool may_switch = key == "precision" || key == "scales";
    const bool may_differ =
        (extended && (key == "steps" || key == "warmup")) || (r.switch_precision && may_switch) || key == "copies";  // these change no bit
    check((before.contains(key) && before[key] == value) || may_differ, Code::bad_argument,
          "'{}' was trained with {} {}, this run asks for {}; resume with the same{}, or save elsewhere", path, key,
          before.contains(key) ? in_words(before[key]) : "unknown", in_words(value), may_switch ? ", change it by --switch-precision" : "");
  };
  refuse_other("lr", mine["lr"]);  // before the floor, which follows from it
  for (const auto& [key, value] : mine.items()) refuse_other(key, value);
  if (before.contains(extended_at)) mine[extended_at] = before[extended_at];
  if (extended) mine[extended_at].push_back(step);
  return mine.dump();
}

std::string words_of_extension(const TrainRun& r, const std::string& settings) {
  const auto j = parse_json(settings, "settings");
  if (!j.contains(extended_at)) return "";
  std::vector<std::string> at;
  for (const auto& step : j[extended_at]) at.push_back(step.dump());
  return fmt::format(
      "Extended at step {}: from there on the learning rate is that of a run of {} steps, so the result is not that of "
      "{} steps in one go.",
      joined(at), r.schedule.steps, r.schedule.steps);
}

std::string words_of_beginning(const TrainRun& r, const std::optional<std::string>& newest, std::int64_t step, bool new_folder) {
  if (!newest)
    return fmt::format("there is no checkpoint to resume in '{}'{}; starting from step 0", r.folder, new_folder ? ", a new folder" : "");
  if (step >= r.schedule.steps)
    return fmt::format("'{}' is of the last step: no step is left to train; more --steps extend the run", *newest);
  return fmt::format("continuing from '{}'{}", *newest, r.init.empty() ? "" : fmt::format("; the weights of '{}' are not read", r.init));
}

void check_that_ranks_see(const std::optional<std::string>& newest, const std::string& folder, dist::Group& group) {
  const std::string mine = newest ? std::filesystem::path(*newest).filename().string() : "no checkpoint";
  const std::uint64_t number = std::hash<std::string>()(mine);
  const char* what = "the checkpoint that they resume";
  check(
      group.least(number, what) == group.most(number, what), Code::bad_argument,
      "--resume: ranks do not see the same checkpoints in '{}': here, on rank {}, it is {}; --save must be one folder that all ranks share",
      folder, group.rank(), mine);
}

std::int64_t with_remedy(const std::function<std::int64_t()>& read_newest) {
  try {
    return read_newest();
  } catch (const Error& e) {
    if (e.at.code == Code::io) throw Error(e.at, fmt::format("{}; move it away to go on from an earlier one", e.what()));
    throw;
  }
}

void begin_with(Training& t, const std::string& folder) {
  if (const auto checkpoint = engine::newest_checkpoint(folder)) return engine::load_weights(t, *checkpoint);
  engine::load_pretrained(t, folder);
}

Life life_of(const TrainRun& r, const engine::Position& at, const std::string& settings_before, const Device& device, const Host& host) {
  RowObject all{{"model", JsonOf<engine::Decoder>::to(r.recipe.model)}, {"seed", r.seed}};
  all.update(json_of(r));
  const auto settings = parse_json<RowObject>(at.settings, "settings");
  all["data"] = settings["data"];
  all["save"] = r.folder;
  all["init"] = r.init;
  if (settings.contains(extended_at)) all[extended_at] = settings[extended_at];
  Host asked = host;
  asked.resume = r.resume;
  Life life(asked, "train", all, device.name, Life::Afresh::unsaid);  // what it goes on from is a checkpoint, with or without kept rows
  if (at.step == 0) return life;
  const auto before = parse_json<RowObject>(settings_before, "settings");
  life.adopt(
      [&](const RowObject& theirs) {
        const auto same = [&](const auto& key, const RowObject& value) { return theirs.contains(key) && theirs[key] == value; };
        bool all_same =
            same("model", all["model"]) && same("seed", all["seed"]) && theirs.contains(extended_at) == before.contains(extended_at);
        for (const auto& [key, value] : before.items()) all_same = all_same && (key == "micro_batches" || same(key, value));
        return all_same && number_at(theirs, "micro_batches") * number_at(theirs, "ranks") == number_at(before, "micro_batches");
      },
      [&](const RowObject& row) { return row.contains("step") && row["step"].is_number() && row["step"] <= at.step; });
  return life;
}

}  // namespace headroom::studies
