#include "studies/step/words.h"

#include <algorithm>

#include "base/json.h"
#include "engine/model/models.h"

namespace headroom::studies {

void check_needs_fp8(const engine::LeverLists& levers) {
  const bool fp8 = std::any_of(levers.precision.begin(), levers.precision.end(), [](Precision p) { return p.dtype == DType::e4m3; });
  const bool said = std::any_of(levers.scales.begin(), levers.scales.end(), [](const auto& scales) { return scales.has_value(); });
  check(fp8 || !said, Code::bad_argument, "--scales: only fp8 has scales; add --precision fp8, or leave it out");
  const auto& copies = levers.holding.copies;
  check(fp8 || std::find(copies.begin(), copies.end(), engine::WeightCopies::kept) == copies.end(), Code::bad_argument,
        "--copies kept: only fp8 has 8-bit copies of weights; add --precision fp8, or leave it out");
}

void check_served(const engine::LeverLists& levers, const Device& device, RunBy program) {
  check_needs_fp8(levers);
  const std::string why_not = program == RunBy::headroom ? why_no_kernels(device) : "";
  check(why_not.empty(), Code::bad_argument, "{}", why_not);
  for (const Precision p : levers.precision)
    check(p.math != Math::tf32 || device.kind != DeviceKind::cpu, Code::bad_argument,
          "--precision tf32 needs a GPU, and its bytes are fp32's; use fp32, or name a GPU, present or not, as in --device h200");
}

std::string words_of_first_step(bool on_gpu) { return on_gpu ? "first step: trying kernels, up to 20 s, once" : "first step"; }

}  // namespace headroom::studies

namespace headroom {

RowObject JsonOf<engine::Decoder>::to(const engine::Decoder& c) { return parse_json<RowObject>(engine::to_json(c), "a model"); }
engine::Decoder JsonOf<engine::Decoder>::from(const RowObject& j) {
  return engine::model_from_json(j.dump(), j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : "a model");
}

}  // namespace headroom
