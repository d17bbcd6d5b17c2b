// TraceWriter — a Chrome trace (the JSON that Perfetto and chrome://tracing load), written as it comes. After flush() the file is whole but
// for the closing bracket, which the format forgives: what a program had flushed when it died loads. A gzipped file is whole gzip members,
// one after the other, because Perfetto refuses one that was cut short. Times are microseconds in the format, nanoseconds here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::profile {

class TraceWriter {
 public:
  explicit TraceWriter(const std::string& file);  // ends in .gz: compressed. An Error (io) when it cannot be written
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  using Args = std::vector<std::pair<std::string_view, std::string>>;
  void name_track(int process, int track, std::string_view name);
  void slice(int process, int track, std::string_view name, std::string_view category, std::int64_t start_ns, std::int64_t ns,
             const Args& = {});
  void counter(int process, std::string_view name, std::int64_t at_ns, std::string_view series, double value);
  void flush();  // what was written is in the file when it returns
  void close();  // an Error (io) when something was not written; the destructor closes too, and says nothing

  std::uint64_t events() const { return events_; }

 private:
  void event(const std::string& json);

  std::string path_, text_;  // text_: not in the file yet
  void* file_ = nullptr;     // a gzFile
  bool failed_ = false;
  std::uint64_t events_ = 0;
};

}  // namespace headroom::profile
