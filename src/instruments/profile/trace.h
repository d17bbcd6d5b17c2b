// TraceWriter — a Chrome trace (the JSON that Perfetto and chrome://tracing load), gzipped, written as it comes: what is in the file
// when a program dies can be read. Times are microseconds in the format, nanoseconds here.
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
  void flush();  // what was written is on disk when it returns
  void close();  // an Error (io) when something was not written; the destructor closes too, and says nothing

  std::uint64_t events() const { return events_; }

 private:
  void event(const std::string& json);

  std::string path_;
  void* file_ = nullptr;  // a gzFile
  bool failed_ = false;
  std::uint64_t events_ = 0;
};

}  // namespace headroom::profile
