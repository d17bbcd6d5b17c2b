// headroom forecast -- COMMAND — does any PyTorch program fit on a card, and what takes its bytes: the program itself, run dry.
#include <unistd.h>

#include <cstdio>

#include "cli/described_options.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/forecast/forecast.h"
#include "studies/launch.h"

namespace headroom::cli {

namespace {

// A card that is here, else an H200: no GPU is needed for the answer.
Device forecast_device(const Common& common) {
  if (!common.device.empty()) return described_device(common);
  const Device here = chosen_device(common);
  return here.kind == DeviceKind::cuda ? here : device_described("h200");
}

}  // namespace

RunCommand forecast(CLI::App& app, Common& common) {
  auto a = std::make_shared<studies::Forecast>();
  add_described(app, *a);
  app.add_option("command", a->program, "After --: a program that uses PyTorch on CUDA, and its arguments")->type_name("-- COMMAND");
  app.footer(
      "Examples:\n"
      "  headroom forecast -- python3 train.py --batch 8  # no GPU is needed\n"
      "  headroom forecast --device rtx4090 -- torchrun --nproc-per-node 8 train.py\n"
      "  headroom forecast --largest batch=1..256 -- python3 train.py --batch {batch}\n"
      "  headroom forecast --sweep len=1024,4096,16384 -- python3 train.py --seq {len}\n"
      "  headroom forecast --try --device rtx4090 -- python3 train.py\n\n"
      "The program runs unchanged with its CUDA build of PyTorch, under a CUDA that is not there: PyTorch's own allocator "
      "counts. Its output goes to standard error. docs/forecast.md says what is exact, and how to check it on a card.\n"
      "Exit codes: 0 it fits; 3 it does not; 1 the program failed of itself, or was stopped; 2 wrong usage.");
  common.machine = Machine::a_gpu;
  return [a, &common] {
    a->device = forecast_device(common);
    a->program = studies::as_meant(a->program);
    studies::check(*a);
    const bool for_people = common.format == Format::text || common.format == Format::markdown || common.format == Format::html;
    return with_host("forecast", common, false, [&](const studies::Host& host) {
      const bool terminal = isatty(STDERR_FILENO) == 1;
      const auto output = [terminal](std::string_view text) {
        if (terminal) std::fputs("\r\033[K", stderr);  // the line of progress
        std::fwrite(text.data(), 1, text.size(), stderr);
      };
      return studies::forecast(*a, host, output, for_people);
    });
  };
}

}  // namespace headroom::cli
