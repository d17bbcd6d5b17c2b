// TimelineTrace — a timeline as one process of a trace: a track for the slices of each stream, tracks of phases and modules above them,
// and live bytes. Takes slices and moments in order; bars of phases and modules are written when the next one begins.
#pragma once
#include <map>
#include <set>

#include "instruments/profile/timeline.h"
#include "instruments/profile/trace.h"

namespace headroom::profile {

class TimelineTrace {
 public:
  TimelineTrace(TraceWriter&, int process, std::string_view name);
  ~TimelineTrace();  // finishes the bars
  TimelineTrace(const TimelineTrace&) = delete;
  TimelineTrace& operator=(const TimelineTrace&) = delete;

  void add(const std::vector<Mark>&, const std::vector<Regions>&, const Slice&);
  void add(const Moment&);
  void flush() { writer_.flush(); }

 private:
  class Bar {  // consecutive slices of one name
   public:
    Bar(TraceWriter& w, int process, int track, const char* category) : writer_(w), process_(process), track_(track), category_(category) {}
    void add(const std::string& name, const Slice&);
    void finish();

   private:
    TraceWriter& writer_;
    int process_, track_;
    const char* category_;
    std::string name_;
    int step_ = -1;
    std::int64_t start_ = 0, end_ = 0, until_ = 0;  // until_: where the bar before ended
  };

  TraceWriter& writer_;
  int process_;
  Bar phases_, modules_;
  std::map<int, Lanes> streams_;
  std::set<int> named_;  // tracks
};

void write_trace(TraceWriter&, const Timeline&, int process, std::string_view name);

}  // namespace headroom::profile
