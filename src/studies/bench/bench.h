// bench — the tables of the docs again, on the machine that is here: each by the command that makes it, which anyone can repeat alone. Ours by
// this program, peers in turns with it by the scripts of bench/peers, where a Python with torch is installed. A table is kept as soon as it is
// there; one that could not be measured says why.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "studies/bench/rows.h"
#include "studies/life.h"

namespace headroom::studies {

struct BenchTable {
  std::string name, title, docs;
  std::vector<std::string> command;  // the command to type, in the repository
  std::string lines = "rows";        // the lines' name in the file
  double minutes = 1;                // its time limit
  bool resumes = false;              // its command knows --resume
};

std::vector<std::string> bench_table_names();

struct BenchAsked {
  std::vector<std::string> tables{};
  bool quick = false;
  std::optional<double> minutes{};
  std::string python = "python3", peers{}, card{};
};
void describe(Of<BenchAsked> auto& a, auto&& f) {
  f(a.tables, {.name = "tables", .about = "Tables to measure [all]", .choices = bench_table_names});
  f(a.quick, {.name = "quick", .about = "Less of each table: fewer rounds and shapes"});
  f(a.minutes, {.name = "minutes",
                .about = "Time for all of them; a table that needs more than is left is refused [20; 5 with --quick]",
                .real = {0.1, 1e4}});
  f(a.python, {.name = "python", .about = "A Python that has torch, for the peers"});
  f(a.card, {.name = "card",
             .about = "An earlier file of this card: its tables are kept, except those that --tables names; those it lacks are measured"});
  f(a.peers, {.name = "peers", .about = "Folder of the peers' scripts [bench/peers]"});
}

// A GPU's tables, or fewer and smaller ones for a CPU. gpus: how many this machine has.
std::vector<BenchTable> bench_tables(const Device&, int gpus, bool quick);

Record bench_list(const BenchAsked&, const Device&, int gpus);
Outcome bench_study(const BenchAsked&, const Device&, int gpus, const Host&);

}  // namespace headroom::studies
