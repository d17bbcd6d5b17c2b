// A described card: the library's answers about it, and the text that carries it from the command to the library.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace headroom::dry {

struct Card {
  std::string name = "NVIDIA H200";
  std::uint64_t memory_bytes = 150109880320;          // cudaMemGetInfo's total
  std::uint64_t context_bytes = 0;                    // the part that each process's context takes
  std::uint64_t libraries_bytes = ~std::uint64_t(0);  // what context_bytes has of libraries' already; only what they take past it counts
  std::uint64_t others_bytes = 0;                     // the part that other programs hold
  // 1: it is never full, though it says how large it is. n: once PyTorch has raised n - 1 errors for want of memory, which the program caught.
  std::uint64_t unlimited = 0;
  std::uint64_t sm = 90, units = 132;   // sm: 90 for 9.0
  std::uint64_t shared_bytes = 232448;  // most shared memory of a block
  std::uint64_t l2_bytes = 62914560;
  // Paces the clocks: only the order of events matters here; the reader of the record computes times.
  double bytes_per_s = 4.1e12, half_flops = 6.7e14, single_flops = 5.1e13, link_bytes_per_s = 3e11, launch_s = 2e-6;
};

// Calls f(key, member) for every field, in order: the one list of what the text carries.
template <class C, class F>
void each_field(C& card, F&& f) {
  f("name", card.name);
  f("memory", card.memory_bytes);
  f("context", card.context_bytes);
  f("libraries", card.libraries_bytes);
  f("others", card.others_bytes);
  f("unlimited", card.unlimited);
  f("sm", card.sm);
  f("units", card.units);
  f("shared", card.shared_bytes);
  f("l2", card.l2_bytes);
  f("bandwidth", card.bytes_per_s);
  f("half", card.half_flops);
  f("single", card.single_flops);
  f("link", card.link_bytes_per_s);
  f("launch", card.launch_s);
}

inline std::string card_text(const Card& card) {
  std::string out;
  each_field(card, [&](const char* key, const auto& value) {
    if (!out.empty()) out += ';';
    out += key;
    out += '=';
    if constexpr (requires { value.size(); }) {
      for (const char c : value) out += c == ';' ? ',' : c;
    } else {
      char digits[40];
      out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    }
  });
  return out;
}

// Parts that are missing keep their default; false: a part has no such key, or its number is none.
inline bool read_card(std::string_view text, Card& card) {
  bool right = true;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(';'));
    text.remove_prefix(part.size() + (part.size() < text.size()));
    const auto equals = part.find('=');
    bool found = false;
    if (equals != std::string_view::npos)
      each_field(card, [&](const char* key, auto& value) {
        if (part.substr(0, equals) != key) return;
        const std::string_view said = part.substr(equals + 1);
        if constexpr (requires { value.size(); }) {
          value = said;
          found = true;
        } else {
          const auto end = std::from_chars(said.data(), said.data() + said.size(), value);
          found = end.ec == std::errc() && end.ptr == said.data() + said.size();
        }
      });
    right &= found;
  }
  return right;
}

}  // namespace headroom::dry
