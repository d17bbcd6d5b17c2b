#include "dry/library/order.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "dry/library/recorder.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

using Reached = std::map<const Stream*, std::uint64_t>;  // how many events of each stream are done

struct Recorded {
  const Stream* stream;
  Reached reached;
};

struct Order {
  std::mutex mutex;
  std::map<const Stream*, Reached> streams;  // what is done once all is done that a stream was given
  std::map<const Event*, Recorded> events;
  Reached host;
};
Order& order() {
  static Order& one = *new Order;
  return one;
}

void add(Reached& to, const Reached& from) {
  for (const auto& [stream, count] : from) {
    std::uint64_t& now = to[stream];
    now = std::max(now, count);
  }
}

}  // namespace

void order_recorded(const Event& event, const Stream& stream) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  Reached& reached = o.streams[&stream];
  ++reached[&stream];
  o.events.insert_or_assign(&event, Recorded{&stream, reached});
}

void order_stream_waits(const Stream& stream, const Event& event) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  if (const auto at = o.events.find(&event); at != o.events.end()) add(o.streams[&stream], at->second.reached);
}

void order_host_waits(const Event& event) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  if (const auto at = o.events.find(&event); at != o.events.end()) add(o.host, at->second.reached);
}

void order_host_waits(const Stream& stream) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  if (const auto at = o.streams.find(&stream); at != o.streams.end()) add(o.host, at->second);
}

void order_host_waits_for_device(int device) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  for (const auto& [stream, reached] : o.streams)
    if (stream->device == device) add(o.host, reached);
}

void order_forgets(const Event& event) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  o.events.erase(&event);
}

bool order_proves(const Event& event) {
  Order& o = order();
  const std::lock_guard lock(o.mutex);
  const auto at = o.events.find(&event);
  if (at == o.events.end()) return true;
  const auto [stream, reached] = at->second;
  const auto known = o.host.find(stream);
  return known != o.host.end() && known->second >= reached.at(stream);
}

When when_asked() {
  static const When asked = [] {
    const char* const told = std::getenv(events_variable);
    const std::string_view word = told ? told : "";
    return word == "at once" ? When::at_once : word == "late" ? When::late : When::by_the_pace;
  }();
  return asked;
}

void say_speed_decides() {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  Recorder& record = Recorder::get();
  record.add(Mark{record.name("events"), 0, 1});
}

bool done_for_allocator(const Event& event, bool by_the_pace) {
  if (order_proves(event)) return true;
  say_speed_decides();
  return when_asked() == When::at_once || (when_asked() == When::by_the_pace && by_the_pace);
}

}  // namespace headroom::dry
