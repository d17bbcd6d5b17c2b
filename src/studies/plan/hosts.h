// More GPUs than a host has: what they send each other then crosses the network, and goes at its rate.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/described.h"
#include "base/device.h"
#include "base/text.h"

namespace headroom::studies {

struct LinkRate {  // one way, of one GPU
  double bytes_per_s = 0;
  friend bool operator==(const LinkRate&, const LinkRate&) = default;
};

// The same device as one of `gpus`: its link is the slower of its own and the network's where they are more than `per_host`. `link`: none: the
// usual one beside such a card (gpu/architecture.h).
Device among_hosts(Device, int gpus, int per_host, std::optional<LinkRate> link);
// Empty: one host, and no rate that it ignores.
std::string hosts_in_words(const Device&, int gpus, int per_host, std::optional<LinkRate> link);

}  // namespace headroom::studies

namespace headroom {
template <>
struct WordsOf<studies::LinkRate> {
  static constexpr const char* shape = "GB/s";
  static std::string to(const studies::LinkRate& r) { return fmt::format("{:g}GB/s", r.bytes_per_s / 1e9); }
  static std::optional<studies::LinkRate> named(std::string_view word) {
    const auto [number, unit] = number_and_unit(word);
    const auto is = [unit = unit](auto... spellings) { return ((unit == spellings) || ...); };
    const double scale = is("", "GB/s", "GBps") ? 1e9 : is("MB/s", "MBps") ? 1e6 : is("Gb/s", "Gbit/s", "Gbps", "gbps") ? 1e9 / 8 : 0;
    if (scale == 0 || !(number > 0) || number > 1e6) return std::nullopt;
    return studies::LinkRate{number * scale};
  }
  static std::vector<std::string> all() { return {}; }
  static std::string why_not(std::string_view) { return "it must be a rate above 0, as 50GB/s or 400Gb/s"; }
};
}  // namespace headroom
