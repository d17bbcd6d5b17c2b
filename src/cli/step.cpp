// headroom step — time forward, backward and optimiser of a language model.
#include "base/error.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "cli/ranks_options.h"
#include "studies/step/step_time.h"

namespace headroom::cli {

RunCommand step(CLI::App& app, Common& common) {
  struct Asked {
    studies::StepTime study;
    ModelOptions model;
    RanksOptions ranks;
    bool resume = false;
  };
  auto a = std::make_shared<Asked>();
  add_model(app, a->model);
  add_described(app, a->study);
  say_usual_precision(app);
  add_ranks(app, a->ranks);
  add_flag(app, "--resume", a->resume, "Continue the interrupted run with the same settings");
  group_by_subject(app);
  app.footer(
      "Examples:\n  headroom step --width 256 --layers 4 --heads 4 --len 256\n  headroom step --model small --len 128,256 --memory 4\n"
      "  headroom step --device cuda --model small,medium,large,xl,2.7B --len 128,256,512,1024 --precision fp32,bf16 --seconds 1\n"
      "  headroom step --device cuda --model small --len 1024 --precision bf16 --warmup 0,1,2,5\n"
      "  headroom step --model small --documents 700,24,1,299 --precision bf16  # documents, packed into each row\n"
      "  headroom step --model small --len 1024 --precision bf16 --gpus 2 --shard optimizer\n\n"
      "Exit codes: 0 every row was measured; 1 a row failed, or Ctrl-C stopped it; 3 every row is oom or refused.");
  return [a, &app, &common] {
    check_lengths_said_once(app, !a->study.documents.empty());
    const dist::Seat seat = find_seat(a->ranks.asked());
    check_for_ranks(app, seat);
    return as_ranks(seat, app, common, [&](dist::Group* group) {
      studies::StepTime s = a->study;
      s.models = a->model.models();
      s.seed = common.seed;
      s.ranks.count = seat.ranks;
      Device d = chosen_device(common, group);
      if (!names_precision(app)) s.levers.precision = {engine::usual_precision(d)};
      if (const auto kept = kept_ceilings(d, common)) {
        if (d.kind == DeviceKind::cuda) d.ceilings = *kept;
        // It used every core: a rank has its share of them.
        if (d.kind == DeviceKind::cpu && s.threads == 0)
          s.matmul_flops = kept->fp32_flops / (group ? group->rendezvous().local_ranks() : 1);
      }
      take_kept_links(d, common);
      return with_host("step", common, a->resume, [&](const studies::Host& host) { return studies::step_study(s, d, host, group); });
    });
  };
}

}  // namespace headroom::cli
