#include "instruments/profile/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"

namespace headroom::profile {

namespace {

constexpr std::size_t most_text = 1 << 20;  // between two flushes

gzFile of(void* f) { return static_cast<gzFile>(f); }
std::string json_text(std::string_view s) { return escaped_in_json(text_of_json(nlohmann::json(s))); }

}  // namespace

int Lanes::lane_of(std::int64_t start_ns, std::int64_t end_ns) {
  auto lane = std::find_if(until_.begin(), until_.end(), [&](std::int64_t until) { return until <= start_ns; });
  if (lane == until_.end()) lane = until_.insert(lane, end_ns);
  *lane = end_ns;
  return int(lane - until_.begin());
}

TraceWriter::TraceWriter(const std::string& file) : path_(file) {
  Descriptor fd = open_for_writing(file);
  file_ = gzdopen(fd.get(), file.ends_with(".gz") ? "wb6" : "wbT");
  check(file_ != nullptr, Code::io, "--trace: '{}' cannot be written to; choose another place", file);
  fd.release();                    // the gzFile's now
  gzbuffer(of(file_), most_text);  // a member goes into the file in one write
  text_ = "[";                     // the array form, whose end may be missing
  flush();
}

TraceWriter::~TraceWriter() {
  try {
    close();
  } catch (const Error&) {  // close() reports it
  }
}

void TraceWriter::event(const std::string& json) {
  text_ += (events_++ ? ",\n" : "\n") + json;
  if (text_.size() >= most_text) flush();
}

void TraceWriter::name_track(int process, int track, std::string_view name) {
  event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", track < 0 ? "process_name" : "thread_name",
                    process, std::max(track, 0), json_text(name)));
}

void TraceWriter::slice(int process, int track, std::string_view name, std::string_view category, std::int64_t start_ns, std::int64_t ns,
                        const Args& args) {
  std::string words;
  for (const auto& [key, value] : args) words += fmt::format("{}{}:{}", words.empty() ? "" : ",", json_text(key), json_text(value));
  event(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", json_text(name),
                    json_text(category), process, track, double(start_ns) / 1e3, double(ns) / 1e3, words));
}

void TraceWriter::counter(int process, std::string_view name, std::int64_t at_ns, std::string_view series, double value) {
  event(fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":{:.3f},"args":{{{}:{:.0f}}}}})", json_text(name), process, double(at_ns) / 1e3,
                    json_text(series), value));
}

void TraceWriter::flush() {
  if (text_.empty()) return;
  if (gzwrite(of(file_), text_.data(), unsigned(text_.size())) != int(text_.size())) failed_ = true;
  if (gzflush(of(file_), Z_FINISH) != Z_OK) failed_ = true;
  text_.clear();
}

void TraceWriter::close() {
  if (!file_) return;
  text_ += "\n]\n";
  flush();
  if (gzclose(of(std::exchange(file_, nullptr))) != Z_OK) failed_ = true;
  check(!failed_, Code::io, "--trace: '{}' could not be written to its end: is the disk full?", path_);
}

}  // namespace headroom::profile
