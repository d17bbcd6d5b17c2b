#include "base/interrupt.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <mutex>

#include "base/error.h"

namespace headroom {

namespace {

// Written by a handler in whichever thread the signal reached, read by all.
std::atomic<int> asked_by = 0;  // the signal that asked first
std::atomic<std::time_t> asked_at = 0;
static_assert(decltype(asked_by)::is_always_lock_free && decltype(asked_at)::is_always_lock_free);  // others are not safe in a handler

constexpr int requests[] = {SIGINT, SIGTERM, SIGHUP};

std::time_t seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

extern "C" void on_request(int signal) {
  if (asked_by == 0) {
    asked_at = seconds_now();
    asked_by = signal;
  } else if (seconds_now() > asked_at + 1) {  // not the first one's twin
    std::signal(signal, SIG_DFL);
    raise(signal);
  }
}

}  // namespace

void listen_for_signals() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : requests) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // nohup, or a shell's background: its parent ignores the signal
    action.sa_handler = on_request;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() { return asked_by != 0; }

int interrupting_signal() { return asked_by; }

std::string stopped_by() {
  switch (asked_by) {
    case 0: return "stopped by a signal to another process";
    case SIGINT: return "stopped by Ctrl-C";
    case SIGTERM: return "stopped by SIGTERM";
    default: return "stopped by SIGHUP";
  }
}

namespace {

std::mutex host_changes;
std::atomic<HostStops> host_stops = nullptr;
std::atomic<void*> host_of_it = nullptr;
thread_local bool asking = false;

}  // namespace

void ask_host(HostStops stops, void* host) {
  const std::lock_guard lock(host_changes);
  host_stops = nullptr;
  host_of_it = host;
  host_stops = stops;
}

void check_host_is_not_being_asked() {
  check(!asking, Code::unsupported, "a call from within the question whether to stop: the call that asks holds the threads; return first");
}

bool host_is_asked() { return host_stops.load(std::memory_order_relaxed) != nullptr; }

void stop_if_host_says() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point next = Clock::now();
  if (!host_is_asked() || Clock::now() < next) return;
  const HostStops stops = host_stops;
  asking = true;
  const bool ends = stops && stops(host_of_it) != 0;
  asking = false;
  next = Clock::now() + std::chrono::milliseconds(100);
  check(!ends, Code::interrupted, "stopped by the program that called; results of the call are not whole");
}

void stop_if_interrupted(std::string_view when) {
  if (interrupted()) throw Error(Code::interrupted, fmt::format("{}{}", stopped_by(), when));
}

}  // namespace headroom
