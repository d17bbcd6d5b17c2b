#include "engine/recipe/recipe.h"

#include <algorithm>
#include <numeric>

#include "ops/matmul/matmul.h"

namespace headroom::engine {

std::vector<int> Recipe::blocks_that_keep() const {
  std::vector<int> all;
  for (int i = 0; i < int(model.depth()); ++i)
    if (keep_of(i) != Keep::input) all.push_back(i);
  return all;
}

std::vector<int> Recipe::blocks_on_host() const {
  std::vector<int> all = blocks_that_keep();
  const auto of = std::int64_t(all.size());
  std::int64_t n = 0;
  std::erase_if(all, [&](int) { return n++ * host() % of >= host(); });
  return all;
}

Recipe recipe_of(Decoder model, std::int64_t batch, std::int64_t len, const Levers& levers, Purpose purpose, const Ranks& ranks) {
  Recipe r(std::move(model), batch, len);
  r.levers() = levers;
  r.purpose = purpose;
  r.ranks = ranks;
  if (r.formats().quantised()) r.scales = r.scales.value_or(usual_scales);
  return r;
}

namespace {

void check_sizes(const Recipe& r) {
  check(r.model);
  check(r.batch >= 1 && r.len >= 1, Code::bad_argument, "step: batch {} and len {} must be at least 1", r.batch, r.len);
  check(double(r.batch) * double(r.len) < 0x1p31, Code::bad_argument, "step: batch {} times len {} is past 2^31 tokens", r.batch, r.len);
}

void check_keeping(const Recipe& r) {
  check(r.keep.levels.size() <= 1 || std::int64_t(r.keep.levels.size()) == r.model.depth(), Code::bad_argument,
        "step: {} keep levels for {} blocks; give one, or one for each", r.keep.levels.size(), r.model.depth());
  check(r.group() >= 1 && r.group() <= std::max<std::int64_t>(r.model.depth(), 1), Code::bad_argument,
        "step: groups of {} blocks, and {} has {}; --keep groups:K takes 2 to that many", r.group(), r.model.name, r.model.depth());
  check(r.group() == 1 || r.keep.levels.size() <= 1, Code::bad_argument, "step: blocks in groups keep one level, {} were given",
        r.keep.levels.size());
  const std::int64_t keeping = std::int64_t(r.blocks_that_keep().size());
  check(r.host() == 0 || keeping > 0, Code::bad_argument,
        "step: blocks that keep only their input have nothing to move to the host; name another level, as in --keep host:everything");
  check(r.host() >= 0 && r.host() <= keeping, Code::bad_argument,
        "step: {} blocks keep their tensors on the host, and {} of {} keep more than their input; --keep host:N takes 1 to that many",
        r.host(), keeping, r.model.depth());
  check(r.host() == 0 || r.group() == 1, Code::bad_argument, "step: blocks in groups keep nothing that could wait on the host");
  check(r.host() == 0 || r.model.trained(), Code::unsupported,
        "step: what waits on the host is forecast for models that are trained here; {} is only counted", r.model.name);
  check(r.model.trained() || std::count(r.keep.levels.begin(), r.keep.levels.end(), Keep::gate_up_fp8) == 0, Code::unsupported,
        "step: --keep gate-up-fp8 is forecast for models that are trained here; {} is only counted. no-cheap is served", r.model.name);
}

void check_formats(const Recipe& r) {
  const DType stored = r.formats().stored.dtype;
  check(size_of(stored) >= 2, Code::unsupported, "step: {} is not served; fp32, tf32, bf16, fp16 and fp8 are", name_of(r.precision));
  check(!r.scales || r.formats().quantised(), Code::bad_argument, "step: only fp8 has scales, {} was asked; leave --scales out",
        name_of(r.precision));
  check(!r.formats().quantised() || r.model.trained(), Code::unsupported,
        "step: fp8 is forecast for models that are trained here; {} is only counted. bf16 is served", r.model.name);
}

void check_holding(const Recipe& r) {
  const DType stored = r.formats().stored.dtype;
  check(r.micro_batches >= 1, Code::bad_argument, "step: {} micro-batches; it must be at least 1", r.micro_batches);
  check(r.holding.updating == Updating::after || (r.micro_batches == 1 && !r.model.tied && r.precision.dtype != DType::f16),
        Code::bad_argument, "step: updating during backward needs one micro-batch, a head of its own and no loss scaling (fp16)");
  check(r.holding.masters == Masters::whole || stored == DType::bf16, Code::bad_argument,
        "step: masters in halves need bf16 or fp8, {} was asked", name_of(r.precision));
  check(r.holding.gradients != Gradients::none || (r.holding.masters == Masters::halves && r.holding.updating == Updating::during),
        Code::bad_argument, "step: gradients none need --masters halves and --update during; {} and {} were asked",
        name_of(r.holding.masters), name_of(r.holding.updating));
  check(r.holding.gradients == Gradients::whole || size_of(stored) == 2, Code::bad_argument,
        "step: gradients in half need bf16, fp16 or fp8; {} was asked", name_of(r.precision));
  check(r.ranks.count == 1 || r.holding.gradients != Gradients::none, Code::bad_argument,
        "step: gradients none let a product update its weight, and with {} ranks it has only this rank's part of the gradient; take half",
        r.ranks.count);
  check(r.holding.copies == WeightCopies::made || (r.formats().quantised() && r.ranks.count == 1), Code::bad_argument,
        "step: 8-bit copies of weights are kept in fp8 and on one rank; {} on {} was asked. --copies made is served", name_of(r.precision),
        r.ranks.count);
  check(r.ranks.count >= 1 && r.ranks.count <= 1 << 20, Code::bad_argument, "step: {} ranks; 1 to {} are served", r.ranks.count, 1 << 20);
}

void check_split_tokens(const Recipe& r) {
  if (!r.ranks.split_tokens) return;
  const std::int64_t stripes = 2 * std::int64_t(r.ranks.count);
  check(r.ranks.count > 1, Code::bad_argument, "step: tokens are split over ranks, and there is one; give --ranks or --gpus");
  check(r.len % stripes == 0, Code::bad_argument,
        "step: len {} is split over {} ranks in two stripes each; make it a multiple of {}, {} for one", r.len, r.ranks.count, stripes,
        std::max<std::int64_t>(stripes, r.len / stripes * stripes));
  check(r.model.trained(), Code::unsupported, "step: tokens of a model that is only counted ({}) are not split", r.model.name);
  check(r.model.positions == 0, Code::bad_argument,
        "step: tokens of a model with learned positions ({}) are not split; leave --split-tokens out", r.model.name);
}

void check_documents(const Recipe& r) {
  if (!r.documents) return;
  check(!r.ranks.split_tokens, Code::bad_argument, "step: rows of packed documents are not split over ranks; leave --split-tokens out");
  check(r.model.trained(), Code::unsupported, "step: a model that is only counted ({}) has no packed documents; leave --documents out",
        r.model.name);
  check(r.len <= attention::longest_in_32_bits, Code::bad_argument, "step: packed rows of {} tokens are past 2^29", r.len);
}

}  // namespace

void check(const Recipe& r) {
  check_sizes(r);
  check_keeping(r);
  check_formats(r);
  check_holding(r);
  check_split_tokens(r);
  check_documents(r);
  check(r.loss_rows >= 0, Code::bad_argument, "step: loss_rows is {}, it must be at least 0", r.loss_rows);
  check_tokens(r.model, r.len);
}

namespace {
constexpr std::int64_t fp8_multiple = 16;  // numbers that a GPU's 8-bit units take at once
bool fp8_on_gpu(const Recipe& r, const Device& device) { return r.formats().quantised() && device.kind == DeviceKind::cuda; }
}  // namespace

std::int64_t served_from(const Recipe& r, const Device& device, std::int64_t other, std::int64_t n) {
  if (!fp8_on_gpu(r, device)) return n;
  const std::int64_t by = fp8_multiple / std::gcd(fp8_multiple, other);
  return (n + by - 1) / by * by;
}

void check_fp8(const Recipe& r, const Device& device) {
  if (!fp8_on_gpu(r, device)) return;
  const Support s = products_in(r.formats(), device);
  check(s.ok, Code::unsupported, "step: fp8 with scales by {}: {}. bf16 is served{}", names_of<Scales>.of(r.scales.value_or(usual_scales)),
        s.why, device.sm >= 89 && r.formats().weight.scale != ScaleKind::one ? ", and --scales tensor" : "");
  const std::string misfit = fp8_misfit(r, device);
  check(misfit.empty(), Code::unsupported, "step: {}", misfit);
}

// A product adds over each of these at some time.
std::string fp8_misfit(const Recipe& r, const Device& device) {
  if (!fp8_on_gpu(r, device)) return "";
  std::string said;
  const auto multiple = [&](const char* what, std::int64_t n) {
    if (said.empty() && n % fp8_multiple != 0) said = fmt::format("{} is {}; fp8 on a GPU needs a multiple of {}", what, n, fp8_multiple);
  };
  multiple("the width", r.model.width);
  multiple("batch times len", r.batch * r.len);
  for (const auto& [a, f] : r.model.layers) {
    multiple("the width of q, k and v together", a.q_width() + a.k_width() + a.v_width());
    multiple("the width of q", a.q_width());
    multiple("the feed-forward width", f.width);
  }
  return said;
}

}  // namespace headroom::engine
