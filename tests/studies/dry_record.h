// The record of a program that ran dry, as libheadroom_dry.so writes it (dry/record.h): with stacks, blocks and notes.
#pragma once
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dry/write.h"

namespace headroom::dry {

class ProgramRecord : public RecordWriter {
 public:
  explicit ProgramRecord(int pid = 100, int rank = -1, int ranks = 1) {
    head.pid = pid;
    head.rank = rank;
    head.ranks = ranks;
    head.local_rank = rank;
    head.devices = ranks;
    std::strcpy(head.device, "A card");
    std::strcpy(head.program, "python3 train.py");
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
  void save(const std::string& file) const { std::ofstream(file, std::ios::binary) << record(); }

  static constexpr std::uint64_t segment = 2 << 20;
  std::uint32_t device = 0;

 private:
  void block(std::uint64_t address, std::int64_t bytes, std::uint32_t stack, std::uint32_t scope) {
    BlockChange b{};
    b.address = address;
    b.bytes = bytes;
    b.allocated = allocated_;
    b.reserved = reserved_;
    b.device = device;
    b.place.stack = stack;
    b.place.scope = scope;
    add(b);
  }

  std::map<std::uint64_t, std::int64_t> taken_;
  std::uint32_t stacks_ = 0;
  std::uint64_t allocated_ = 0, reserved_ = 0;
};

}  // namespace headroom::dry
