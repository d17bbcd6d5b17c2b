#include "engine/params.h"

#include <fmt/format.h>

#include <array>

#include "engine/decoder.h"

namespace headroom::engine {

std::string ParamSpec::full_name() const { return layer < 0 ? std::string(name) : fmt::format("blocks.{}.{}", layer, name); }

namespace {

const char* name_of_segment(const ParamSpec& s) {
  if (s.role == Role::embedding) return "embedding";
  if (s.role == Role::positions) return "positions";
  if (s.layer < 0) return s.multiplied ? "head" : "final_norm";
  return s.multiplied ? "matrices" : "vectors";
}

// Gives every parameter its segment, and its place there.
void place(std::vector<ParamSpec>& table) {
  struct Run {  // of the group in hand: its segment's number once it has one, and its elements so far
    int number = -1;
    std::int64_t elements = 0;
  };
  std::array<Run, 2> runs;
  int segments = 0, group = -1;
  for (ParamSpec& s : table) {
    if (s.group != group) group = s.group, runs = {};
    Run& run = runs[s.multiplied ? 1 : 0];
    if (run.number < 0) run.number = segments++;
    s.segment = run.number;
    s.at = run.elements;
    run.elements += round_up(s.shape.count(), grain);
  }
}

}  // namespace

std::vector<ParamSpec> param_table(const ModelConfig& c) {
  auto table = param_table(decoder_of(c));
  place(table);
  return table;
}

std::vector<Segment> segments_of(const std::vector<ParamSpec>& table) {
  std::vector<Segment> all;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const ParamSpec& s = table[i];
    if (s.segment == int(all.size())) all.push_back({name_of_segment(s), s.layer, s.group, s.multiplied, {}});
    Segment& segment = all[std::size_t(s.segment)];
    segment.params.push_back(int(i));
    segment.elements = s.at + round_up(s.shape.count(), grain);
  }
  return all;
}

std::int64_t param_count(const ModelConfig& c) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(c)) sum += s.shape.count();
  return sum;
}

}  // namespace headroom::engine
