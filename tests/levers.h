// Every lever of a step at every value, beside what the engine asks for with it. A lever that is described is tested; no list here.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/described_words.h"
#include "engine/model/plain_model.h"
#include "engine/recipe/recipe.h"

namespace headroom::engine {

struct LeverCase {
  std::string lever, word;
  Levers levers;
};

// Sizes that every lever takes, also on a GPU: the update inside products, and fp8.
inline Decoder model_of_levers() {
  return decoder_of({.name = "levers", .vocab = 512, .width = 256, .layers = 2, .heads = 4, .kv_heads = 4, .head_dim = 64, .ffn = 512});
}
inline Recipe step_of_levers(const Levers& l) { return recipe_of(model_of_levers(), 4, 64, l); }

inline bool is_taken(const Levers& l) {
  try {
    check(step_of_levers(l));
    return true;
  } catch (const Error&) { return false; }
}

template <class T>
std::vector<std::pair<std::string, T>> values_of(const Description& d) {  // each with its word
  std::vector<std::pair<std::string, T>> all;
  if constexpr (is_optional<T>) {
    for (auto& [word, value] : values_of<typename T::value_type>(d)) all.emplace_back(word, value);
  } else {
    for (const std::string& word : words_allowed<T>(d)) {
      if constexpr (std::is_same_v<T, std::string>)
        all.emplace_back(word, word);
      else if (const auto value = WordsOf<T>::named(word))  // a pattern of words, as groups:K, is none
        all.emplace_back(word, *value);
    }
  }
  return all;
}

// What values are taken with: nothing else, bf16, fp8, and halves that are updated during backward.
inline std::vector<Levers> companions() {
  Levers bf16, fp8, during;
  bf16.precision = during.precision = {DType::bf16};
  fp8.precision = {DType::e4m3};
  during.holding = {.masters = Masters::halves, .updating = Updating::during};
  return {bf16, Levers{}, fp8, during};
}

// A value comes once, with the first companions that it is taken with; `refused` has those that never are.
inline std::vector<LeverCase> lever_cases(std::set<std::string>* refused = nullptr) {
  std::vector<LeverCase> cases;
  int levers = 0;
  describe(Levers{}, [&](const auto&, const Description&) { ++levers; });
  for (int n = 0; n < levers; ++n) {
    std::set<std::string> seen, taken, wanted;
    for (const Levers& with : companions()) {
      int at = 0;
      Levers l = with;
      describe(l, [&]<class T>(T& member, const Description& d) {
        if (at++ != n) return;
        const T usual = member;
        for (const auto& [word, value] : values_of<T>(d)) {
          wanted.insert(std::string(d.name) + " " + word);
          member = value;
          const std::string said = std::string(d.name) + " " + word;
          const bool takes = is_taken(l);
          if (takes) taken.insert(said);
          if (takes && value != usual && seen.insert(said).second) cases.push_back({d.name, word, l});
          member = usual;
        }
      });
    }
    if (refused)
      for (const std::string& one : wanted)
        if (!taken.contains(one)) refused->insert(one);
  }
  return cases;
}

// As a command is told them: those that are not as usual, or all that have a value.
inline std::string options_of_levers(const Levers& l, bool all = false) {
  std::string options;
  const auto said = changed(l);
  describe(l, [&]<class T>(const T& member, const Description& d) {
    const bool otherwise = std::any_of(said.begin(), said.end(), [&](const auto& one) { return one.first == d.name; });
    if (!all && !otherwise) return;
    std::string word;
    if constexpr (std::is_same_v<T, std::string>)
      word = member;
    else if constexpr (is_optional<T>)
      word = member ? WordsOf<typename T::value_type>::to(*member) : "";
    else
      word = WordsOf<T>::to(member);
    if (!word.empty()) options += " " + first_option_of(d) + " " + word;
  });
  return options;
}

}  // namespace headroom::engine
