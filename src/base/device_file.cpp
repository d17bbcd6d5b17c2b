#include "base/device_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace headroom {

namespace {

constexpr std::int64_t of_kernels = 2, of_units = 3;  // versions of a file's efficiencies

using Json = nlohmann::json;
using Written = nlohmann::ordered_json;  // keys in the order in which they are described

std::string from_on(double low) { return low == 0 ? "from 0 (not known)" : fmt::format("from {:g}", low); }

std::string bound(double most) { return most < 1e6 ? fmt::format("{:.0f}", most) : fmt::format("1e{:.0f}", std::log10(most)); }

template <Described T>
T struct_in(const Json&);

template <class T>
void take_member(const Json& j, const Description& d, T& into) {
  if constexpr (is_list<T>) {
    check(j.is_array(), Code::bad_argument, "{} is {}, it must be a list", d.name, j.dump());
    try {
      for (const Json& one : j) into.push_back(struct_in<typename T::value_type>(one));
    } catch (const Error& e) { throw Error(e.at, fmt::format("of its {}, {}", d.name, e.what())); }
  } else if constexpr (std::is_floating_point_v<T>) {
    into = j.is_number() ? j.get<double>() : -1;
    check(into >= d.real.low && into <= d.real.high, Code::bad_argument, "{} is {}, it must be a number {} to {}", d.name, j.dump(),
          from_on(d.real.low), bound(d.real.high));
  } else if constexpr (std::is_integral_v<T>) {
    into = j.is_number_integer() ? j.get<T>() : -1;
    check(into >= d.allowed.low && into <= d.allowed.high, Code::bad_argument, "{} is {}, it must be a whole number {} to {}", d.name,
          j.dump(), from_on(double(d.allowed.low)), d.allowed.high);
  } else {
    check(j.is_string(), Code::bad_argument, "{} is {}, it must be a text in quotes", d.name, j.dump());
    const std::string& word = j.get_ref<const std::string&>();
    if constexpr (OneWord<T>) {
      const auto value = WordsOf<T>::named(word);
      check(value.has_value(), Code::bad_argument, "{} is '{}'; choose from {}{}", d.name, word, joined(WordsOf<T>::all()),
            did_you_mean(word, WordsOf<T>::all()));
      into = *value;
    } else {
      into = word;
    }
  }
}

template <Described T>
T struct_in(const Json& j) {
  check(j.is_object(), Code::bad_argument, "it holds no object");
  T x;
  std::vector<std::string> known;
  describe(x, [&](auto&, const Description& d) { known.emplace_back(d.name); });
  for (const auto& [key, value] : j.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;  // the nearest key is looked for only where it is said
    check(false, Code::bad_argument, "there is no key '{}'; choose from {}{}", key, joined(known), did_you_mean(key, known));
  }
  describe(x, [&](auto& member, const Description& d) {
    if (const auto at = j.find(d.name); at != j.end()) take_member(*at, d, member);
  });
  return x;
}

template <Described T>
Written written(const T& x) {
  Written j = Written::object();
  const T usual{};
  std::vector<Written> otherwise;  // how a value that was not set is written
  const auto value_of = []<class M>(const M& member) -> Written {
    if constexpr (is_list<M>) {
      Written list = Written::array();
      for (const auto& one : member) list.push_back(written(one));
      return list;
    } else if constexpr (OneWord<M>) {
      return WordsOf<M>::to(member);
    } else if constexpr (std::is_floating_point_v<M>) {
      return std::stod(fmt::format("{:.10g}", member));  // what follows is rounding
    } else {
      return member;
    }
  };
  describe(usual, [&](const auto& member, const Description&) { otherwise.push_back(value_of(member)); });
  std::size_t field = 0;
  describe(x, [&](const auto& member, const Description& d) {
    Written value = value_of(member);
    const bool needed = OneWord<std::remove_cvref_t<decltype(member)>>;  // a word that is left out would have to be looked up
    if (needed || value != otherwise[field]) j[d.name] = std::move(value);
    ++field;
  });
  return j;
}

// Rates of a device beside the numbers of its file, and how many of the one are one of the other.
struct Rate {
  double Ceilings::*rate;
  double DeviceFile::*number;
  double scale;
};
constexpr Rate rates[] = {
    {&Ceilings::copy_bytes_per_s, &DeviceFile::copy_tb_s, 1e12}, {&Ceilings::fp32_flops, &DeviceFile::fp32_tflops, 1e12},
    {&Ceilings::tf32_flops, &DeviceFile::tf32_tflops, 1e12},     {&Ceilings::bf16_flops, &DeviceFile::bf16_tflops, 1e12},
    {&Ceilings::fp16_flops, &DeviceFile::fp16_tflops, 1e12},     {&Ceilings::fp8_flops, &DeviceFile::fp8_tflops, 1e12},
    {&Ceilings::link_bytes_per_s, &DeviceFile::link_gb_s, 1e9},  {&Ceilings::host_bytes_per_s, &DeviceFile::host_gb_s, 1e9}};

}  // namespace

Device device_from_json(const Json& j) {
  const auto f = struct_in<DeviceFile>(j);
  check(!f.name.empty(), Code::bad_argument, "its name is missing");
  check(f.memory_mib * 0x1p20 >= 1, Code::bad_argument, "its memory_mib is missing or 0");
  check(f.kind == DeviceKind::cpu || f.units >= 1, Code::bad_argument,
        "its units (multiprocessors) are missing or 0; workspaces are as large as there are of them");
  Device d;
  d.kind = f.kind, d.key = f.key, d.name = f.name, d.sm = int(f.sm), d.units = int(f.units);
  d.memory_bytes = d.total_bytes = std::uint64_t(f.memory_mib * 0x1p20);
  for (const Rate& r : rates) d.ceilings.*r.rate = f.*r.number * r.scale;
  d.ceilings.source = f.source.empty() ? "described" : f.source;
  if (!f.efficiencies.empty()) {
    Efficiencies all{f.efficiencies, d.ceilings, d.ceilings.source};
    for (Efficiency& e : all.by_precision) e.of_kernels = f.efficiency_version >= of_kernels, e.of_units = f.efficiency_version >= of_units;
    d.efficiencies = std::make_shared<const Efficiencies>(std::move(all));
  }
  return d;
}

std::string device_file_text(const Device& d) {
  DeviceFile f;
  f.kind = d.kind, f.key = d.key, f.name = d.name, f.sm = d.sm, f.units = d.units;
  f.memory_mib = double(d.total_bytes) / 0x1p20;
  for (const Rate& r : rates) f.*r.number = d.ceilings.*r.rate / r.scale;
  f.source = d.ceilings.source;
  if (d.efficiencies) {
    f.efficiencies = d.efficiencies->by_precision;
    if (std::ranges::all_of(f.efficiencies, &Efficiency::of_kernels)) f.efficiency_version = of_kernels;
    if (std::ranges::all_of(f.efficiencies, &Efficiency::of_units)) f.efficiency_version = of_units;
  }
  return written(f).dump(2) + "\n";
}

}  // namespace headroom
