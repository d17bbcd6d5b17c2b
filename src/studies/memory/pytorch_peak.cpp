#include "studies/memory/pytorch_peak.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "memory/largest_within.h"
#include "pytorch/attention.h"
#include "studies/memory/answer.h"
#include "studies/memory/room.h"

namespace headroom::studies {

using pytorch::LanguageModel;

namespace {

// A command asks for one step's peak several times: searches begin at it, and ways to save are compared with it.
struct KnownPeak {
  LanguageModel of;
  std::uint64_t workspace = 0, peak = 0;
};
std::vector<KnownPeak>& known_peaks() {
  thread_local std::vector<KnownPeak> last;
  return last;
}

bool accounted_for(const LanguageModel& m) {
  try {
    check(m);
    return true;
  } catch (const Error&) { return false; }
}

}  // namespace

void remember_peak(const LanguageModel& m, std::uint64_t workspace, std::uint64_t peak) {
  auto& all = known_peaks();
  if (all.size() == 32) all.erase(all.begin());
  all.push_back({m, workspace, peak});
}

std::uint64_t step_peak(const LanguageModel& m, std::uint64_t workspace) {
  stop_if_interrupted();
  for (const KnownPeak& p : known_peaks())
    if (p.workspace == workspace && p.of == m) return p.peak;
  const std::uint64_t peak = account(m, workspace).train_peak_bytes;
  remember_peak(m, workspace, peak);
  return peak;
}

std::optional<std::uint64_t> peak_or_none(const LanguageModel& m, std::uint64_t workspace) {
  if (!accounted_for(m)) return {};
  return step_peak(m, workspace);
}

std::optional<std::int64_t> length_that_fits(const LanguageModel& m, const Room& room, std::uint64_t workspace) {
  const std::int64_t longest = largest_within(m.len - 1, room.for_peak(), [&](std::int64_t len) {
    LanguageModel shorter = m;
    shorter.len = len;
    return step_peak(shorter, workspace);
  });
  if (longest == 0) return {};
  return longest;
}

std::string larger_card_in_words(const LanguageModel& m, const Device& device, std::optional<std::uint64_t> memory) {
  if (memory) return "";
  std::vector<const Device*> larger;
  for (const Device& card : known_devices())
    if (card.kind == DeviceKind::cuda && computes_bf16(card) == computes_bf16(device) && card.memory_bytes > device.memory_bytes)
      larger.push_back(&card);
  std::ranges::stable_sort(larger, {}, &Device::memory_bytes);
  for (const Device* card : larger) {
    const auto peak = peak_or_none(m, pytorch::workspace_bytes(card->sm));
    if (peak && room_of(*card, {}, int(m.gpus), RunBy::pytorch).holds(*peak))
      return fmt::format(" It fits on {} (--device {}).", m.gpus > 1 ? fmt::format("{} × {}", m.gpus, card->name) : card->name, card->key);
  }
  return "";
}

std::optional<int> gpus_that_hold(const LanguageModel& m, const Device& device, std::optional<std::uint64_t> memory) {
  const std::uint64_t workspace = pytorch::workspace_bytes(device.sm);
  return gpus_that_hold(
      [&](int n) {
        LanguageModel sharded = m;
        sharded.gpus = n, sharded.shard = engine::Sharding::everything;
        if (m.lora > 0 && n > 1) sharded.parameters = pytorch::Parameters::half;
        const auto peak = peak_or_none(sharded, workspace);
        return peak && room_of(device, memory, n, RunBy::pytorch).holds(*peak);
      },
      int(m.gpus));
}

}  // namespace headroom::studies
