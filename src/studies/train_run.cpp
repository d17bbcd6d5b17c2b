#include "studies/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/forecast.h"
#include "engine/pretrained.h"
#include "engine/recorded.h"
#include "engine/save.h"
#include "engine/transfer.h"
#include "gpu/place.h"

namespace headroom {

using engine::Training;

namespace {

// Everything that must be the same for a resumed run to give the same bits.
std::string settings_of(const TrainRun& r, const engine::Data& data) {
  nlohmann::json keep = nlohmann::json::array();
  for (auto k : r.recipe.keep) keep.push_back(name_of(k));
  return nlohmann::json{{"batch", r.recipe.batch},
                        {"len", r.recipe.len},
                        {"precision", name_of(r.recipe.precision)},
                        {"attention", r.recipe.attention},
                        {"micro_batches", r.recipe.micro_batches},
                        {"masters", engine::name_of(r.recipe.holding.masters)},
                        {"gradients", engine::name_of(r.recipe.holding.gradients)},
                        {"update", engine::name_of(r.recipe.holding.updating)},
                        {"lr", r.schedule.peak},
                        {"floor", r.schedule.floor},
                        {"warmup", r.schedule.warmup},
                        {"steps", r.schedule.steps},
                        {"decay", r.hyper.decay},
                        {"clip", r.hyper.clip},
                        {"beta1", r.hyper.beta1},
                        {"beta2", r.hyper.beta2},
                        {"held_out", r.held_out},
                        {"data", data.fingerprint()}}
      .dump();
}

// NaN when the held-out part is shorter than one batch.
double validation_loss(Training& t, const engine::Data& data, std::int64_t most) {
  const auto all = data.validation_batches(t.recipe()), taken = most > 0 ? std::min(all, most) : all;
  double sum = 0;
  for (std::int64_t b = 0; b < taken; ++b) {
    data.validation(t, b * all / taken);
    t.forward();
    sum += t.loss();
  }
  return sum / double(taken);
}

std::int32_t drawn(const float* x, std::int64_t choices, double temperature, double uniform) {
  const float top = *std::max_element(x, x + choices);
  const auto weight = [&](std::int64_t v) { return std::exp(double(x[v] - top) / temperature); };
  double sum = 0;
  for (std::int64_t v = 0; v < choices; ++v) sum += weight(v);
  double left = uniform * sum;
  std::int64_t v = 0;
  while (v + 1 < choices && (left -= weight(v)) >= 0) ++v;
  return std::int32_t(v);
}

// A text goes on from the prompt, token numbers from token 0; each new token is a run of the model over the last `len`.
std::string sampled(Training& t, const TrainRun& r, const Tensor& logits) {
  const bool text = r.format == engine::TokenFormat::text;
  const std::string prompt = !text ? std::string(1, '\0') : r.prompt.empty() ? "\n" : r.prompt;
  std::vector<std::int32_t> all;
  for (unsigned char c : prompt) all.push_back(c);
  const auto len = t.recipe().len, vocab = t.recipe().model.vocab;
  for (auto token : all) check(token < vocab, Code::bad_argument, "--prompt: byte {} is beyond the vocabulary of {}", token, vocab);
  const Random random = Random{r.seed}.stream(0x5a);
  std::string out;
  for (std::int64_t n = 0; n < r.sample; ++n) {
    const auto have = std::min<std::int64_t>(len, std::int64_t(all.size()));
    std::vector<std::int32_t> tokens(std::size_t(t.tokens().count()), 0);
    std::copy_n(all.end() - have, have, tokens.begin());
    t.feed(0, tokens, tokens);
    t.logits_at(have - 1, logits);
    const auto x = engine::values_of<float>(logits, t.context());
    all.push_back(drawn(x.data(), text ? std::min<std::int64_t>(vocab, 256) : vocab, r.temperature, random.uniform(std::uint64_t(n))));
    out += text ? std::string(1, char(all.back())) : fmt::format("{}{}", n ? " " : "", all.back());
  }
  return out;
}

void refuse_other_settings(const std::string& mine, const std::string& theirs, const std::string& path) {
  if (mine == theirs) return;
  const auto a = nlohmann::json::parse(mine), b = nlohmann::json::parse(theirs, nullptr, false);
  check(b.is_object(), Code::io, "'{}' has damaged settings", path);
  for (const auto& [key, value] : a.items())
    check(b.contains(key) && b[key] == value, Code::bad_argument,
          "'{}' was trained with {} {}, this run asks for {}; resume with the same, or save elsewhere", path, key,
          b.contains(key) ? b[key].dump() : "unknown", value.dump());
}

[[noreturn]] void stop_for(const char* what, std::int64_t step, const std::string& where, const std::string& folder) {
  throw Error(Code::interrupted,
              fmt::format("the {} of step {} is not finite; it begins in {}. {}", what, step, where,
                          folder.empty() ? "Try a smaller --lr"
                                         : fmt::format("The checkpoints in '{}' are untouched; try a smaller --lr", folder)));
}

// An update during backward looks at no gradient before it is made, so weights may have become not finite: then their loss is.
void save_good(Training& t, const engine::Position& at, const std::string& folder) {
  if (t.recipe().holding.updating == engine::Updating::during) {
    t.forward();
    if (!std::isfinite(t.loss())) stop_for("loss after the update", at.step, t.first_not_finite(), folder);
  }
  engine::save(t, at, folder);
}

void begin_with(Training& t, const std::string& folder) {
  if (const auto checkpoint = engine::newest_checkpoint(folder)) return engine::load_weights(t, *checkpoint);
  engine::load_pretrained(t, folder);
}

}  // namespace

engine::ModelConfig model_of_init(const std::string& folder) {
  if (const auto checkpoint = engine::newest_checkpoint(folder)) return engine::describe_checkpoint(*checkpoint).model;
  return engine::pretrained_model(folder);
}

Trained train_run(const TrainRun& r, const Device& device, int threads, const std::function<void(const TrainProgress&)>& show,
                  const std::function<bool()>& stop) {
  const engine::Data data(r.data, r.format, r.recipe.model.vocab, r.held_out);
  const std::string settings = settings_of(r, data);
  const std::size_t needed = engine::forecast_peak(r.recipe, device, threads) + Arena::rounded(std::size_t(r.recipe.model.vocab) * 4);
  check(device.memory_bytes == 0 || needed <= device.memory_bytes, Code::out_of_memory,
        "this needs {}, {} are available; try --keep input, a smaller --batch with more --micro-batches, or headroom plan",
        bytes_in_words(double(needed)), bytes_in_words(double(device.memory_bytes)));
  Place place(device, threads);
  const PlaceMemory memory = place.take(needed);
  Arena arena(memory.data(), memory.bytes());
  Context ctx{arena, device, &place.threads(), place.stream()};
  const Tensor logits = ctx.arena.make("sample.logits", DType::f32, {1, r.recipe.model.vocab});
  Training t(r.recipe, ctx);
  t.initialise(r.seed);

  engine::Position at{0, r.seed, settings};
  const auto newest = r.folder.empty() ? std::nullopt : engine::newest_checkpoint(r.folder);
  check(!newest || r.resume, Code::bad_argument, "'{}' already holds {}; --resume goes on from it, another --save starts afresh", r.folder,
        newest.value_or(""));
  if (newest) {
    const auto described = engine::describe_checkpoint(*newest);
    check(described.position.seed == r.seed, Code::bad_argument, "'{}' was trained with --seed {}, this run asks for {}", *newest,
          described.position.seed, r.seed);
    refuse_other_settings(settings, described.position.settings, *newest);
    engine::load(t, *newest);
    at.step = described.position.step;
  } else if (!r.init.empty()) {
    begin_with(t, r.init);
  }

  Table rows{"rows", "Loss", {{"step"}, {"loss"}, {"lr"}, {"grad_norm"}, {"tokens_per_s"}}, {}};
  const auto from = at.step;
  const double tokens_per_step = double(r.recipe.batch * r.recipe.len * r.recipe.micro_batches);
  adamw::Hyper hyper = r.hyper;
  hyper.dynamic_scale = r.recipe.precision.dtype == DType::f16;
  const bool norm_is_known = r.recipe.holding.updating == engine::Updating::after;
  if (!norm_is_known) hyper.clip = 0;
  t.warm();
  const engine::Recorded passes([&] { t.passes(hyper); }, ctx);
  const auto start = std::chrono::steady_clock::now();
  double speed = 0;
  while (at.step < r.schedule.steps && !stop()) {
    for (int micro = 0; micro < r.recipe.micro_batches; ++micro) data.draw(t, r.seed, at.step, micro);
    const double rate = r.schedule.at(at.step);
    t.set_rate(rate);
    passes();
    ++at.step;
    const bool reported = at.step % r.report_every == 0 || at.step == r.schedule.steps || at.step == 1;
    if (reported || !ctx.on_gpu()) {  // a GPU is not asked after every step: an answer makes it wait for the host
      // An update with a gradient that is not finite changed nothing. fp16 goes on with a smaller loss scale while there is one.
      const double loss = t.loss();
      if (!std::isfinite(loss)) stop_for("loss", at.step, t.first_not_finite(), r.folder);
      const bool lost = hyper.dynamic_scale ? t.state(adamw::skipped) != 0 && t.state(adamw::loss_scale) <= 1
                                            : t.state(adamw::updates) != double(at.step);
      if (lost) stop_for("gradient", at.step, t.first_gradient_not_finite(), r.folder);
      speed = tokens_per_step * double(at.step - from) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      show({at.step, r.schedule.steps, loss, speed});
      Value norm;
      if (norm_is_known) norm = t.state(adamw::grad_norm);
      if (reported) rows.add({at.step, loss, rate, norm, speed});
    }
    if (!r.folder.empty() && at.step % r.every == 0 && at.step < r.schedule.steps) save_good(t, at, r.folder);
  }
  if (!r.folder.empty() && at.step > from) save_good(t, at, r.folder);
  const bool stopped = at.step < r.schedule.steps;

  Record record{"", fmt::format("{} parameters on {} tokens", engine::param_count(r.recipe.model), data.size()), {}};
  record.add("step", at.step).add("stopped", stopped).add("tokens_per_s", speed);
  if (!stopped) record.add("validation_loss", validation_loss(t, data, r.validation_batches));
  record.add("unigram_entropy", data.unigram_entropy());
  record.add("peak_bytes", std::int64_t(arena.peak()), Unit::bytes).add("forecast_peak_bytes", std::int64_t(needed), Unit::bytes);
  if (r.sample > 0 && !stopped) record.add("sample", sampled(t, r, logits));
  return {record.add(Part{rows}), at.step, stopped};
}

}  // namespace headroom
