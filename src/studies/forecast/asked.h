// What a forecast is asked: a program, a card, how many of them, and what may be varied.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "store/described_json.h"
#include "studies/memory/asked.h"

namespace headroom::studies {

struct Forecast {
  std::vector<std::string> program;  // its words; {NAME} stands for a value of largest or sweep
  std::optional<std::uint64_t> memory_bytes{};
  int gpus = 0;            // 0: as many as the program's launcher is told, else 1
  std::int64_t steps = 0;  // 0: until two steps agree
  std::string largest{}, sweep{};
  double host_speed = 1;  // beside the host that was measured
  bool tries = false, check = false;
  Device device;
};
void describe(Of<Forecast> auto& a, auto&& f) {
  f(a.program, {.name = "program"});
  f(a.memory_bytes, {.name = "memory", .unit = Unit::bytes, .about = "Memory of each card [all that its driver makes available]"});
  f(a.gpus, {.name = "gpus",
             .about = "Cards that each process sees; 0: as many as torchrun or accelerate is told to start, else 1",
             .allowed = {0, 64},
             .option = "--gpus,--ranks"});
  f(a.steps, {.name = "steps",
              .about = "End the program after this many optimizer steps; 0: once the peaks of two steps agree. What comes later is not run",
              .allowed = {0, 1 << 20}});
  f(a.largest, {.name = "largest", .about = "Find the largest value that fits, as batch=1..256; {batch} in the command is replaced by it"});
  f(a.sweep, {.name = "sweep", .about = "A row for each value, as len=1024,4096; {len} in the command is replaced by it"});
  f(a.host_speed, {.name = "host_speed",
                   .about = "Speed of the program's host beside that of the measured card, as 2 for twice as fast: it decides the time of "
                            "steps that wait for the host",
                   .real = {0.01, 100}});
  f(a.tries, {.name = "try", .about = "Also run it with what can be changed from outside, and rank what that saves"});
  f(a.check, {.name = "check", .about = "Also run it for real on the card that is here, and show both"});
}

// A setting of the command line that is varied: "batch=1..256", "len=1024,4096".
struct Varied {
  std::string name;
  std::vector<std::string> values;  // a list's values
  std::int64_t low = 0, high = 0;   // a range's ends
};
Varied list_of_values(const std::string& text, const std::vector<std::string>& program);   // --sweep
Varied range_of_values(const std::string& text, const std::vector<std::string>& program);  // --largest

std::vector<std::string> with_value(std::vector<std::string> program, const std::string& name, const std::string& value);

// The processes that a launcher in the command starts on this host: torchrun --nproc-per-node 8; 1 where it names none.
int ranks_told(const std::vector<std::string>& program);

// A launcher that is told of several hosts (torchrun --nnodes 4): the command that starts one host's ranks alone, and how many hosts there are.
struct OneHost {
  std::vector<std::string> program;
  int hosts = 1;
};
OneHost one_host_of(const std::vector<std::string>& program);

// An Error that says what is allowed, before anything is run.
void check(const Forecast&);

}  // namespace headroom::studies
