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
#include "studies/train/after_training.h"
#include "studies/train/going_on.h"

namespace headroom::studies {

using engine::Training;

namespace {

std::string words_of_stop(const TrainRun& r) {
  const std::string not_written = r.hugging_face.empty() ? "" : fmt::format("'{}' was not written, that is for the end", r.hugging_face);
  if (r.folder.empty()) return "there was no --save" + (not_written.empty() ? "" : "; " + not_written);
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

}  // namespace

Outcome train_study(const TrainRun& asked, const Device& device, const Host& host, dist::Group* group) {
  TrainRun r = asked;
  const bool fp8 = r.recipe.formats().quantised();
  if (fp8) r.recipe.scales = r.recipe.scales.value_or(engine::usual_scales);  // said in the settings
  if (r.threads == 0) r.threads = std::max(1, available_cores() / (group ? group->rendezvous().local_ranks() : 1));
  const int threads = r.threads;
  const std::function<bool()> stop = [&] { return group ? group->stop(host.stop()) : host.stop(); };  // all ranks hear the same
  std::error_code unknown;
  const bool new_folder = !r.folder.empty() && !std::filesystem::exists(r.folder, unknown);
  Descriptor folder;
  if (!r.folder.empty() && (!group || group->first())) folder = engine::claim_folder(r.folder);
  const auto newest = r.folder.empty() ? std::nullopt : engine::newest_checkpoint(r.folder);
  if (r.resume && group) check_that_ranks_see(newest, r.folder, *group);
  std::error_code no_such_folder;
  check(r.init.empty() || r.hugging_face.empty() || !std::filesystem::equivalent(r.init, r.hugging_face, no_such_folder),
        Code::bad_argument, "--save-hf: '{}' is the folder of --init, whose weights it would replace; name another folder", r.hugging_face);
  if (!r.hugging_face.empty() && (!group || group->first())) engine::check_pretrained_place(r.recipe.model, r.hugging_face);
  const engine::Data data(r.data, r.format, r.recipe.model.vocab, r.held_out, r.documents, r.recipe.len);
  r.recipe.documents = data.packed();
  const std::uint64_t memory = limit_of_a_run(device, r.memory, group);
  const std::size_t of_sample = Arena::rounded(std::size_t(r.recipe.model.vocab) * 4);
  const bool keep_asked = r.recipe.keep.found();
  const std::uint64_t room = keep_asked ? 0 : std::min(memory, room_for_a_run(device, r.memory, group));
  find_keep_as_first(r.recipe, group, [&] { find_keep(r, room - std::min<std::uint64_t>(room, of_sample), device); });
  const std::string settings = settings_of(r, data);
  const std::size_t needed = engine::forecast_peak(r.recipe, device, threads) + of_sample;
  const std::size_t taken = group ? group->most(needed, "what they need") : needed;  // arenas of one size, on all ranks or on none
  if (memory > 0 && taken > memory) return does_not_fit(r, keep_asked, taken, memory);
  const std::size_t on_host = r.recipe.host() > 0 ? engine::forecast(r.recipe, device, threads).host_bytes : 0;
  if (const std::string why = host_misfit(on_host, device, group); !why.empty()) return does_not_fit(r, keep_asked, taken, memory, why);
  Place place(device, threads);
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
  std::string settings_before;
  check(!newest || r.resume, Code::bad_argument, "'{}' already has {}; --resume continues from it, another --save starts a new run",
        r.folder, newest.value_or(""));
  if (newest) {
    at.step = with_remedy([&] {
      const auto described = engine::describe_checkpoint(*newest);
      check(described.position.seed == r.seed, Code::bad_argument, "'{}' was trained with --seed {}, this run asks for {}", *newest,
            described.position.seed, r.seed);
      settings_before = described.position.settings;
      at.settings = settings_going_on(r, settings, settings_before, described.position.step, *newest);
      engine::load(t, *newest);
      return described.position.step;
    });
  } else if (!r.init.empty()) {
    begin_with(t, r.init);
  }

  if (!r.folder.empty()) engine::check_free(r.folder, at.step, r.schedule.steps);
  if (!r.folder.empty() && t.rank() == 0) engine::check_room_for(t, saves_after(at.step, r), r.folder);
  if (r.resume) host.say(words_of_beginning(r, newest, at.step, new_folder));

  std::optional<Life> life;
  if (t.rank() == 0) life.emplace(life_of(r, at, settings_before, device, host));
  std::vector<TrainRow> rows;
  const auto from = at.step;
  double tokens = 0;                       // predicted since it began
  double tokens_before = 0, s_before = 0;  // as of the row before
  const engine::Optimizer::Hyper hyper = r.recipe.served(r.hyper);
  t.warm();
  const engine::Recorded passes([&] { t.passes(hyper); }, ctx);
  const auto start = std::chrono::steady_clock::now();
  double speed = 0;
  const auto with_place_of_losses = [&](const Error& e) {
    return life && life->in_store() && !rows.empty() ? Error(e.at, fmt::format("{}; its losses are {}", e.what(), life->name())) : e;
  };
  try {
    while (at.step < r.schedule.steps && !stop()) {
      for (int micro = 0; micro < r.recipe.micro_batches; ++micro) data.draw(t, r.seed, at.step, micro);
      tokens += double(data.drawn(r.recipe, r.seed, at.step));
      const double rate = r.schedule.at(at.step);
      t.set_rate(rate);
      passes();
      ++at.step;
      const bool reported = at.step % r.log_every == 0 || at.step == r.schedule.steps || at.step == 1;
      if (reported || !ctx.on_gpu()) {  // a GPU is not asked after every step: an answer makes it wait for the host
        // An update with a gradient that is not finite changed nothing. fp16 goes on with a smaller loss scale while there is one.
        const double loss = t.loss();
        if (!std::isfinite(loss)) stop_for("loss", at.step, t.first_not_finite(), r.folder);
        const bool lost = hyper.dynamic_scale ? t.state(engine::Optimizer::skipped) != 0 && t.state(engine::Optimizer::loss_scale) <= 1
                                              : t.state(engine::Optimizer::updates) != double(at.step);
        if (lost) stop_for("gradient", at.step, t.first_gradient_not_finite(), r.folder);
        const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        speed = tokens / s;
        host.progress(double(at.step - from) / double(r.schedule.steps - from),
                      fmt::format("step {} of {}, loss {:.3f}, {:.0f} tokens/s", at.step, r.schedule.steps, loss, speed));
        TrainRow row{.step = at.step, .loss = loss, .lr = rate, .grad_norm = {}, .tokens_per_s = (tokens - tokens_before) / (s - s_before)};
        if (reported) tokens_before = tokens, s_before = s;
        if (r.recipe.knows_norm()) row.grad_norm = t.state(engine::Optimizer::grad_norm);
        if (fp8) {
          const QuantisedRow q = sum_of(t.quantised());
          row.clipped = q.clipped;
          row.flushed = double(q.flushed) / double(q.numbers);
        }
        if (reported && life) life->keep(key_of(row), json_of(row));
        if (reported) rows.push_back(row);
      }
      if (!r.folder.empty() && at.step % r.every == 0 && at.step < r.schedule.steps) save_good(t, at, r.folder);
    }
    if (!r.folder.empty() && at.step > from) save_good(t, at, r.folder);
    if (!r.hugging_face.empty() && at.step == r.schedule.steps) engine::save_pretrained(t, r.hugging_face);
  } catch (const Error& e) { throw with_place_of_losses(e); }
  const bool stopped = at.step < r.schedule.steps;

  const Value validation = stopped ? Value{} : validation_loss(t, data, r.validation_batches, stop);
  const std::string done = counted(std::uint64_t(at.step), "step");
  std::string answer = stopped                     ? fmt::format("Stopped after {} of {} steps", at.step, r.schedule.steps)
                       : newest && at.step == from ? fmt::format("No step was left to train, {} were done before", done)
                                                   : fmt::format("{} done", done);
  if (!rows.empty()) answer += fmt::format(": loss {:.3f}", rows.back().loss);
  if (const double* held_out = std::get_if<double>(&validation))
    answer += fmt::format("{} of held-out data {:.3f}", rows.empty() ? ": loss" : ",", *held_out);
  if (speed > 0) answer += fmt::format("; {} tokens/s", number_in_words(speed));
  Record record{"", fmt::format("{}, {}.", answer, bytes_in_words(double(arena.peak()))), {}};
  if (const auto words = data.documents_in_words(); !words.empty()) record.add(Part{Note{words}});
  if (fp8 && at.step > from) record.add(Part{Note{in_words(r.recipe, t.quantised())}});
  record.add("from_step", from).add("step", at.step).add("stopped", stopped).add("tokens_per_s", speed);
  if (!stopped) record.add("validation_loss", validation);
  record.add("unigram_entropy", data.unigram_entropy());
  if (!keep_asked) record.add("kept", engine::kept_in_words(r.recipe));
  record.add("peak_bytes", std::int64_t(arena.peak()), Unit::bytes).add("forecast_peak_bytes", std::int64_t(needed), Unit::bytes);
  if (t.host_keep()) record.add("host_bytes", std::int64_t(t.host_keep()->host_bytes()), Unit::bytes);
  if (!stopped && data.validation_batches(r.recipe) == 0)
    record.add(
        Part{Note{r.recipe.documents ? "No validation loss: no document is held out; the last one is more than a tenth of the tokens."
                                     : "No validation loss: the held-out part of the data is shorter than one batch."}});
  if (r.sample > 0 && !stopped) record.add("sample", sampled(t, r, logits, stop));
  if (const auto words = words_of_extension(r, at.settings); !words.empty()) record.add(Part{Note{words}});
  Table losses = table_of("rows", "Loss", rows);
  if (!fp8) leave_out(losses, "clipped"), leave_out(losses, "flushed");
  record.add(Part{std::move(losses)});
  record.add(Part{Note{
      fmt::format("{} parameters in {} on {} tokens.", engine::param_count(r.recipe.model), name_of(r.recipe.precision), data.size())}});
  Outcome outcome{std::move(record)};
  outcome.answer = stopped ? Answer::failed : Answer::yes;
  outcome.stopped = stopped;
  if (!life) return outcome;
  outcome.said = life->name();
  if (stopped)
    outcome.said = life->stopped(fmt::format("after step {} of {}", at.step, r.schedule.steps), words_of_stop(r));
  else
    outcome.life.emplace(std::move(*life));
  return outcome;
}

}  // namespace headroom::studies
