#include "studies/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/forecast.h"
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

double validation_loss(Training& t, const engine::Data& data) {
  const auto batches = data.validation_batches(t.recipe());
  double sum = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    data.validation(t, b);
    t.forward();
    sum += t.loss();
  }
  return sum / double(batches);  // NaN when the held-out part is shorter than one batch
}

std::string sampled(Training& t, const TrainRun& r, const Tensor& logits) {
  const auto len = t.recipe().len;
  std::string text = "\n";
  const Random random = Random{r.seed}.stream(0x5a);
  for (std::int64_t n = 0; n < r.sample; ++n) {
    const auto have = std::min<std::int64_t>(len, std::int64_t(text.size()));
    std::vector<std::int32_t> tokens(std::size_t(t.tokens().count()), 0);
    for (std::int64_t i = 0; i < have; ++i) tokens[std::size_t(i)] = static_cast<unsigned char>(text[text.size() - std::size_t(have - i)]);
    t.feed(0, tokens, tokens);
    t.logits_at(have - 1, logits);
    const auto x = engine::values_of<float>(logits, t.context());
    const float top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (std::size_t v = 0; v < x.size(); ++v) sum += std::exp(double(x[v] - top) / r.temperature);
    double left = random.uniform(std::uint64_t(n)) * sum;
    std::size_t v = 0;
    for (; v + 1 < std::min<std::size_t>(x.size(), 256); ++v)
      if ((left -= std::exp(double(x[v] - top) / r.temperature)) < 0) break;
    text += char(v);
  }
  return text.substr(1);
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

}  // namespace

Record train_run(const TrainRun& r, const Device& device, int threads, const std::function<void(const TrainProgress&)>& show,
                 const std::function<bool()>& stop) {
  const engine::Data data(r.data, r.format, r.recipe.model.vocab, r.held_out);
  const std::string settings = settings_of(r, data);
  const std::size_t needed = engine::forecast_peak(r.recipe, device, threads) + Arena::rounded(std::size_t(r.recipe.model.vocab) * 4);
  check(device.memory_bytes == 0 || needed <= device.memory_bytes, Code::out_of_memory,
        "this needs {} bytes, {} are available; try --keep input or a smaller batch", needed, device.memory_bytes);
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
  }

  Table rows{"rows", "Loss", {{"step"}, {"loss"}, {"lr"}, {"grad_norm"}, {"tokens_per_s"}}, {}};
  const auto from = at.step;
  const double tokens_per_step = double(r.recipe.batch * r.recipe.len * r.recipe.micro_batches);
  adamw::Hyper hyper = r.hyper;
  hyper.dynamic_scale = r.recipe.precision.dtype == DType::f16;
  t.warm();
  const engine::Recorded passes([&] { t.passes(hyper); }, ctx);
  const auto start = std::chrono::steady_clock::now();
  double speed = 0;
  bool stopped = false;
  for (; at.step < r.schedule.steps && !stopped; stopped = stop()) {
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
      if (reported) rows.add({at.step, loss, rate, t.state(adamw::grad_norm), speed});
    }
    if (!r.folder.empty() && at.step % r.every == 0 && at.step < r.schedule.steps) engine::save(t, at, r.folder);
  }
  if (!r.folder.empty()) engine::save(t, at, r.folder);

  Record record{"", fmt::format("{} parameters on {} tokens", engine::param_count(r.recipe.model), data.size()), {}};
  record.add("step", at.step).add("stopped", stopped).add("tokens_per_s", speed);
  record.add("validation_loss", validation_loss(t, data)).add("unigram_entropy", data.unigram_entropy());
  record.add("peak_bytes", std::int64_t(arena.peak()), Unit::bytes).add("forecast_peak_bytes", std::int64_t(needed), Unit::bytes);
  if (r.sample > 0) record.add("sample", sampled(t, r, logits));
  return record.add(Part{rows});
}

}  // namespace headroom
