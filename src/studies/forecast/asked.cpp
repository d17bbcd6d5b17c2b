#include "studies/forecast/asked.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "gpu/architecture.h"

namespace headroom::studies {

namespace {

std::string in_braces(const std::string& name) { return "{" + name + "}"; }

// The names in braces that a command has: {batch}. A word of Python or JSON has braces around other things.
std::vector<std::string> names_in(const std::vector<std::string>& program) {
  std::set<std::string> names;
  for (const std::string& word : program)
    for (auto at = word.find('{'); at != std::string::npos; at = word.find('{', at + 1)) {
      const auto end = word.find('}', at);
      if (end == std::string::npos) break;
      const std::string name = word.substr(at + 1, end - at - 1);
      if (!name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; }))
        names.insert(name);
    }
  return {names.begin(), names.end()};
}

bool is_small_number(const std::string& text) {
  return !text.empty() && text.size() < 4 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::pair<std::string, std::string> halves(const std::string& text, const char* option, const char* example,
                                           const std::vector<std::string>& program) {
  const auto equals = text.find('=');
  check(equals != std::string::npos && equals > 0 && equals + 1 < text.size(), Code::bad_argument,
        "{}: '{}' is no name with values; write {}", option, text, example);
  const std::string name = text.substr(0, equals);
  const bool there =
      std::any_of(program.begin(), program.end(), [&](const std::string& w) { return w.find(in_braces(name)) != std::string::npos; });
  check(there, Code::bad_argument, "{}: the command has no {}; write it where the value belongs{}", option, in_braces(name),
        did_you_mean(name, names_in(program)));
  return {name, text.substr(equals + 1)};
}

}  // namespace

Varied list_of_values(const std::string& text, const std::vector<std::string>& program) {
  const auto [name, values] = halves(text, "--sweep", "len=1024,4096", program);
  Varied v{name, {}, 0, 0};
  if (const auto dots = values.find(".."); dots != std::string::npos) {
    const auto low = parse_integer(values.substr(0, dots), "--sweep"), high = parse_integer(values.substr(dots + 2), "--sweep");
    check(
        low <= high &&
                high -
                    low<1000, Code::bad_argument, "--sweep: '{}' is {}; a range goes upwards and has at most 1000 values", values, low> high
            ? "empty"
            : "too long");
    for (std::int64_t i = low; i <= high; ++i) v.values.push_back(fmt::format("{}", i));
    return v;
  }
  v.values = parse_list(values, "--sweep");
  return v;
}

Varied range_of_values(const std::string& text, const std::vector<std::string>& program) {
  const auto [name, values] = halves(text, "--largest", "batch=1..256", program);
  const auto dots = values.find("..");
  check(dots != std::string::npos, Code::bad_argument, "--largest: '{}' is no range; write {}=1..256", values, name);
  Varied v{name, {}, parse_integer(values.substr(0, dots), "--largest"), parse_integer(values.substr(dots + 2), "--largest")};
  check(v.low <= v.high, Code::bad_argument, "--largest: '{}' is empty; the smaller number comes first", values);
  return v;
}

std::vector<std::string> with_value(std::vector<std::string> program, const std::string& name, const std::string& value) {
  const std::string from = in_braces(name);
  for (std::string& word : program)
    for (auto at = word.find(from); at != std::string::npos; at = word.find(from, at + value.size())) word.replace(at, from.size(), value);
  return program;
}

OneHost one_host_of(const std::vector<std::string>& program) {
  OneHost one{program};
  // Calls `f` with each value that one of the options has, to be changed in place.
  const auto each = [&](std::initializer_list<const char*> options, auto&& f) {
    for (std::size_t i = 0; i < one.program.size(); ++i)
      for (const std::string option : options) {
        std::string& word = one.program[i];
        if (word == option && i + 1 < one.program.size()) f(one.program[i + 1]);
        if (!word.starts_with(option + "=")) continue;
        std::string value = word.substr(option.size() + 1);
        f(value);
        word = option + "=" + value;
      }
  };
  each({"--nnodes", "--num_machines", "--num-machines"}, [&](std::string& value) {
    const std::string most = value.substr(value.find(':') == std::string::npos ? 0 : value.find(':') + 1);  // torchrun: least:most
    if (!is_small_number(most) || std::stoi(most) < 2) return;
    one.hosts = std::stoi(most);
    value = "1";
  });
  if (one.hosts == 1) return {program};
  each({"--node-rank", "--node_rank", "--machine_rank", "--machine-rank"}, [](std::string& value) { value = "0"; });
  each({"--master-addr", "--master_addr", "--main_process_ip", "--main-process-ip"}, [](std::string& value) { value = "localhost"; });
  each({"--rdzv-endpoint", "--rdzv_endpoint"}, [](std::string& value) { value = "localhost:0"; });
  return one;
}

int ranks_told(const std::vector<std::string>& program) {
  static const std::vector<std::string> options{"--nproc-per-node", "--nproc_per_node", "--num_processes", "--num-processes", "--num_gpus"};
  for (std::size_t i = 0; i < program.size(); ++i)
    for (const std::string& option : options) {
      std::string value;
      if (program[i] == option && i + 1 < program.size()) value = program[i + 1];
      if (program[i].starts_with(option + "=")) value = program[i].substr(option.size() + 1);
      if (is_small_number(value) && value != "0") return std::stoi(value);
    }
  return 1;
}

void check(const Forecast& a) {
  check(!a.program.empty(), Code::bad_argument,
        "give -- and the program: headroom forecast -- python3 train.py (see headroom forecast --help)");
  check(a.device.kind == DeviceKind::cuda, Code::bad_argument,
        "--device: a program is forecast for a GPU; choose one from headroom device --known, or a file");
  check(architecture_of(a.device.sm).runs_cuda, Code::bad_argument,
        "--device: a program is run under a CUDA that is not there, and {} runs no CUDA; headroom memory model --as pytorch counts what "
        "PyTorch takes there",
        a.device.name);
  check(a.largest.empty() || !a.check, Code::bad_argument, "--check runs one setting for real; leave --largest out");
  check(!a.tries || (a.largest.empty() && a.sweep.empty()), Code::bad_argument, "--try starts from one setting; leave {} out",
        a.largest.empty() ? "--sweep" : "--largest");
  std::vector<std::string> varied;
  if (!a.sweep.empty()) varied.push_back(list_of_values(a.sweep, a.program).name);
  if (!a.largest.empty()) varied.push_back(range_of_values(a.largest, a.program).name);
  check(varied.size() < 2 || varied[0] != varied[1], Code::bad_argument, "--largest and --sweep both vary {}; vary two settings, or one",
        varied.empty() ? "" : varied[0]);
}

}  // namespace headroom::studies
