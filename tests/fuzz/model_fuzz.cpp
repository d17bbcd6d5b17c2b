// A model's configuration, ours or a Hugging Face one: sizes within their limits that survive being written and read again, or a
// refusal in our own words.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "engine/model/models.h"
#include "engine/model/params.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto c = engine::model_from_json(text, "fuzzed");
    const auto again = engine::model_from_json(engine::to_json(c), "again");
    if (engine::param_count(c) <= 0 || engine::param_count(again) != engine::param_count(c)) std::abort();
  } catch (const Error& e) {
    const auto has = [](std::string_view where) { return where.find("[json.") != std::string_view::npos; };
    if ((has(e.what()) && !has(text)) || !*e.what()) std::abort();
  }
  return 0;
}
