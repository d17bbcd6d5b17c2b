#include "studies/forecast/tries.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace headroom::studies {

namespace {

constexpr const char* allocator_variable = "PYTORCH_CUDA_ALLOC_CONF";
constexpr const char* observer_variable = "HEADROOM_DRY_TRY";

// Where the command says --batch 8 and --accumulate 2 itself: half the batch, twice as often.
std::optional<Lever> accumulation(const std::vector<std::string>& program) {
  struct Said {
    std::size_t word;    // the word with the number
    std::string before;  // it: "--batch=" where both are one word
    std::string option;
    std::int64_t number;
  };
  const auto value_at = [&](std::initializer_list<std::string_view> options) -> std::optional<Said> {
    const auto number_of = [](std::string_view text) -> std::optional<std::int64_t> {
      const bool digits = !text.empty() && text.size() < 7 && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
      return digits ? std::optional(std::stoll(std::string(text))) : std::nullopt;
    };
    for (std::size_t i = 0; i < program.size(); ++i)
      for (const std::string_view option : options) {
        const std::string_view word = program[i];
        if (!word.starts_with(option)) continue;
        const std::string_view after = word.substr(option.size());
        if (after.starts_with('='))
          if (const auto n = number_of(after.substr(1))) return Said{i, std::string(option) + "=", "", *n};
        if (after.empty() && i + 1 < program.size())
          if (const auto n = number_of(program[i + 1])) return Said{i + 1, "", std::string(option) + " ", *n};
      }
    return std::nullopt;
  };
  const auto batch =
      value_at({"--batch", "--batch-size", "--batch_size", "--micro-batch", "--micro_batch_size", "--per_device_train_batch_size"});
  const auto times = value_at(
      {"--accumulate", "--grad-accum", "--grad_accum", "--gradient-accumulation-steps", "--gradient_accumulation_steps", "--accumulation"});
  if (!batch || !times || batch->number < 2 || batch->number % 2 != 0) return std::nullopt;
  Lever l{"half the batch, twice the accumulation", "", "a step has twice as many kernels, half as large", {}, "", program};
  const auto write = [&](const Said& said, std::int64_t number) {
    l.program[said.word] = fmt::format("{}{}", said.before, number);
    l.code += fmt::format("{}{}{}", l.code.empty() ? "" : " ", said.option, l.program[said.word]);
  };
  write(*batch, batch->number / 2);
  write(*times, times->number * 2);
  return l;
}

}  // namespace

std::vector<std::string> with_allocator(const std::string& setting) {
  std::vector<std::string> all{fmt::format("HEADROOM_DRY_ALLOCATOR={}", setting)};
  for (const char* own : {allocator_variable, "PYTORCH_ALLOC_CONF"})
    if (const char* const text = std::getenv(own); text && *text) return all;  // the observer adds it to these
  all.push_back(fmt::format("{}={}", allocator_variable, setting));
  return all;
}

std::vector<Lever> levers_for(const std::vector<std::string>& program) {
  const auto allocator = [](const char* setting, const char* costs) {
    const std::string text = fmt::format("{}={}", allocator_variable, setting);
    return Lever{setting, text, costs, with_allocator(setting), ""};
  };
  std::vector<Lever> all{// the cheapest first
                         allocator("expandable_segments:True", "nothing"),
                         allocator("max_split_size_mb:64", "more calls of cudaMalloc"),
                         {"fused AdamW", "torch.optim.AdamW(..., fused=True)", "nothing", {}, "adamw-fused"},
                         {"exact attention without N² (sdpa)", "gpu_headroom.torch.replace_sdpa()", "nothing", {}, "sdpa"},
                         {"8-bit AdamW", "bitsandbytes.optim.AdamW8bit(...)", "moments rounded to 8 bits", {}, "adamw-8bit"},
                         {"activation checkpointing",
                          "model.gradient_checkpointing_enable()  # or torch.utils.checkpoint.checkpoint(block, x)",
                          "each block's forward once more",
                          {},
                          "checkpoint"},
                         {"bf16 parameters", "model.to(torch.bfloat16)", "weights and updates rounded to 8 bits of mantissa", {}, "bf16"}};
  if (auto l = accumulation(program)) all.push_back(*l);
  return all;
}

Lever together(const std::vector<Lever>& some) {
  Lever all;
  std::vector<std::string> names, codes, costs, words;
  for (const Lever& l : some) {
    names.push_back(l.name);
    codes.push_back(l.code);
    if (l.costs != "nothing") costs.push_back(l.costs);
    if (!l.observer.empty()) words.push_back(l.observer);
    all.environment.insert(all.environment.end(), l.environment.begin(), l.environment.end());
    if (!l.program.empty()) all.program = l.program;
  }
  all.name = joined(names, " + ");
  all.code = joined(codes, "; ");
  all.costs = costs.empty() ? "nothing" : joined(costs, "; ");
  all.observer = joined(words, ",");
  return all;
}

std::vector<std::string> environment_of(const Lever& l) {
  std::vector<std::string> environment = l.environment;
  if (!l.observer.empty()) environment.push_back(fmt::format("{}={}", observer_variable, l.observer));
  return environment;
}

namespace {

// A reason as a part of a sentence: its first line.
std::string one_line(const std::string& why) {
  const auto begin = why.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  const auto end = std::min(why.find_first_of("\r\n", begin), why.size());
  std::string line = why.substr(begin, end - begin);
  while (line.ends_with('.') || line.ends_with(':') || line.ends_with(' ')) line.pop_back();
  return shortened(line, 160);
}

// What the observer said of the substitutes that the lever asks it for: that it made one, or why it cannot.
void take_what_was_replaced(ForecastTryRow& row, const Lever& l, const std::vector<ProcessStory>& processes) {
  bool replaced = l.observer.empty();
  for (const ProcessStory& p : processes)
    for (const auto& [what, text] : p.said) {
      replaced |= what == "replaced";
      if (what == "cannot") {
        row.status = Status::refused;
        row.why = text;
      }
    }
  if (!replaced && row.status == Status::ok) {
    row.status = Status::refused;
    row.why = "the program has nothing of the kind";
  }
}

void take_forecast(ForecastTryRow& row, const Told& t, const ForecastRow& base) {
  row.needed_bytes = t.row.needed_bytes;
  row.peak_allocated_bytes = t.row.peak_allocated_bytes;
  row.peak_reserved_bytes = t.row.peak_reserved_bytes;
  row.fits = t.row.fits;
  row.status = t.row.status == Status::oom ? Status::ok : t.row.status;
  row.why = t.row.why;
  if (t.at_least && row.status == Status::ok) {  // its need is larger than what was seen of it
    row.status = t.stopped ? Status::interrupted : Status::failed;
    if (!t.ended.empty()) row.why = fmt::format("{}; with unlimited memory it failed: {}", t.row.why, t.ended);
  }
  row.saves_bytes = std::int64_t(base.needed_bytes) - std::int64_t(row.needed_bytes);
}

// Runs of the program, each with something changed.
struct Trying {
  const Forecast& asked;
  const ForecastRow& base;
  const Host& host;
  double runs;  // about as many, for the progress
  Tries tries;

  bool stopped() { return tries.stopped |= host.stop(); }

  const ForecastTryRow& with(const Lever& l) {
    Host here = host;
    const double share = double(tries.rows.size()) / runs;
    here.progress = [&](double, const std::string& doing) { host.progress(share, fmt::format("{}: {}", l.name, doing)); };
    ForecastTryRow row;
    row.change = l.name;
    row.costs = l.costs;
    row.code = l.code;
    try {
      const Told t = forecast_one(
          asked, l.program.empty() ? asked.program : l.program, here, [](std::string_view) {}, environment_of(l));
      tries.stopped |= t.stopped;
      take_forecast(row, t, base);
      take_what_was_replaced(row, l, t.processes);
    } catch (const Error& e) {
      row.status = status_of(e.at.code);
      tries.stopped |= e.at.code == Code::interrupted;
      row.why = e.what();
    }
    row.why = one_line(row.why);
    return tries.rows.emplace_back(std::move(row));
  }
};

}  // namespace

Tries tries_of(const Forecast& a, const ForecastRow& base, const Host& host, bool was_stopped) {
  const std::vector<Lever> levers = levers_for(a.program);
  Trying trying{a, base, host, double(levers.size()) * 1.5, {{}, was_stopped}};
  std::vector<Lever> saving;
  for (const Lever& l : levers) {
    if (trying.stopped()) return std::move(trying.tries);
    const ForecastTryRow& row = trying.with(l);
    const bool of_allocator = !l.environment.empty() && !saving.empty() && !saving.back().environment.empty();
    if (row.status == Status::ok && row.saves_bytes > std::int64_t(base.needed_bytes / 200) && !of_allocator) saving.push_back(l);
  }
  for (std::size_t n = 2; n <= saving.size(); ++n) {
    if (trying.stopped()) return std::move(trying.tries);
    trying.with(together({saving.begin(), saving.begin() + std::ptrdiff_t(n)}));
  }
  std::ranges::stable_sort(trying.tries.rows, std::greater{}, &ForecastTryRow::saves_bytes);
  return std::move(trying.tries);
}

void add_tries(const Tries& tries, const ForecastRow& base, bool for_people, Record& r) {
  const auto& rows = tries.rows;
  if (!for_people) {
    r.add(Part{table_of("tries", "", rows)});
    return;
  }
  std::vector<ForecastTryRow> works{{.change = "as it is", .needed_bytes = base.needed_bytes, .fits = base.fits}};
  std::vector<std::string> not_tried;
  for (const ForecastTryRow& row : rows) {
    if (row.status == Status::ok) works.push_back(row);
    if (row.status != Status::ok) not_tried.push_back(fmt::format("{} ({})", row.change, row.why));
  }
  r.add(Part{table_of("tries", "What removes bytes: the program run dry again, with one thing changed", works)});
  for (const ForecastTryRow& row : works)  // a combination has the lines of its parts
    if (!row.code.empty() && row.saves_bytes > 0 && row.change.find(" + ") == std::string::npos)
      r.add(Part{Note{fmt::format("{}: {}", row.change, row.code), false}});
  const auto best =
      std::find_if(works.begin() + 1, works.end(), [](const auto& row) { return row.saves_bytes > 0 && row.status == Status::ok; });
  const auto cost = [](const ForecastTryRow& row) {  // how many changes, whether they cost anything, how much they change
    std::int64_t changes = 1;
    for (auto at = row.change.find(" + "); at != std::string::npos; at = row.change.find(" + ", at + 1)) ++changes;
    return std::tuple(changes, row.costs != "nothing", row.saves_bytes);
  };
  const ForecastTryRow* cheapest_fit = nullptr;
  for (const auto& row : works)
    if (&row != &works[0] && row.fits == true && row.saves_bytes > 0 && (!cheapest_fit || cost(row) < cost(*cheapest_fit)))
      cheapest_fit = &row;
  if (base.fits == false && cheapest_fit)
    r.add(Part{Note{fmt::format("It fits with {}: write {}", cheapest_fit->change, cheapest_fit->code), false}});
  else if (best != works.end())
    r.add(Part{Note{fmt::format("Saves most: {}.", best->change), false}});
  if (!not_tried.empty()) r.add(Part{Note{"Not applied: " + joined(not_tried, "; ") + ".", false}});
  if (tries.stopped) r.add(Part{Note{"Stopped before all changes were tried.", false}});
}

}  // namespace headroom::studies
