// Writes a record (record.h) entry by entry, in memory: of a step that is accounted for instead of run.
#pragma once
#include <cstring>
#include <map>
#include <string>

#include "dry/record.h"

namespace headroom::dry {

class RecordWriter {
 public:
  RecordWriter() {
    std::memcpy(head.magic, record_magic, sizeof head.magic);
    head.version = record_version;
    head.bytes = sizeof head;
    head.devices = 1;
  }

  std::uint32_t name(const std::string& text) {
    const auto [at, fresh] = names_.try_emplace(text, std::uint32_t(names_.size()) + 1);
    if (fresh) add(Name{at->second, std::uint32_t(text.size())}, text);
    return at->second;
  }
  void mark(const std::string& what, const std::string& text, std::int64_t value) {
    Mark m{};
    m.what = name(what);
    m.text = text.empty() ? 0 : name(text);
    m.value = value;
    add(m);
  }
  template <class P>
  void add(const P& payload, const std::string& more = "") {
    Head h{};
    h.kind = P::kind;
    h.words = std::uint16_t((sizeof(Head) + sizeof(P) + more.size() + 7) / 8);
    h.thread = thread;
    h.at_ns = ++now_ * 1000;
    const auto bytes = [](const auto& x) { return std::string_view(reinterpret_cast<const char*>(&x), sizeof x); };
    const std::size_t begin = entries_.size();
    entries_.append(bytes(h)).append(bytes(payload)).append(more);
    entries_.resize(begin + std::size_t(h.words) * 8);
  }
  std::string record() const {
    constexpr std::size_t rest = 64;  // zeros: the end
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + entries_ + std::string(rest, '\0');
  }

  FileHead head{};
  std::uint32_t thread = 1;

 private:
  std::string entries_;
  std::map<std::string, std::uint32_t> names_;
  std::uint64_t now_ = 0;
};

}  // namespace headroom::dry
