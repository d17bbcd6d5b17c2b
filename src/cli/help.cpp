#include "cli/help.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "base/other_words.h"
#include "base/text.h"
#include "cli/command.h"

namespace headroom::cli {

namespace {

constexpr int indent = 30;

// As wide as the terminal, within what is easy to read.
int help_columns() {
  const int columns = columns_of_output();
  return columns == 0 ? 100 : std::clamp(columns, 80, 100);
}

// In lines of at most `width`, ended after one of `ends` where that is possible.
std::vector<std::string> folded_at(const std::string& text, int width, std::string_view ends) {
  std::vector<std::string> lines(1);
  std::string piece;
  const auto end_piece = [&] {
    if (!lines.back().empty() && columns_of(lines.back()) + columns_of(piece) > width + (piece.ends_with(' ') ? 1 : 0))
      lines.emplace_back();
    lines.back() += piece;
    piece.clear();
  };
  for (const char c : text) {
    piece += c;
    if (ends.find(c) != std::string_view::npos) end_piece();
  }
  end_piece();
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

struct Synonym {
  std::string_view theirs, ours;
};
constexpr std::array synonyms{
    Synonym{"--seq-len", "--len"},
    Synonym{"--seqlen", "--len"},
    Synonym{"--sequence-length", "--len"},
    Synonym{"--max-seq-len", "--len"},
    Synonym{"--max-seq-length", "--len"},
    Synonym{"--max-length", "--len"},
    Synonym{"--max-model-len", "--len"},
    Synonym{"--context", "--len"},
    Synonym{"--context-length", "--len"},
    Synonym{"--batch-size", "--batch"},
    Synonym{"--per-device-train-batch-size", "--batch"},  // plan's --batch is of all GPUs: it has an option of this name
    Synonym{"--per-device-batch-size", "--batch"},
    Synonym{"--per-gpu-train-batch-size", "--batch"},
    Synonym{"--micro-batch-size", "--batch"},
    Synonym{"--model-name", "--model"},
    Synonym{"--model-name-or-path", "--model"},
    Synonym{"--dtype", "--precision"},
    Synonym{"--precision", "--dtype"},
    Synonym{"--variant", "--attention"},
    Synonym{"--attention", "--variant"},
    Synonym{"--num-gpus", "--gpus"},
    Synonym{"--world-size", "--gpus"},
    Synonym{"--nproc-per-node", "--gpus"},
    Synonym{"--tensor-parallel", "--gpus"},
    Synonym{"--tensor-parallel-size", "--gpus"},
    Synonym{"--gpu", "--device"},
    Synonym{"--card", "--device"},
    Synonym{"--vram", "--memory"},
    Synonym{"--num-layers", "--layers"},
    Synonym{"--hidden-size", "--width"},
    Synonym{"--num-heads", "--heads"},
    Synonym{"--num-kv-heads", "--kv-heads"},
    Synonym{"--vocab-size", "--vocab"},
    Synonym{"--head-dim", "--dim"},
    Synonym{"--concurrency", "--batch"},
    Synonym{"--kv-cache-dtype", "--cache"},
    Synonym{"--block-size", "--page"},  // a server's; of a trainer it is a length
    Synonym{"--block-size", "--len"},
    Synonym{"--quantization", "--weights"},
    Synonym{"--gradient-accumulation-steps", "--accumulate"},
    Synonym{"--gradient-accumulation-steps", "--micro-batches"},
    Synonym{"--max-steps", "--steps"},
    Synonym{"--max-iters", "--steps"},
    Synonym{"--learning-rate", "--lr"},
    Synonym{"--weight-decay", "--decay"},
    Synonym{"--max-grad-norm", "--clip"},
    Synonym{"--grad-clip", "--clip"},
    Synonym{"--warmup-steps", "--warmup"},
    Synonym{"--warmup-iters", "--warmup"},
    Synonym{"--logging-steps", "--log-every"},
    Synonym{"--log-interval", "--log-every"},
    Synonym{"--save-steps", "--every"},
    Synonym{"--save-every", "--every"},
    Synonym{"--n-layer", "--layers"},
    Synonym{"--n-head", "--heads"},
    Synonym{"--n-embd", "--width"},
    Synonym{"--lora-rank", "--lora"},
    Synonym{"--lora-r", "--lora"},
    Synonym{"--optim", "--adam"},
    Synonym{"--output", "--out"}};

bool knows(const CLI::App& app, const std::string& option) {
  if (app.get_option_no_throw(option)) return true;
  const auto topics = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(topics.begin(), topics.end(), [&](const CLI::App* topic) { return topic->get_option_no_throw(option) != nullptr; });
}

std::string two_columns(const std::string& name, const std::string& about) {
  std::string out;
  for (const std::string& line : folded_at(name, help_columns() - 6, "|, ")) out += (out.empty() ? "  " : "      ") + line + "\n";
  if (about.empty()) return out;
  const bool beside = out.find('\n') == out.size() - 1 && columns_of(out) < indent;
  if (beside) out.pop_back();
  return out + repeated(" ", beside ? indent - columns_of(out) : indent) + folded_from(indent, about) + "\n";
}

// An example that is too wide: its remark comes before it, and a shell reads the command over several lines. An option stays with its value.
std::string example(const std::string& line) {
  constexpr char together = '\x1f';
  const auto remark = line.find("  # ", 2);
  const std::string before = remark == std::string::npos ? "" : line.substr(remark) + "\n";
  std::string command = line.substr(0, remark);
  for (auto option = command.find(" --"); option != std::string::npos; option = command.find(" --", option + 1)) {
    const auto value = command.find(' ', option + 1);
    if (value != std::string::npos && command[value + 1] != '-' && command[option + 3] != ' ') command[value] = together;
  }
  const std::string next_line = " \\\n      ";
  command = joined(folded_at(command, help_columns() - int(next_line.size()) + 1, " "), next_line);
  std::replace(command.begin(), command.end(), together, ' ');
  return before + command;
}

}  // namespace

// CLI11 puts an empty line before each group and one after all but the last.
std::string HelpFormatter::make_group(std::string title, bool is_positional, std::vector<const CLI::Option*> options) const {
  const std::string text = CLI::Formatter::make_group(title, is_positional, std::move(options));
  return is_positional || title == "Options" ? text : text.substr(1);
}

// What an option excludes is said in its sentence.
std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string text = CLI::Formatter::make_option_opts(option);
  return text.substr(0, text.find(" " + get_label("Excludes") + ":"));
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = CLI::Formatter::make_option_desc(option);
  for (const CLI::Option* other : option->get_excludes()) text += "; not with " + other->get_name();
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return two_columns(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* topic) const {
  return two_columns(topic->get_display_name(true), topic->get_description());
}

std::string folded_from(int column, const std::string& sentence) {
  return joined(folded_at(sentence, help_columns() - column, " "), "\n" + repeated(" ", column));
}

std::string HelpFormatter::make_description(const CLI::App* app) const { return folded_from(0, CLI::Formatter::make_description(app)); }

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::istringstream lines(app->get_footer());
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const bool fits = columns_of(line) <= help_columns();
    out += (out.empty() ? "" : "\n") + (fits ? line : line.starts_with("  headroom") ? example(line) : folded_from(0, line));
  }
  return out.empty() ? out : out + "\n";
}

void group(CLI::App& app, std::initializer_list<HelpGroup> groups) {
  for (const HelpGroup& g : groups)
    for (const std::string& name : g.options)
      if (auto* option = app.get_option_no_throw(name)) option->group(g.title);
}

std::string as_this_command_says(const CLI::App& app, const std::string& word) {
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (!name.starts_with("--") || knows(app, name)) return word;
  std::string hyphened = name;  // --batch_size, as scripts in Python say
  std::replace(hyphened.begin(), hyphened.end(), '_', '-');
  const std::string rest = word.substr(name.size());
  if (knows(app, hyphened)) return hyphened + rest;
  for (const Synonym& s : synonyms)
    if (s.theirs == hyphened && knows(app, std::string(s.ours))) return std::string(s.ours) + rest;
  return word;
}

namespace {

// Another program's option, one that a command needs to know for the sentence, and what to say in its place.
struct Instead {
  std::string_view option, needs, say;
};
constexpr std::array options_instead{
    Instead{"--json", "--format", "--format json prints JSON, --out FILE.json writes it"},
    Instead{"--csv", "--format", "--format csv prints CSV, --out FILE.csv writes it"},
    Instead{"--markdown", "--format", "--format md prints Markdown, --out FILE.md writes it"},
    Instead{"--html", "--out", "--out FILE.html writes a page"},
    Instead{"--page", "--out", "--out FILE.html writes a page"},
    Instead{"-o", "--out", "--out FILE writes to a file"},
    Instead{"--nodes", "--per-host", "--gpus counts the GPUs of all hosts, --per-host those of one"},
    Instead{"--nnodes", "--per-host", "--gpus counts the GPUs of all hosts, --per-host those of one"},
    Instead{"--deepspeed", "--shard", "ZeRO-1 is --shard optimizer, ZeRO-2 gradients, ZeRO-3 everything"},
    Instead{"--fsdp", "--shard", "FSDP2 is --shard everything, with --gpus"},
    Instead{"--file", "--text", "--text FILE is what it learns"},
    Instead{"--data", "--text", "--text FILE is what it learns"},
    Instead{"--dataset", "--text", "--text FILE is what it learns"},
    Instead{"--epochs", "--lr", "--steps N is how long it trains"},
    Instead{"--num-epochs", "--lr", "--steps N is how long it trains"},
    Instead{"--num-train-epochs", "--lr", "--steps N is how long it trains"},
    Instead{"--resume-from-checkpoint", "--save-hf", "--resume continues from the newest checkpoint in --save DIR"},
    Instead{"--resume-from", "--save-hf", "--resume continues from the newest checkpoint in --save DIR"},
    Instead{"--checkpoint", "--save-hf", "--resume continues from the newest checkpoint in --save DIR"},
    Instead{"--ckpt", "--save-hf", "--resume continues from the newest checkpoint in --save DIR"},
    Instead{"--load", "--save-hf", "--resume continues from the newest checkpoint in --save DIR"},
    Instead{"--output-dir", "--save-hf", "--save DIR keeps checkpoints, --save-hf DIR the weights at the end"},
    Instead{"--out-dir", "--save-hf", "--save DIR keeps checkpoints, --save-hf DIR the weights at the end"},
    Instead{"--save-dir", "--save-hf", "--save DIR keeps checkpoints, --save-hf DIR the weights at the end"},
    Instead{"--lora", "--save-hf", "all weights are trained; headroom plan --as pytorch knows what LoRA takes"},
    Instead{"--optimizer", "--save-hf", "it trains with AdamW"},
    Instead{"--optim", "--save-hf", "it trains with AdamW"},
    Instead{"--adam", "--save-hf", "it trains with AdamW"},
    Instead{"--bf16", "--precision", "--precision bf16"},
    Instead{"--fp16", "--precision", "--precision fp16"},
    Instead{"--gradient-checkpointing", "--keep", "--keep input is a checkpoint of each block"},
    Instead{"--activation-checkpointing", "--keep", "--keep input is a checkpoint of each block"}};

// What plan finds out itself.
constexpr std::array chosen_by_plan{"--fsdp",
                                    "--deepspeed",
                                    "--qlora",
                                    "--zero",
                                    "--shard",
                                    "--lora",
                                    "--adam",
                                    "--optimizer",
                                    "--optimizer-in-backward",
                                    "--parameters",
                                    "--base",
                                    "--selective",
                                    "--loss",
                                    "--compile",
                                    "--accumulate",
                                    "--micro-batches",
                                    "--offload-activations"};

}  // namespace

std::string instead_of(const CLI::App& app, const std::string& option) {
  for (const Instead& one : options_instead)
    if (is_same_word(one.option, option) && knows(app, std::string(one.needs))) return std::string(one.say);
  const bool starts_programs = app.get_option_no_throw("command");  // it may be that program's option
  if (is_same_word("--seed", option) && !starts_programs) return "this command draws no random numbers";
  if (is_same_word("--qlora", option) && knows(app, "--base")) return "QLoRA is --lora RANK --base 4bit";
  if (app.get_name() == "headroom plan" && std::ranges::find(chosen_by_plan, option) != chosen_by_plan.end())
    return "plan tries what it can be and says which fits; headroom memory model takes one";
  return "";
}

std::string command_for(std::string_view word) {
  struct For {
    std::string_view word, say;
  };
  constexpr std::array others{
      For{"serve", "what a card can serve: headroom memory model --phase inference"},
      For{"serving", "what a card can serve: headroom memory model --phase inference"},
      For{"inference", "what a card can serve: headroom memory model --phase inference"},
      For{"estimate", "what a model needs: headroom plan --as pytorch; what a program needs: headroom forecast -- CMD"},
      For{"estimate-memory", "what a model needs: headroom plan --as pytorch; what a program needs: headroom forecast -- CMD"},
      For{"finetune", "what fits a card: headroom plan --as pytorch"},
      For{"fine-tune", "what fits a card: headroom plan --as pytorch"},
      For{"run", "a program is forecast by headroom forecast -- CMD, and measured by headroom profile -- CMD"},
      For{"list", "headroom results lists the runs"},
      For{"show", "headroom results RUN shows a run"}};
  for (const For& one : others)
    if (one.word == word) return std::string(one.say);
  return "";
}

std::string other_name_of(const CLI::App& app, const std::string& option, std::span<char* const> words) {
  const auto of = [&](const CLI::App* a, const std::string& name) {
    const CLI::Option* found = a->get_option_no_throw(option);
    return found && found->check_name(name);
  };
  const auto topics = app.get_subcommands({});
  for (const char* given : words) {
    const std::string word = given, name = word.substr(0, word.find('='));
    if (word == "--") break;  // what follows is another program's
    if (name == option || !name.starts_with("--")) continue;
    if (as_this_command_says(app, name) == option || of(&app, name)) return name;
    if (std::any_of(topics.begin(), topics.end(), [&](const CLI::App* topic) { return of(topic, name); })) return name;
  }
  return "";
}

}  // namespace headroom::cli
