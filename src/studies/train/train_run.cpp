#include "studies/train/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/text.h"
#include "base/threads.h"
#include "engine/exchange/agree.h"
#include "engine/files/pretrained.h"
#include "engine/files/save.h"
#include "engine/forecast/forecast.h"
#include "engine/pass/recorded.h"
#include "gpu/place.h"
#include "report/described_table.h"
#include "studies/memory/room.h"
#include "studies/status.h"
#include "studies/step/quantised.h"
#include "studies/step/words.h"
#include "studies/train/after_training.h"
#include "studies/train/going_on.h"

namespace headroom::studies {

using engine::Training;

namespace {

std::string words_of_stop(const TrainRun& r) {
  const std::string not_written = r.hugging_face.empty() ? "" : fmt::format("'{}' was not written, that is for the end", r.hugging_face);
  if (r.folder.empty()) return "nothing was saved, for there was no --save" + (not_written.empty() ? "" : "; " + not_written);
  return (not_written.empty() ? "" : not_written + "; ") + "the same command with --resume continues from there";
}

[[noreturn]] void stop_for(const char* what, std::int64_t step, const std::string& where, const std::string& folder) {
  throw Error(Code::interrupted,
              fmt::format("the {} of step {} is not finite; it begins in {}. {}", what, step, where,
                          folder.empty() ? "Try a smaller --lr"
                                         : fmt::format("The checkpoints in '{}' are untouched; try a smaller --lr", folder)));
}

// How many checkpoints a run writes after this step: one every so often, and the last.
std::int64_t saves_after(std::int64_t step, const TrainRun& r) {
  const std::int64_t last = r.schedule.steps;
  return step >= last ? 0 : (last - 1) / r.every - step / r.every + 1;
}

// An update during backward looks at no gradient before it is made, so weights may have become not finite: then their loss is.
void save_good(Training& t, const engine::Position& at, const std::string& folder) {
  if (!t.recipe().knows_norm()) {
    t.forward();
    if (!std::isfinite(t.loss())) stop_for("loss after the update", at.step, t.first_not_finite(), folder);
  }
  engine::save(t, at, folder);
}

Outcome does_not_fit(const TrainRun& r, bool keep_asked, std::size_t needed, std::uint64_t memory, const std::string& on_host = "") {
  Record record{"",
                on_host.empty() ? fmt::format("Does not fit: {} parameters in {} need {} of {}.", engine::param_count(r.recipe.model),
                                              name_of(r.recipe.precision), bytes_in_words(double(needed)), bytes_in_words(double(memory)))
                                : fmt::format("Does not fit: {}.", on_host),
                {}};
  record.add("status", std::string(names_of<Status>.of(Status::oom)));
  record.add("forecast_peak_bytes", std::int64_t(needed), Unit::bytes);
  record.add("memory_bytes", std::int64_t(memory), Unit::bytes);
  record.add("why",
             !on_host.empty()
                 ? on_host
                 : fmt::format("this needs {}, {} are available; try {}a smaller --batch with more --micro-batches, or headroom plan",
                               bytes_in_words(double(needed)), bytes_in_words(double(memory)), keep_asked ? "--keep input, " : ""));
  return {std::move(record), Answer::no};
}

// Where nothing fits, the least of all: the answer is then no, by its bytes.
void find_keep(TrainRun& r, std::uint64_t memory, const Device& device) {
  r.recipe.keep = engine::keep_that_fits(r.recipe, memory, device, r.threads).value_or(engine::Keeping{engine::Keep::input});
}

void check_folders(const TrainRun& r, bool first) {
  std::error_code no_such_folder;
  check(r.init.empty() || r.hugging_face.empty() || !std::filesystem::equivalent(r.init, r.hugging_face, no_such_folder),
        Code::bad_argument, "--save-hf: '{}' is the folder of --init, whose weights it would replace; name another folder", r.hugging_face);
  if (!r.hugging_face.empty() && first) engine::check_pretrained_place(r.recipe.model, r.hugging_face);
}

// A run that has begun. The loop changes it; the last words read it.
struct Running {
  const TrainRun& r;
  const engine::Data& data;
  const Host& host;
  const std::function<bool()>& stop;
  Training& t;
  const engine::Optimizer::Hyper hyper;
  engine::Position at;
  std::int64_t from = at.step;  // the steps before were another run's
  bool resumed = false;         // from a checkpoint
  std::optional<Life> life{};   // the first rank's alone
  std::vector<TrainRow> rows{};
  std::chrono::steady_clock::time_point start{};
  double tokens = 0;                       // predicted since `start`
  double tokens_before = 0, s_before = 0;  // as of the row before
  double speed = 0;                        // tokens/s

  bool fp8() const { return r.recipe.formats().quantised(); }
  bool stopped() const { return at.step < r.schedule.steps; }
};

// Where training goes on: behind the newest checkpoint, or with the weights of --init. The settings of the run before, if there was one.
std::string begin(Training& t, engine::Position& at, const TrainRun& r, const std::optional<std::string>& newest) {
  check(!newest || r.resume, Code::bad_argument, "'{}' already has {}; --resume continues from it, another --save starts a new run",
        r.folder, newest.value_or(""));
  std::string settings_before;
  if (newest) {
    at.step = with_remedy([&] {
      const auto described = engine::describe_checkpoint(*newest);
      check(described.position.seed == r.seed, Code::bad_argument, "'{}' was trained with --seed {}, this run asks for {}", *newest,
            described.position.seed, r.seed);
      settings_before = described.position.settings;
      at.settings = settings_going_on(r, at.settings, settings_before, described.position.step, *newest);
      engine::load(t, *newest);
      return described.position.step;
    });
  } else if (!r.init.empty()) {
    begin_with(t, r.init);
  }
  return settings_before;
}

// An update with a gradient that is not finite changed nothing. fp16 goes on with a smaller loss scale while there is one.
void check_finite(Running& run, double loss) {
  Training& t = run.t;
  if (!std::isfinite(loss)) stop_for("loss", run.at.step, t.first_not_finite(), run.r.folder);
  const bool lost = run.hyper.dynamic_scale ? t.state(engine::Optimizer::skipped) != 0 && t.state(engine::Optimizer::loss_scale) <= 1
                                            : t.state(engine::Optimizer::updates) != double(run.at.step);
  if (lost) stop_for("gradient", run.at.step, t.first_gradient_not_finite(), run.r.folder);
}

void look_at_step(Running& run, double rate, bool reported) {
  const double loss = run.t.loss();
  check_finite(run, loss);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - run.start).count();
  run.speed = run.tokens / s;
  run.host.progress(double(run.at.step - run.from) / double(run.r.schedule.steps - run.from),
                    fmt::format("step {} of {}, loss {:.3f}, {:.0f} tokens/s", run.at.step, run.r.schedule.steps, loss, run.speed));
  TrainRow row{.step = run.at.step,
               .loss = loss,
               .lr = rate,
               .grad_norm = {},
               .tokens_per_s = (run.tokens - run.tokens_before) / (s - run.s_before)};
  if (run.r.recipe.knows_norm()) row.grad_norm = run.t.state(engine::Optimizer::grad_norm);
  if (run.fp8()) {
    const QuantisedRow q = sum_of(run.t.quantised());
    row.clipped = q.clipped;
    row.flushed = double(q.flushed) / double(q.numbers);
  }
  if (!reported) return;
  run.tokens_before = run.tokens, run.s_before = s;
  if (run.life) run.life->keep(key_of(row), json_of(row));
  run.rows.push_back(row);
}

void take_steps(Running& run, const engine::Recorded& passes, bool on_gpu) {
  const TrainRun& r = run.r;
  engine::Position& at = run.at;
  while (run.stopped() && !run.stop()) {
    for (int micro = 0; micro < r.recipe.micro_batches; ++micro) run.data.draw(run.t, r.seed, at.step, micro);
    run.tokens += double(run.data.drawn(r.recipe, r.seed, at.step));
    const double rate = r.schedule.at(at.step);
    run.t.set_rate(rate);
    passes();
    ++at.step;
    const bool reported = at.step % r.log_every == 0 || at.step == r.schedule.steps || at.step == 1;
    if (reported || !on_gpu)
      look_at_step(run, rate, reported);  // a GPU is not asked after every step: an answer makes it wait for the host
    if (!r.folder.empty() && at.step % r.every == 0 && at.step < r.schedule.steps) save_good(run.t, at, r.folder);
  }
  if (!r.folder.empty() && at.step > run.from) save_good(run.t, at, r.folder);
  if (!r.hugging_face.empty() && at.step == r.schedule.steps) engine::save_pretrained(run.t, r.hugging_face);
}

std::string answer_of(const Running& run, const Value& validation, std::size_t peak_bytes) {
  const std::string done = counted(std::uint64_t(run.at.step), "step");
  std::string answer = run.stopped() ? fmt::format("Stopped after {} of {} steps", run.at.step, run.r.schedule.steps)
                       : run.resumed && run.at.step == run.from ? fmt::format("No step was left to train, {} were done before", done)
                                                                : fmt::format("{} done", done);
  if (!run.rows.empty()) answer += fmt::format(": loss {:.3f}", run.rows.back().loss);
  if (const double* held_out = std::get_if<double>(&validation))
    answer += fmt::format("{} of held-out data {:.3f}", run.rows.empty() ? ": loss" : ",", *held_out);
  if (run.speed > 0) answer += fmt::format("; {} tokens/s", number_in_words(run.speed));
  return fmt::format("{}, {}.", answer, bytes_in_words(double(peak_bytes)));
}

Record record_of(Running& run, bool keep_asked, const Arena& arena, std::size_t forecast_peak, const Tensor& logits) {
  const TrainRun& r = run.r;
  const bool stopped = run.stopped();
  const Value validation = stopped ? Value{} : validation_loss(run.t, run.data, r.validation_batches, run.stop);
  Record record{"", answer_of(run, validation, arena.peak()), {}};
  const auto note = [&](const std::string& words) {
    if (!words.empty()) record.add(Part{Note{words}});
  };
  note(run.data.documents_in_words());
  if (run.fp8() && run.at.step > run.from) note(studies::in_words(r.recipe, run.t.quantised()));
  record.add("from_step", run.from).add("step", run.at.step).add("stopped", stopped).add("tokens_per_s", run.speed);
  if (!stopped) record.add("validation_loss", validation);
  record.add("unigram_entropy", run.data.unigram_entropy());
  if (!keep_asked) record.add("kept", engine::kept_in_words(r.recipe));
  record.add("peak_bytes", std::int64_t(arena.peak()), Unit::bytes).add("forecast_peak_bytes", std::int64_t(forecast_peak), Unit::bytes);
  if (run.t.host_keep()) record.add("host_bytes", std::int64_t(run.t.host_keep()->host_bytes()), Unit::bytes);
  if (!stopped && run.data.validation_batches(r.recipe) == 0)
    note(r.recipe.documents ? "No validation loss: no document is held out; the last one is more than a tenth of the tokens."
                            : "No validation loss: the held-out part of the data is shorter than one batch.");
  if (r.sample > 0 && !stopped) record.add("sample", sampled(run.t, r, logits, run.stop));
  note(words_of_extension(r, run.at.settings));
  Table losses = table_of("rows", "Loss", run.rows);
  if (!run.fp8()) leave_out(losses, "clipped"), leave_out(losses, "flushed");
  record.add(Part{std::move(losses)});
  note(fmt::format("{} parameters in {} on {} tokens.", engine::param_count(r.recipe.model), name_of(r.recipe.precision), run.data.size()));
  return record;
}

Outcome outcome_of(Running& run, Record record) {
  Outcome outcome{std::move(record)};
  outcome.answer = run.stopped() ? Answer::failed : Answer::yes;
  outcome.stopped = run.stopped();
  if (!run.life) return outcome;
  outcome.said = run.life->name();
  if (run.stopped())
    outcome.said = run.life->stopped(fmt::format("after step {} of {}", run.at.step, run.r.schedule.steps), words_of_stop(run.r));
  else
    outcome.life.emplace(std::move(*run.life));
  return outcome;
}

}  // namespace

Outcome train_study(const TrainRun& asked, const Device& device, const Host& host, dist::Group* group) {
  TrainRun r = asked;
  const bool first = !group || group->first();
  if (r.recipe.formats().quantised()) r.recipe.scales = r.recipe.scales.value_or(engine::usual_scales);  // said in the settings
  if (r.threads == 0) r.threads = std::max(1, available_cores() / (group ? group->rendezvous().local_ranks() : 1));
  const std::function<bool()> stop = [&] { return group ? group->stop(host.stop()) : host.stop(); };  // all ranks hear the same
  std::error_code unknown;
  const bool new_folder = !r.folder.empty() && !std::filesystem::exists(r.folder, unknown);
  Descriptor folder;
  if (!r.folder.empty() && first) folder = engine::claim_folder(r.folder);
  const auto newest = r.folder.empty() ? std::nullopt : engine::newest_checkpoint(r.folder);
  if (r.resume && group) check_that_ranks_see(newest, r.folder, *group);
  check_folders(r, first);
  const engine::Data data(r.data, r.format, r.recipe.model.vocab, r.held_out, r.documents, r.recipe.len);
  r.recipe.documents = data.packed();

  const std::uint64_t memory = limit_of_a_run(device, r.memory, group);
  const std::size_t of_sample = Arena::rounded(std::size_t(r.recipe.model.vocab) * 4);
  const bool keep_asked = r.recipe.keep.found();
  const std::uint64_t room = keep_asked ? 0 : std::min(memory, room_for_a_run(device, r.memory, group));
  find_keep_as_first(r.recipe, group, [&] { find_keep(r, room - std::min<std::uint64_t>(room, of_sample), device); });
  const std::string settings = settings_of(r, data);
  const std::size_t needed = engine::forecast_peak(r.recipe, device, r.threads) + of_sample;
  const std::size_t taken = group ? group->most(needed, "what they need") : needed;  // arenas of one size, on all ranks or on none
  if (memory > 0 && taken > memory) return does_not_fit(r, keep_asked, taken, memory);
  const std::size_t on_host = r.recipe.host() > 0 ? engine::forecast(r.recipe, device, r.threads).host_bytes : 0;
  if (const std::string why = host_misfit(on_host, device, group); !why.empty()) return does_not_fit(r, keep_asked, taken, memory, why);

  Place place(device, r.threads);
  const auto comm = group ? group->comm(device) : nullptr;
  const std::shared_ptr<void> shared = comm ? comm->take(taken) : nullptr;
  const PlaceMemory alone = place.take(comm ? 0 : taken);
  Arena arena(comm ? shared.get() : alone.data(), taken);
  Context ctx{arena, device, &place.threads(), place.stream()};
  const Tensor logits = ctx.arena.make("sample.logits", DType::f32, {1, r.recipe.model.vocab});
  Training t(r.recipe, ctx, comm.get());
  if (comm) engine::agree_on(fmt::format("{} seed {}", settings, r.seed), "a run", ctx, *comm);
  t.initialise(r.seed);

  engine::Position at{0, r.seed, settings};
  const std::string settings_before = begin(t, at, r, newest);
  if (!r.folder.empty()) engine::check_free(r.folder, at.step, r.schedule.steps);
  if (!r.folder.empty() && t.rank() == 0) engine::check_room_for(t, saves_after(at.step, r), r.folder);
  if (r.resume) host.say(words_of_beginning(r, newest, at.step, new_folder));
  Running run{
      .r = r, .data = data, .host = host, .stop = stop, .t = t, .hyper = r.recipe.served(r.hyper), .at = at, .resumed = newest.has_value()};
  if (t.rank() == 0) run.life.emplace(life_of(r, at, settings_before, device, host));
  host.announce(words_of_first_step(ctx.on_gpu()));
  t.warm();
  const engine::Recorded passes([&] { t.passes(run.hyper); }, ctx);
  run.start = std::chrono::steady_clock::now();
  try {
    take_steps(run, passes, ctx.on_gpu());
  } catch (const Error& e) {
    if (run.life && run.life->in_store() && !run.rows.empty())
      throw Error(e.at, fmt::format("{}; its losses are {}", e.what(), run.life->name()));
    throw;
  }
  return outcome_of(run, record_of(run, keep_asked, arena, needed, logits));
}

}  // namespace headroom::studies
