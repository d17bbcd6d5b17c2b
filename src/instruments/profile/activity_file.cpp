#include "instruments/profile/activity_file.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <unordered_map>

namespace headroom::profile {

namespace {

struct Launch {
  std::int64_t start_ns = 0;
  std::uint32_t thread = 0;
};

constexpr std::int64_t longest_ns = 1ll << 60, most_bytes = 1ll << 50;  // larger numbers are errors

bool sensible(std::int64_t start_ns, std::int64_t end_ns) { return start_ns >= 0 && start_ns <= end_ns && end_ns < longest_ns; }
bool sensible_bytes(std::int64_t bytes) { return bytes >= 0 && bytes < most_bytes; }

class Reader {
 public:
  ActivityLog log;

  void line(const std::string& text) {
    std::istringstream in(text);
    char letter = 0;
    in >> letter;
    if (!understood(letter, in)) ++log.strange_lines;
  }

  void finish() {
    std::stable_sort(markers_.begin(), markers_.end(), [](const Marker& a, const Marker& b) { return a.at_ns < b.at_ns; });
    for (const Marker& m : markers_)
      if (!(m.begins ? range_begins(m) : range_ends(m))) ++log.strange_lines;
    for (Range& r : log.ranges)
      if (r.end_ns == 0) r.end_ns = log.ended_ns ? log.ended_ns : last_ns_;  // still open when the program ended
    for (std::size_t i = 0; i < log.slices.size(); ++i) log.slices[i].mark = range_of(correlations_[i]);
    std::stable_sort(log.slices.begin(), log.slices.end(), [](const Slice& a, const Slice& b) { return a.start_ns < b.start_ns; });
    std::stable_sort(log.memory.begin(), log.memory.end(), [](const Moment& a, const Moment& b) { return a.at_ns < b.at_ns; });
    std::int64_t live = 0;
    for (Moment& m : log.memory) m.live_bytes = live = std::max<std::int64_t>(0, live + m.bytes);
  }

 private:
  bool understood(char letter, std::istringstream& in) {
    std::int64_t start = 0, end = 0;
    switch (letter) {
      case 'V': return bool(in >> start) && start == 1;
      case 'H':
        if (!(in >> start) || !sensible(start, start)) return false;
        log.loaded_ns = start;
        return true;
      case 'Z':
        if (!(in >> end) || !sensible(end, end)) return false;
        log.ended_ns = end;
        return true;
      case 'X': return bool(std::getline(in >> std::ws, log.refusal));
      case 'O':
        if (!(in >> start >> end) || !sensible(start, end)) return false;
        log.overhead_ns += double(end - start);
        return true;
      case 'N': {
        int id = 0;
        std::string name;
        if (!(in >> id) || !std::getline(in >> std::ws, name)) return false;
        names_[id] = readable(name);
        return true;
      }
      case 'K':
      case 'C':
      case 'F': return slice(letter, in);
      case 'A':
      case 'R': return memory(letter == 'A', in);
      case 'B':
      case 'E': {
        Marker m{letter == 'B', 0, 0, 0, 0};
        if (!(in >> m.at_ns >> m.id >> m.thread >> m.name) || !sensible(m.at_ns, m.at_ns)) return false;
        markers_.push_back(m);
        return true;
      }
      case 'L': {
        Launch l;
        std::uint32_t correlation = 0;
        if (!(in >> l.start_ns >> end >> l.thread >> correlation) || !sensible(l.start_ns, end)) return false;
        launches_.emplace(correlation, l);  // the outermost call of a correlation comes last, the first is as good
        return true;
      }
      default: return false;
    }
  }

  bool slice(char letter, std::istringstream& in) {
    Slice s;
    int name = 0;
    std::uint32_t device = 0, correlation = 0;
    if (!(in >> s.start_ns >> s.end_ns >> device >> s.stream >> name >> correlation >> s.bytes) || !sensible(s.start_ns, s.end_ns) ||
        !sensible_bytes(s.bytes))
      return false;
    s.kernel = names_.contains(name) ? names_[name] : "(no name)";
    s.kind = letter == 'K' ? SliceKind::kernel : letter == 'C' ? SliceKind::copy : SliceKind::fill;
    s.step = int(device);
    last_ns_ = std::max(last_ns_, s.end_ns);
    log.slices.push_back(std::move(s));
    correlations_.push_back(correlation);
    return true;
  }

  bool memory(bool take, std::istringstream& in) {
    Moment m;
    std::uint64_t address = 0;
    int name = 0;
    if (!(in >> m.at_ns >> address >> m.bytes >> name) || !sensible(m.at_ns, m.at_ns) || !sensible_bytes(m.bytes)) return false;
    if (take)
      sizes_[address] = m.bytes;
    else
      m.bytes = -(m.bytes > 0 ? m.bytes : sizes_[address]);
    m.name = names_.contains(name) ? names_[name] : "";
    log.memory.push_back(std::move(m));
    return true;
  }

  struct Marker {
    bool begins;
    std::int64_t at_ns;
    std::uint64_t id;
    std::uint32_t thread;
    int name;
  };

  bool range_begins(const Marker& m) {
    auto& open = open_ranges_[m.thread];
    range_of_id_[m.id] = int(log.ranges.size());
    log.ranges.push_back({names_.contains(m.name) ? names_[m.name] : "(no name)", m.thread, m.at_ns, 0, open.empty() ? -1 : open.back()});
    open.push_back(int(log.ranges.size()) - 1);
    return true;
  }

  bool range_ends(const Marker& m) {
    const auto found = range_of_id_.find(m.id);
    if (found == range_of_id_.end()) return false;
    Range& r = log.ranges[std::size_t(found->second)];
    r.end_ns = m.at_ns;
    auto& open = open_ranges_[r.thread];
    open.erase(std::remove(open.begin(), open.end(), found->second), open.end());
    range_of_id_.erase(found);
    return true;
  }

  // The innermost range of the launching thread at that moment; where that thread has none (PyTorch's backward runs on one of its own),
  // the innermost of any thread.
  int range_of(std::uint32_t correlation) const {
    const auto launch = launches_.find(correlation);
    if (launch == launches_.end()) return -1;
    int any = -1;
    auto r = std::upper_bound(log.ranges.begin(), log.ranges.end(), launch->second.start_ns,
                              [](std::int64_t t, const Range& range) { return t < range.start_ns; });
    for (int looked = 0; r != log.ranges.begin() && looked < most_looked_at; ++looked) {
      --r;
      if (r->end_ns < launch->second.start_ns) continue;
      if (r->thread == launch->second.thread) return int(r - log.ranges.begin());
      if (any < 0) any = int(r - log.ranges.begin());
    }
    return any;
  }

  static constexpr int most_looked_at = 512;  // ranges that began before a launch
  std::map<int, std::string> names_;
  std::vector<Marker> markers_;
  std::vector<std::uint32_t> correlations_;
  std::unordered_map<std::uint32_t, Launch> launches_;
  std::unordered_map<std::uint64_t, std::int64_t> sizes_;
  std::unordered_map<std::uint64_t, int> range_of_id_;
  std::map<std::uint32_t, std::vector<int>> open_ranges_;
  std::int64_t last_ns_ = 0;
};

}  // namespace

std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> words(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || !words) return mangled;
  std::string s = words.get();
  int depth = 0;  // the argument list is the last bracket outside of angle brackets
  for (std::size_t i = s.size(); i-- > 0;) {
    if (s[i] == ')') ++depth;
    if (s[i] == '(' && --depth == 0) {
      s.resize(i);
      break;
    }
  }
  if (s.starts_with("void ")) s.erase(0, 5);
  if (s.starts_with("headroom::")) {  // for our kernels the last name is enough
    const auto last = s.rfind("::", s.find('<'));
    s.erase(0, last + 2);
  }
  for (const std::string noise : {"headroom::", "(anonymous namespace)::"})
    for (auto at = s.find(noise); at != std::string::npos; at = s.find(noise)) s.erase(at, noise.size());
  return s;
}

std::string short_name(const std::string& readable) {
  const auto erase_all = [](std::string& s, const std::string& what) {
    for (auto at = s.find(what); at != std::string::npos; at = s.find(what)) s.erase(at, what.size());
  };
  std::string plain;  // outside of brackets
  int round = 0, curly = 0;
  for (const char c : readable) {
    round -= c == ')' && round > 0;
    curly -= c == '}' && curly > 0;
    if (round == 0 && curly == 0 && c != '(' && c != ')' && c != '{' && c != '}') plain += c;
    round += c == '(';
    curly += c == '{';
  }
  erase_all(plain, "::operator const");
  std::string s;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain.compare(i, 2, "::") != 0) {
      s += plain[i];
      continue;
    }
    const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    const bool goes_on = i + 2 < plain.size() && in_name(plain[i + 2]);
    if (goes_on && !s.empty() && !in_name(s.back())) s += "::";  // a template's instance
    while (goes_on && !s.empty() && in_name(s.back())) s.pop_back();
    ++i;
  }
  for (auto at = s.find("> >"); at != std::string::npos; at = s.find("> >")) s.replace(at, 3, ">>");
  return s.empty() ? readable : s;
}

ActivityLog read_activity(std::istream& in) {
  Reader reader;
  std::string text;
  while (std::getline(in, text)) {
    if (in.eof()) break;  // no newline: cut off
    if (!text.empty()) reader.line(text);
  }
  reader.finish();
  return std::move(reader.log);
}

}  // namespace headroom::profile
