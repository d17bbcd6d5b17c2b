// TraceWriter — a Chrome trace (the JSON that Perfetto and chrome://tracing load), written incrementally. After flush() the file is complete
// except for the closing bracket, which the format does not require: a dead program's flushed data loads. A gzipped file is whole gzip members,
// one after the other, because Perfetto refuses a truncated one. Times are microseconds in the format, nanoseconds here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::profile {

// Slices of one track must not overlap, but kernels of one stream do: an overlapping slice goes to the next lane.
class Lanes {
 public:
  int lane_of(std::int64_t start_ns, std::int64_t end_ns);  // call it in the order of starts

 private:
  std::vector<std::int64_t> until_;
};

class TraceWriter {
 public:
  explicit TraceWriter(const std::string& file);  // ends in .gz: compressed. throws Error (io) if it cannot be written
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  using Args = std::vector<std::pair<std::string_view, std::string>>;
  void name_track(int process, int track, std::string_view name);
  void slice(int process, int track, std::string_view name, std::string_view category, std::int64_t start_ns, std::int64_t ns,
             const Args& = {});
  void counter(int process, std::string_view name, std::int64_t at_ns, std::string_view series, double value);
  void flush();  // everything written so far is in the file afterwards
  void close();  // throws Error (io) if something was not written; the destructor closes silently

  std::uint64_t events() const { return events_; }

 private:
  void event(const std::string& json);

  std::string path_, text_;  // text_: not in the file yet
  void* file_ = nullptr;     // a gzFile
  bool failed_ = false;
  std::uint64_t events_ = 0;
};

}  // namespace headroom::profile
