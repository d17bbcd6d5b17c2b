// headroom attention — sweep attention variants and say what the rows mean.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/attention_options.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "store/results.h"
#include "studies/attention_analysis.h"

namespace headroom::cli {

namespace {

using studies::AttentionRow;
using studies::AttentionSweep;

struct SweepAsked : AttentionAsked {
  std::int64_t warmup = 5, steps = 100;
  std::optional<double> seconds;
  bool resume = false, exactly = false;  // exactly the steps asked for, however long they take
};

AttentionSweep settings_of(const SweepAsked& a) {
  AttentionSweep s = a.settings();
  const bool as_long_as_needed = s.protocol.until > 0 && !a.exactly;
  s.protocol.warmup = int(a.warmup), s.protocol.steps = as_long_as_needed ? 1'000'000 : int(a.steps);
  s.protocol.seconds = a.seconds.value_or(a.exactly ? 0 : as_long_as_needed ? 60 : 1);
  return s;
}

std::string settings_json(const AttentionSweep& s, const SweepAsked& a) {
  return nlohmann::ordered_json{{"variant", s.variants},
                                {"dtype", a.dtypes},
                                {"batch", s.batch},
                                {"heads", s.heads},
                                {"kv_heads", s.kv_heads},
                                {"dim", s.dims},
                                {"len", s.lens},
                                {"len_k", s.len_k},
                                {"mask", a.masks},
                                {"pass", a.pass},
                                {"warmup", a.warmup},
                                {"steps", s.protocol.steps},
                                {"until", s.protocol.until},
                                {"seconds", s.protocol.seconds},
                                {"deterministic", s.deterministic},
                                {"memory", s.memory.value_or(0)},
                                {"seed", s.seed}}
      .dump();
}

int run(const SweepAsked& asked, const Common& common) {
  Device device = chosen_device(common);
  AttentionSweep sweep = settings_of(asked);
  sweep.seed = common.seed;
  studies::cases_of(sweep, device);  // bad settings end here, before a store is touched
  Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::write);
  if (const auto kept = kept_ceilings(device, common)) device.ceilings = *kept;
  const std::string settings = settings_json(sweep, asked), machine = device.name;
  const auto earlier = asked.resume ? results.unfinished("attention", settings, machine) : std::nullopt;
  if (asked.resume && !earlier)
    std::fputs("headroom attention: no run with these settings was cut short here by version " HEADROOM_VERSION "; starting afresh\n",
               stderr);
  std::map<std::string, std::string> known;
  if (earlier)
    for (const StoredRow& r : results.rows(earlier->id)) known.emplace(r.key, r.row);
  const std::int64_t run = earlier ? earlier->id : results.start_run("attention", settings, machine);

  studies::SweepResult result;
  {
    Progress progress;
    studies::SweepHooks hooks;
    hooks.known = [&](const std::string& key) -> std::optional<AttentionRow> {
      const auto at = known.find(key);
      if (at == known.end()) return std::nullopt;
      return studies::attention_row_of(at->second);
    };
    hooks.finished = [&](const std::string& key, const AttentionRow& r) {
      results.add_row(run, {key, studies::json_of(r).dump(), studies::samples_json(r).dump()});
    };
    hooks.progress = [&](double share, const std::string& doing) { progress.show(share, doing); };
    hooks.stop = interrupted;
    result = studies::run_sweep(sweep, device, hooks);
  }
  const bool whole = result.rows.size() == result.asked;
  if (whole) results.finish_run(run);
  const auto wrong = std::count_if(result.rows.begin(), result.rows.end(), [](const AttentionRow& r) { return r.status == "failed"; });
  const int code = deliver(studies::attention_record(sweep, device, result), common, whole && wrong == 0 ? yes : failed);
  std::fputs(
      fmt::format("{}{}run {} in {}{}\n", whole ? "" : fmt::format("stopped after {} of {} rows; ", result.rows.size(), result.asked),
                  wrong ? fmt::format("{} of {} rows failed; ", wrong, result.rows.size()) : "", run, results.file(),
                  whole ? "" : "; --resume goes on from here")
          .c_str(),
      stderr);
  return code;
}

}  // namespace

AttentionSweep AttentionAsked::settings() const {
  AttentionSweep s = sweep;
  s.dtypes.clear();
  for (const auto& d : dtypes) s.dtypes.push_back(*precision_named(d));
  s.masks.clear();
  for (const auto& m : masks) s.masks.push_back(*attention::mask_named(m));
  s.passes = pass == "forward" ? studies::Passes::forward : pass == "backward" ? studies::Passes::backward : studies::Passes::both;
  return s;
}

void add_attention(CLI::App& app, AttentionAsked& a) {
  AttentionSweep& s = a.sweep;
  add_words(app, "--variant", s.variants, "Variants or families, or all (see headroom kernels)");
  add_choices(app, "--dtype", a.dtypes, {"fp32", "tf32", "bf16", "fp16", "fp8"}, "Storage, and tf32's arithmetic");
  add_integer(app, "--batch", s.batch, {1}, "Sequences");
  add_integer(app, "--heads", s.heads, {1}, "Query heads");
  add_integer(app, "--kv-heads", s.kv_heads, {0}, "Key heads; 0: as many as query heads");
  add_integers(app, "--dim", s.dims, {1, 256}, "Head dimensions");
  add_integers(app, "--len", s.lens, {0, (1ll << 31) - 1}, "Lengths of the queries, and of the keys unless --len-k says otherwise");
  add_integer(app, "--len-k", s.len_k, {0, (1ll << 31) - 1}, "Length of the keys; 0: as --len");
  add_masks(app, a.masks, "full, causal, window:W (also causal:top-left, window:W:top-left)");
  add_choice(app, "--pass", a.pass, {"forward", "backward", "both"}, "What to measure");
}

Run attention(CLI::App& app, Common& common) {
  auto asked = std::make_shared<SweepAsked>();
  AttentionSweep& s = asked->sweep;
  add_attention(app, *asked);
  add_integer(app, "--warmup", asked->warmup, {0, 1'000'000}, "Calls before the first that counts");
  auto* steps = add_integer(app, "--steps", asked->steps, {1, 1'000'000}, "Calls that count; when given, exactly so many");
  add_fraction(app, "--until", s.protocol.until,
               "Stop when the standard error of the mean is below this share of it; a bound that ends it earlier is said in the row");
  app.add_option_function<std::string>(
         "--seconds", [asked](const std::string& text) { asked->seconds = parse_number(text, "--seconds", 1e-3, 1e6); },
         "A measurement longer than this stops after 3 calls [1; 60 with --until; no limit with --steps]")
      ->type_name("S");
  add_flag(app, "--deterministic", s.deterministic, "Only variants that promise the same bits on every run");
  add_bytes(app, "--memory", s.memory, "Pretend to have this much memory");
  add_flag(app, "--resume", asked->resume, "Go on with the run of the same settings that was cut short");
  app.footer(
      "Examples:\n"
      "  headroom attention\n"
      "  headroom attention --batch 8 --dim 16,64,128 --len 256,1024,2048 --mask causal --format json --out sweep.json\n"
      "  headroom attention --variant plain,flash --dim 64 --len 4096,8192 --memory 2     (where would 2 GiB end?)\n"
      "  headroom attention --len 1024 --until 0.5%                                       (measure until the mean is known)");
  return [asked, steps, &common] {
    asked->exactly = steps->count() > 0;
    return run(*asked, common);
  };
}

}  // namespace headroom::cli
