// headroom bench — the tables of the docs again, on this machine.
#include "studies/bench/bench.h"
#include "base/error.h"
#include "cli/described_options.h"
#include "cli/options.h"
#include "cli/outcome.h"
#include "gpu/device.h"

namespace headroom::cli {

RunCommand bench(CLI::App& app, Common& common) {
  struct Asked {
    studies::BenchAsked study;
    bool resume = false, list = false;
  };
  auto a = std::make_shared<Asked>();
  add_described(app, a->study);
  add_flag(app, "--list", a->list, "Show the tables and their commands; measure nothing");
  add_flag(app, "--resume", a->resume, "Continue the interrupted run with the same settings");
  app.footer(
      "Examples:\n  headroom bench --list\n  headroom bench --quick --out my_card.json\n  headroom bench --python venv/bin/python3 --out "
      "my_card.json\n"
      "  headroom report bench/cards/*.json --out page.html\n\n"
      "On a CPU there are fewer tables, of smaller sizes; they take two minutes.\n"
      "Exit codes: 0 every table that this machine can measure was measured; 1 one failed, or Ctrl-C stopped it; 3 it can measure none.");
  return [a, &app, &common] {
    for (const char* of_measuring : {"--resume", "--minutes", "--card", "--python", "--peers"})
      check(!a->list || app.count(of_measuring) == 0, Code::bad_argument, "--list measures nothing; leave {} out", of_measuring);
    const Device d = chosen_device(common);
    const int gpus = cuda_device_count();
    if (a->list) return deliver(studies::bench_list(a->study, d, gpus), common);
    return with_host(
        "bench", common, a->resume, [&](const studies::Host& host) { return studies::bench_study(a->study, d, gpus, host); },
        Elsewhere::lines);
  };
}

}  // namespace headroom::cli
