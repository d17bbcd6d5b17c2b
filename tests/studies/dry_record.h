// Writes the record of a dry run, entry by entry, as libheadroom_dry.so does (dry/record.h).
#pragma once
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dry/record.h"

namespace headroom::dry {

class RecordWriter {
 public:
  explicit RecordWriter(int pid = 100, int rank = -1, int ranks = 1) {
    std::memcpy(head_.magic, record_magic, sizeof head_.magic);
    head_.version = record_version;
    head_.bytes = sizeof head_;
    head_.pid = pid;
    head_.rank = rank;
    head_.ranks = ranks;
    head_.local_rank = rank;
    head_.devices = ranks;
    std::strcpy(head_.device, "A card");
    std::strcpy(head_.program, "python3 train.py");
  }

  std::uint32_t name(const std::string& text) {
    const auto [at, fresh] = names_.try_emplace(text, std::uint32_t(names_.size()) + 1);
    if (fresh) add(Name{at->second, std::uint32_t(text.size())}, text);
    return at->second;
  }
  // One frame: "train.py:31"; the innermost first.
  std::uint32_t stack(const std::vector<std::string>& lines) {
    std::vector<Frame> frames;
    for (const std::string& line : lines) {
      const auto colon = line.rfind(':');
      Frame f{};
      f.file = name(line.substr(0, colon));
      f.function = name("f");
      f.line = std::uint32_t(std::stoi(line.substr(colon + 1)));
      frames.push_back(f);
    }
    Stack s{};
    s.id = ++stacks_;
    s.count = std::uint32_t(frames.size());
    add(s, std::string(reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof(Frame)));
    return s.id;
  }
  // The allocator hands out, at an address that the caller chooses.
  void take(std::uint64_t address, std::int64_t bytes, std::uint32_t stack = 0, std::uint32_t scope = 0) {
    allocated_ += std::uint64_t(bytes);
    reserved_ = std::max(reserved_, (allocated_ + segment - 1) / segment * segment);
    taken_[address] = bytes;
    block(address, bytes, stack, scope);
  }
  void give(std::uint64_t address) {
    const std::int64_t bytes = taken_.at(address);
    allocated_ -= std::uint64_t(bytes);
    block(address, -bytes, 0, 0);
  }
  void mark(const std::string& what, const std::string& text, std::int64_t value) {
    Mark m{};
    m.what = name(what);
    m.text = text.empty() ? 0 : name(text);
    m.value = value;
    add(m);
  }
  void note(Said said, const std::string& function, std::uint64_t bytes = 0, std::uint32_t stack = 0) {
    Note n{};
    n.said = said;
    n.name = name(function);
    n.count = 1;
    n.bytes = bytes;
    n.place.stack = stack;
    add(n);
  }
  void read(std::uint64_t bytes, bool known, std::uint32_t stack) {
    Read r{};
    r.bytes = bytes;
    r.known = known;
    r.place.stack = stack;
    add(r);
  }
  void reserve(std::uint64_t bytes) { reserved_ = std::max(reserved_, bytes); }
  void requests(const std::vector<Request>& all, bool whole = true) {
    add(Requests{device, std::uint32_t(all.size()), std::uint32_t(whole), 0},
        std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Request)));
  }
  template <class P>
  void add(const P& payload, const std::string& more = "") {
    Head h{};
    h.kind = P::kind;
    h.words = std::uint16_t((sizeof(Head) + sizeof(P) + more.size() + 7) / 8);
    h.thread = thread;
    h.at_ns = ++now_ * 1000;
    std::string entry(std::size_t(h.words) * 8, '\0');
    std::memcpy(entry.data(), &h, sizeof h);
    std::memcpy(entry.data() + sizeof h, &payload, sizeof payload);
    std::memcpy(entry.data() + sizeof h + sizeof payload, more.data(), more.size());
    entries_ += entry;
  }
  void save(const std::string& file) const {
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&head_), sizeof head_);
    out << entries_ << std::string(64, '\0');
  }

  static constexpr std::uint64_t segment = 2 << 20;
  std::uint32_t thread = 1, device = 0;

 private:
  void block(std::uint64_t address, std::int64_t bytes, std::uint32_t stack, std::uint32_t scope) {
    Block b{};
    b.address = address;
    b.bytes = bytes;
    b.allocated = allocated_;
    b.reserved = reserved_;
    b.device = device;
    b.place.stack = stack;
    b.place.scope = scope;
    add(b);
  }

  FileHead head_{};
  std::string entries_;
  std::map<std::string, std::uint32_t> names_;
  std::map<std::uint64_t, std::int64_t> taken_;
  std::uint32_t stacks_ = 0;
  std::uint64_t now_ = 0, allocated_ = 0, reserved_ = 0;
};

}  // namespace headroom::dry
