// Recorder — writes the record of this process (record.h), entry by entry, into a mapped file: nothing is buffered, so a killed process
// leaves all that it did. The file begins with the first entry. A forked child begins one of its own.
#pragma once
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dry/record.h"

namespace headroom::dry {

class Recorder {
 public:
  static Recorder& get();

  // `at_ns` 0: now. Returns at once where no record is asked for.
  template <class P>
  void add(const P& payload, std::span<const char> tail = {}, std::uint64_t at_ns = 0) {
    if (on_) add(P::kind, &payload, sizeof payload, tail, at_ns);
  }
  std::uint32_t name(std::string_view text);                // its number; written before its first use
  std::uint32_t generation() const { return generation_; }  // numbers of names hold within one: a fork begins the next
  std::uint64_t now_ns() const;
  bool on() const { return on_; }

 private:
  Recorder();
  void add(Kind, const void* payload, std::size_t bytes, std::span<const char> tail, std::uint64_t at_ns);
  void begin();
  bool make_room(std::size_t bytes);  // in the window, for an entry
  void forked();
  void close();

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::recursive_mutex mutex_;
  bool on_ = false;
  int file_ = -1;
  char* window_ = nullptr;  // mapped, from window_at_ of the file on
  std::uint64_t window_at_ = 0, next_ = 0, begin_ns_ = 0;
  std::uint32_t generation_ = 1;
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> names_;
};

std::uint32_t thread_number();

}  // namespace headroom::dry
