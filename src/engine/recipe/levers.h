// Levers — the choices of a training step beside its model and sizes, each described once. Options, requests in JSON, rows, the keys of
// --resume, checkpoints, the search of `headroom plan` and the agreement between ranks walk this description.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/precision_words.h"
#include "engine/pass/head.h"
#include "engine/recipe/formats.h"
#include "engine/recipe/keep.h"
#include "engine/store/store.h"

namespace headroom::engine {

template <class T>
using Several = std::vector<T>;  // values to try

template <template <class> class Say>
struct LeversOf {
  Say<Precision> precision{Precision{}};             // dtype of activations and products; bf16, fp16 and fp8 keep FP32 master weights
  Say<std::optional<Scales>> scales{std::nullopt};   // fp8's scales; none: the usual ones
  Say<std::string> attention{std::string("flash")};  // a family or a variant
  Say<Keeping> keep{Keeping()};
  Say<Logits> logits{Logits::whole};
  HoldingOf<Say> holding{};

  friend bool operator==(const LeversOf&, const LeversOf&) = default;
};
using Levers = LeversOf<One>;
using LeverLists = LeversOf<Several>;

template <class T>
inline constexpr bool is_levers = false;
template <template <class> class Say>
inline constexpr bool is_levers<LeversOf<Say>> = true;

std::vector<std::string> trained_precisions();  // as words
Precision usual_precision(const Device&);       // the default: bf16 on a GPU (fp16 before Ampere), FP32 on a CPU
std::vector<std::string> attention_families();

template <class L>
requires is_levers<std::remove_cvref_t<L>>
void describe(L&& l, auto&& f) {
  f(l.precision, {.name = "precision", .about = "Dtype of activations and matmuls; the optimiser is fp32", .choices = trained_precisions});
  f(l.scales, {.name = "scales", .about = about_scales});
  f(l.attention, {.name = "attention", .about = "Attention variant", .choices = attention_families});
  f(l.keep, {.name = "keep", .about = about_keep, .option = "--keep,--recompute"});
  f(l.logits, {.name = "logits", .about = "Dtype of logits. whole: FP32; half: the precision's, whose rounding the loss then sees"});
  describe(l.holding, f);
}

// Every combination of the values, the first lever changing slowest. Without fp8 there are no scales, and such a combination comes once.
std::vector<Levers> each_of(const LeverLists&);
// The only combination; an Error names an option that was given several values. who: "a profile".
Levers only_of(const LeverLists&, std::string_view who);
// Names and words of the levers that differ from the default; `except`: those that are printed elsewhere.
std::vector<std::pair<std::string, std::string>> changed(const Levers&, std::initializer_list<std::string_view> except = {});
std::string changed_in_words(const Levers&, std::initializer_list<std::string_view> except = {});  // "masters halves, logits half"
LeverLists lists_of(const Levers&);                                                                // lists of one value each

struct LeverColumns {
  std::initializer_list<std::string_view> shown;   // always shown; the others in detail
  std::initializer_list<std::string_view> paired;  // two runs have no row in common where these differ; the others may be compared
};

// Levers as columns of a row.
template <class L>
requires is_levers<std::remove_cvref_t<L>>
void describe_columns(L&& l, auto&& f, const LeverColumns& columns) {
  const auto has = [](std::initializer_list<std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  describe(l, [&](auto& member, Description d) {
    d.show = has(columns.shown, d.name) ? Show::always : Show::detail;
    if (!has(columns.paired, d.name)) d.role = headroom::Role::varied;
    f(member, d);
  });
}

}  // namespace headroom::engine
