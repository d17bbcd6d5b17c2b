// Reads the record of a dry run (record.h): every process that wrote into a folder, finished, killed or still running.
#pragma once
#include <concepts>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dry/record.h"

namespace headroom::dry {

class Process {
 public:
  // An Error where the file is no record, or of another version.
  explicit Process(const std::string& path);
  static Process of(const std::string& record);  // what a RecordWriter wrote

  const FileHead& head() const { return head_; }
  const std::string& path() const { return path_; }
  bool damaged() const { return damaged_; }  // an entry makes no sense: what comes after it is left out
  std::uint64_t entries() const { return entries_; }

  std::string_view name(std::uint32_t id) const;         // "" of an unknown one
  std::span<const Frame> stack(std::uint32_t id) const;  // the innermost frame first

  // What the caching allocator of a device was asked; empty where that is not known from its first request on.
  std::span<const Request> requests(std::uint32_t device) const;

  // Every entry in order: visit(const Head&, const Launch&) and so on, for those payloads that it takes.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const char *at = begin_, *const end = begin_ + bytes_; at < end;) {
      Head head;
      std::memcpy(&head, at, sizeof head);
      give(head, at + sizeof head, visit, static_cast<Payloads*>(nullptr));
      at += std::size_t(head.words) * 8;
    }
  }

 private:
  Process() = default;
  void begin(std::shared_ptr<const char> record, std::uint64_t bytes);
  template <class Visit, class... P>
  static void give(const Head& head, const char* payload, Visit& visit, const std::tuple<P...>*) {
    (one<P>(head, payload, visit), ...);
  }
  template <class P, class Visit>
  static void one(const Head& head, const char* payload, Visit& visit) {
    if constexpr (std::invocable<Visit&, const Head&, const P&>) {
      if (head.kind != P::kind) return;
      P value;
      std::memcpy(&value, payload, sizeof value);
      visit(head, value);
    }
  }
  void look_through();

  std::string path_;
  FileHead head_{};
  std::shared_ptr<const char> file_;  // mapped, or a copy of what was written
  const char* begin_ = nullptr;       // the entries'
  std::uint64_t bytes_ = 0, entries_ = 0;
  bool damaged_ = false;
  std::unordered_map<std::uint32_t, std::string_view> names_;
  std::unordered_map<std::uint32_t, std::vector<Frame>> stacks_;
  std::unordered_map<std::uint32_t, std::vector<Request>> requests_;
  bool in_part_ = false;  // requests are missing
};

// A Process for each file of the folder, in the order in which they began. Files that are no records, or have no head yet, are passed over.
std::vector<Process> read_record(const std::string& folder);

}  // namespace headroom::dry
