#include "studies/comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "store/row_objects.h"

namespace headroom::studies {

namespace {

using Json = nlohmann::json;

bool is_time(const std::string& field) { return field == "ms" || field.ends_with("_ms"); }

Json question_of(const Json& row) {
  Json q = Json::object();
  for (const auto& [name, value] : row.items())
    if (!value.is_structured() && !is_measured(name)) q[name] = value;
  return q;
}

std::string in_words(const Json& question) {
  std::vector<std::string> words;
  for (const auto& [name, value] : question.items())
    words.push_back(value.is_string() ? value.get<std::string>() : fmt::format("{} {}", name, value.dump()));
  return joined(words, " ");
}

double number(const Json& row, const std::string& name, double otherwise) {
  const auto at = row.find(name);
  return at != row.end() && at->is_number() ? at->get<double>() : otherwise;
}

std::string status_of(const Json& row) {  // another program's may be a number
  const auto at = row.find("status");
  return at != row.end() && at->is_string() ? at->get<std::string>() : "ok";
}

// Of the mean of x, relative to it; a single step says nothing of the next.
std::optional<double> relative_error(const Json& row, const std::string& field) {
  const double mean = number(row, field, 0), std = number(row, field + "_std", -1), steps = number(row, "steps", 0);
  if (mean <= 0 || std < 0 || steps < 2) return std::nullopt;
  return std / std::sqrt(steps) / mean;
}

std::string verdict_of(double ratio, double spread, double tolerance) {
  if (ratio - spread > 1 + tolerance) return "slower";
  if (ratio + spread < 1 / (1 + tolerance)) return "faster";
  if (ratio + spread <= 1 + tolerance && ratio - spread >= 1 / (1 + tolerance)) return "same";
  return "unclear";
}

}  // namespace

bool is_measured(const std::string& field) {
  constexpr std::string_view ends[] = {"_std", "_s", "_tflops", "_bytes", "_per_s", "mfu"};
  constexpr std::string_view whole[] = {"device", "status", "why", "steps", "warmup", "loss"};
  return is_time(field) || field.starts_with("max_error") ||
         std::any_of(std::begin(ends), std::end(ends), [&](auto e) { return field.ends_with(e); }) ||
         std::find(std::begin(whole), std::end(whole), field) != std::end(whole);
}

Comparison compare_runs(const ComparedRun& a, const ComparedRun& b, double tolerance) {
  Comparison c;
  Table t{"rows",
          fmt::format("{} against {}: time of B over time of A", b.name, a.name),
          {{"problem"}, {"time"}, {"a_ms", Unit::ms}, {"b_ms", Unit::ms}, {"ratio", Unit::ratio}, {"spread", Unit::share}, {"verdict"}},
          {}};
  std::int64_t faster = 0, slower = 0, same = 0, unclear = 0, alone = 0;
  std::vector<bool> used(b.rows.size(), false);
  for (const Json& row : a.rows) {
    const Json question = question_of(row);
    std::size_t other = 0;
    while (other < b.rows.size() && (used[other] || question_of(b.rows[other]) != question)) ++other;
    if (other == b.rows.size()) {
      ++alone;
      continue;
    }
    used[other] = true;
    ++c.pairs;
    const Json& partner = b.rows[other];
    const std::string problem = in_words(question), status_a = status_of(row), status_b = status_of(partner);
    if (status_a != status_b) {
      t.add({problem, std::string("status"), {}, {}, {}, {}, fmt::format("{} → {}", status_a, status_b)});
      if (status_a == "ok") ++slower;
    }
    for (const auto& [field, value] : row.items()) {
      const double x = number(row, field, 0), y = number(partner, field, 0);
      if (!is_time(field) || x <= 0 || y <= 0) continue;
      const double ratio = y / x;
      const auto error_a = relative_error(row, field), error_b = relative_error(partner, field);
      const auto spread = error_a && error_b ? std::optional(2 * std::hypot(*error_a, *error_b)) : std::nullopt;
      const std::string verdict = spread ? verdict_of(ratio, *spread * ratio, tolerance) : "unclear";
      ++(verdict == "slower" ? slower : verdict == "faster" ? faster : verdict == "same" ? same : unclear);
      t.add({problem, field == "ms" ? "step" : field.substr(0, field.size() - 3), x, y, ratio, spread ? Value(*spread) : Value(), verdict});
    }
  }
  alone += std::count(used.begin(), used.end(), false);
  c.slower = slower > 0;
  c.record.add(Part{std::move(t)});
  Record sum{"summary", "", {}};
  sum.add("faster", faster)
      .add("slower", slower)
      .add("same", same)
      .add("unclear", unclear)
      .add("without_partner", alone)
      .add("tolerance", tolerance, Unit::share);
  c.record.add(Part{std::move(sum)});
  return c;
}

}  // namespace headroom::studies
