// headroom memory <topic> — where the bytes go. Each topic is a row here and a file of its own.
#include "cli/command.h"
#include "cli/options.h"

namespace headroom::cli {

namespace {
constexpr Command topics[] = {
    {"attention", "Every byte of one attention, forward and backward: ours, or PyTorch eager's", memory_attention_topic},
    {"model", "Every byte of a language model's training step, from a dry run of it", memory_model_topic},
};
}  // namespace

RunCommand memory(CLI::App& app, Common& common) {
  common.machine = Machine::described;
  return with_topics(app, common, topics);
}

}  // namespace headroom::cli
