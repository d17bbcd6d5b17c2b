#include "engine/recipe/levers.h"

#include <algorithm>

#include "base/described_words.h"
#include "base/text.h"
#include "ops/attention/attention.h"

namespace headroom::engine {

namespace {

// Sets the n-th lever, in the order of the description.
template <class T>
void set(Levers& l, int n, const T& value) {
  describe(l, [&](auto& member, const Description&) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(member)>, T>)
      if (n == 0) member = value;
    --n;
  });
}

std::string word_of(const std::string& text) { return text; }
template <OneWord T>
std::string word_of(const T& x) {
  return WordsOf<T>::to(x);
}
template <OneWord T>
std::string word_of(const std::optional<T>& x) {
  return x ? WordsOf<T>::to(*x) : "";
}

}  // namespace

std::vector<std::string> trained_precisions() { return WordsOf<Precision>::all(); }

Precision usual_precision(const Device& d) {
  if (d.kind == DeviceKind::cpu) return {};
  return {computes_bf16(d) ? DType::bf16 : DType::f16};
}

std::vector<std::string> attention_families() {
  std::vector<std::string> words;
  for (const attention::Variant& v : attention::variants())
    if (std::find(words.begin(), words.end(), v.family) == words.end()) words.emplace_back(v.family);
  return words;
}

std::vector<Levers> each_of(const LeverLists& lists) {
  std::vector<Levers> all(1);
  int n = 0;
  describe(lists, [&](const auto& list, const Description&) {
    std::vector<Levers> more;
    for (const Levers& so_far : all)
      for (const auto& value : list) set(more.emplace_back(so_far), n, value);
    all = std::move(more);
    ++n;
  });
  std::vector<Levers> different;
  for (Levers& l : all) {
    if (!formats_of(l.precision, usual_scales).quantised()) {
      l.scales.reset();
      l.holding.copies = WeightCopies::made;
    }
    if (std::find(different.begin(), different.end(), l) == different.end()) different.push_back(std::move(l));
  }
  return different;
}

Levers only_of(const LeverLists& lists, std::string_view who) {
  Levers one;
  int n = 0;
  describe(lists, [&](const auto& list, const Description& d) {
    check(list.size() == 1, Code::bad_argument, "{}: {} takes one value; {} were given", first_option_of(d), who, list.size());
    set(one, n++, list.front());
  });
  return one;
}

std::vector<std::pair<std::string, std::string>> changed(const Levers& levers, std::initializer_list<std::string_view> except) {
  std::vector<std::string> usual;
  describe(Levers{}, [&](const auto& member, const Description&) { usual.push_back(word_of(member)); });
  std::vector<std::pair<std::string, std::string>> all;
  std::size_t n = 0;
  describe(levers, [&](const auto& member, const Description& d) {
    std::string word = word_of(member);
    if (word != usual[n++] && std::find(except.begin(), except.end(), d.name) == except.end()) all.emplace_back(d.name, std::move(word));
  });
  return all;
}

std::string changed_in_words(const Levers& levers, std::initializer_list<std::string_view> except) {
  std::vector<std::string> words;
  for (const auto& [lever, word] : changed(levers, except)) words.push_back(fmt::format("{} {}", lever, word));
  return joined(words);
}

LeverLists lists_of(const Levers& levers) {
  LeverLists lists;
  int n = 0;
  describe(levers, [&]<class T>(const T& value, const Description&) {
    int left = n++;
    describe(lists, [&](auto& list, const Description&) {
      if constexpr (std::is_same_v<std::remove_reference_t<decltype(list)>, std::vector<T>>)
        if (left == 0) list = {value};
      --left;
    });
  });
  return lists;
}

}  // namespace headroom::engine
