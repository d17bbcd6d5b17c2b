#include "studies/forecast/beside.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/host_memory.h"
#include "base/threads.h"

namespace headroom::studies {

namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);

// The share of what is free that runs may take together: a fifth stays for other programs, and a run may take more than the first did.
constexpr std::uint64_t share_of(std::uint64_t free) { return free / 5 * 4; }

std::uint64_t free_for_records() {
  std::error_code unknown;
  const auto space = std::filesystem::space(std::filesystem::temp_directory_path(unknown), unknown);
  return unknown ? 0 : space.available;
}

struct SideBySide {
  const std::vector<DryRunAsked>& asked;
  const std::function<DryRun(const DryRunAsked&)>& run;
  std::vector<std::optional<DryRun>> done{asked.size()};
  std::atomic<std::size_t> next = 0;
  std::atomic<int> idle = 0;  // workers that have no more to do
  std::atomic<bool> ends = false;
  std::atomic<std::int64_t> steps = 0;
  std::atomic<std::uint64_t> live = 0;

  void make(std::size_t i) {
    DryRunAsked one = asked[i];
    one.progress = [&](std::int64_t run_steps, std::uint64_t run_live) {
      steps = std::max(steps.load(), run_steps);
      live = run_live;
    };
    try {
      DryRun made = run(one);
      if (made.ended.asked) ends = true;
      if (made.ended.asked || (made.ended_well() && made.any_bytes())) done[i] = std::move(made);
    } catch (const std::exception&) {}  // it is made again, alone, and throws there if it was not for the others
  }
  void work() {
    for (std::size_t i = next++; i < asked.size() && !ends; i = next++) make(i);
    ++idle;
  }
};

}  // namespace

int runs_at_once(const DryRun& first) {
  const auto uses_cards = [](const ProcessStory& p) { return !p.cards.empty(); };
  const auto collects = [](const ProcessStory& p) { return p.collectives; };
  if (std::ranges::count_if(first.processes, uses_cards) != 1 || std::ranges::any_of(first.processes, collects)) return 1;
  const std::uint64_t by_memory = share_of(host_memory().available) / std::max<std::uint64_t>(first.host_bytes, 1);
  const std::uint64_t by_room = share_of(free_for_records()) / std::max<std::uint64_t>(first.record_bytes, 1);
  const auto cores = std::uint64_t(std::min(available_cores(), most_launched));
  return int(std::max<std::uint64_t>(1, std::min({cores, by_memory, by_room})));
}

std::vector<std::optional<DryRun>> run_side_by_side(const std::vector<DryRunAsked>& asked, int at_once, const std::function<bool()>& stop,
                                                    const std::function<DryRun(const DryRunAsked&)>& run) {
  SideBySide runs{asked, run};
  const int workers = std::min(at_once, int(asked.size()));
  if (workers > 1) {
    std::vector<std::jthread> threads;
    try {
      for (int i = 0; i < workers; ++i) threads.emplace_back([&runs] { runs.work(); });
    } catch (const std::system_error&) {}  // no more threads: those that there are do it
    while (runs.idle < int(threads.size())) {
      if (stop()) runs.ends = true;
      asked.front().progress(runs.steps, runs.live);
      std::this_thread::sleep_for(between_looks);
    }
  }
  return std::move(runs.done);
}

}  // namespace headroom::studies
