// Models that people name: their config.json, and how many parameters the makers say they have.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headroom::engine {

struct Published {
  std::string_view name;
  std::int64_t parameters;  // as published, or as transformers' model.num_parameters() counts
  std::string_view config;
};

std::span<const Published> published_models();
// In any case, with or without the organisation before it and -Instruct in it, and by other names of the hub; null: there is none of that name.
const Published* published_model(std::string_view typed);

}  // namespace headroom::engine
