// The keys of one object of a config.json. Reads are remembered, so that keys without a reader are found.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace headroom::engine {

// A key or a word that is in no list here is a bad argument, as a misspelt option is; what is known and not counted is unsupported.
// Order of calls: any of the reading ones, then finish(), which refuses what was not read and may matter.
class KeyReader {
 public:
  using Json = nlohmann::json;

  KeyReader(const Json& j, std::string who) : j_(j), who_(std::move(who)) {}

  std::int64_t integer(const char* key);  // needed
  std::int64_t integer(const char* key, std::int64_t otherwise);
  double number(const char* key, double otherwise);
  bool truth(const char* key, bool otherwise = false);
  std::string word(const char* key, const char* otherwise);
  const Json* object(const char* key);  // null: it says nothing
  const Json* list(const char* key);
  bool says(const char* key) const { return j_.contains(key) && !j_[key].is_null(); }
  void know(const char* key) { known_.insert(key); }

  // What has to be so for a count to hold: another value is refused by the key's name.
  void must_be(const char* key, const char* only, std::initializer_list<std::string_view> words);
  // The keys that were not read because transformers does not either: for a note.
  std::vector<std::string> finish() const;

 private:
  const Json* find(const char* key);
  [[noreturn]] void lacks(const char* key) const;
  std::string meant_by(const std::string& key, const std::vector<std::string>& names) const;

  const Json& j_;
  std::string who_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace headroom::engine
