// headroom attention — sweep attention variants and say what the rows mean.
#include "cli/described_options.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/attention/study.h"

namespace headroom::cli {

RunCommand attention(CLI::App& app, Common& common) {
  struct Asked {
    studies::AttentionSweep sweep;
    bool resume = false;
  };
  auto asked = std::make_shared<Asked>();
  add_described(app, asked->sweep);
  say_usual_precision(app);
  app.get_option("--seconds")->default_str("");  // its help says what it is without being asked for
  add_flag(app, "--resume", asked->resume, "Continue the interrupted run with the same settings");
  app.footer(
      "Examples:\n"
      "  headroom attention\n"
      "  headroom attention --batch 8 --dim 16,64,128 --len 256,1024,2048 --mask causal --format json --out sweep.json\n"
      "  headroom attention --attention plain,flash --dim 64 --len 4096,8192 --memory 2  # what fits in 2 GiB?\n"
      "  headroom attention --len 1024 --until 0.5%  # measure until the mean is known\n"
      "  headroom attention --precision fp8,bf16 --dim 128 --pass forward --attention flash  # fp8 is Hopper's; a CPU emulates it\n"
      "  headroom attention --documents 700,24,1,299 --mask causal --dim 128  # documents, packed into each row\n"
      "  headroom attention --cached 4096,512,77 --page 16 --heads 32 --kv-heads 8 --dim 128 --pass forward  # decode one position for "
      "each cache\n\n"
      "Exit codes: 0 every row was measured; 1 a row is wrong, or Ctrl-C stopped it; 3 every row is oom or refused.");
  return [asked, &app, &common] {
    check_lengths_said_once(app, !asked->sweep.documents.empty(), !asked->sweep.cached.empty());
    if (!asked->sweep.cached.empty() && app.count("--len") == 0) asked->sweep.lens = {1};
    bench::Protocol& p = asked->sweep.protocol;
    const bool exactly = app.count("--steps") > 0, as_long_as_needed = p.until > 0 && !exactly;
    if (as_long_as_needed) p.steps = 1'000'000;
    if (app.count("--seconds") == 0) p.seconds = exactly ? 0 : as_long_as_needed ? 60 : 1;
    asked->sweep.seed = common.seed;
    Device device = chosen_device(common);
    if (!names_precision(app)) asked->sweep.dtypes = {engine::usual_precision(device)};
    studies::cases_of(asked->sweep, device);  // bad settings end here, before a store is looked into
    if (const auto kept = kept_ceilings(device, common)) device.ceilings = *kept;
    return with_host("attention", common, asked->resume,
                     [&](const studies::Host& host) { return attention_study(asked->sweep, device, host); });
  };
}

}  // namespace headroom::cli
