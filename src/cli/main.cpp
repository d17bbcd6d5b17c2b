// headroom <command> [options]: finds the command's row, parses, runs, and turns every failure into one line and an exit code.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <span>

#include "base/address_space.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/program.h"
#include "dist/quiet.h"

namespace headroom::cli {
namespace {

constexpr Command commands[] = {
    {"forecast", "Does your PyTorch program fit? It runs unchanged, without a GPU; bytes by line", forecast},
    {"bench", "Every table of the docs again on this machine, peers in turns: one JSON a card", bench},
    {"attention", "Sweep attention variants: time, bytes, error, and the largest length that fits", attention},
    {"memory", "Account for every byte of attention or of a model's step; growth, largest size, savings", memory},
    {"plan", "Find the settings that fit a memory, and what each costs", plan},
    {"step", "Time forward, backward and optimiser of a language model", step},
    {"profile", "Where the time of a step, attention or any CUDA program goes: kernels, phases, modules", profile},
    {"train", "Train a language model on text; save, resume, sample", train},
    {"comm", "Time the collectives between ranks: exchange, gather, all-reduce, broadcast", comm},
    {"precision", "Effects of small formats: sums that stall, dtypes of ops, norms, the formats themselves", precision},
    {"device", "What this machine is, and its measured ceilings", device},
    {"kernels", "Every kernel, and why it can or cannot serve a problem", kernels},
    {"results", "Browse what was measured", results},
    {"compare", "Compare two runs, with a verdict per row", compare},
    {"report", "Charts and tables of what was measured, on one page", report},
    {"completion", "Print the completion for bash, zsh or fish, or the manual page", completion},
};

std::string called = "headroom";  // in the Python wheel "gpu-headroom"

enum class Name { before_a_command, anywhere };
// A text with the program's own name as it was called.
std::string as_called(const std::string& text, Name where = Name::before_a_command) {
  if (called == "headroom") return text;
  std::string words = "<command>";
  for (const Command& c : commands) words += fmt::format("|{}\\b", c.name);
  const std::string after = where == Name::anywhere ? "(?![A-Za-z0-9_./-])" : fmt::format("(?= (?:{}))", words);
  return std::regex_replace(text, std::regex("(^|[^A-Za-z0-9_./-])headroom" + after), "$1" + called);
}

std::string overview() {
  std::string text =
      folded_from(0, "headroom — how many bytes and milliseconds a transformer takes, where they go, and what removes them") +
      "\n\nUsage: headroom <command> [options]\n\nCommands:\n";
  for (const Command& c : commands) text += fmt::format("  {:<11}{}\n", c.name, folded_from(13, c.about));
  text += "\n" + folded_from(0, "'headroom help <command>' or 'headroom <command> --help' lists a command's options and examples.") +
          "\nExit codes: 0 yes, 1 failed, 2 wrong usage, 3 the answer is no.\n";
  return as_called(text);
}

// Every command with its options, as it declares them.
std::vector<CommandWords> all_words() {
  std::vector<CommandWords> all;
  for (const Command& c : commands) {
    CLI::App app(c.about, fmt::format("headroom {}", c.name));
    Common common;
    (void)c.declare(app, common);
    add_common(app, common);
    all.push_back(words_of(app, c));
  }
  return all;
}

template <class Text>
RunCommand written(const Common& common, Text text) {
  return [&common, text] {
    check(common.out.empty(), Code::bad_argument, "--out: this is no table; write it with > FILE");
    print(as_called(text(), Name::anywhere));
    return int(yes);
  };
}
constexpr Command shells[] = {
    {"bash", "For bash: source <(headroom completion bash)",
     [](CLI::App&, Common& c) { return written(c, [] { return bash_completion(all_words()); }); }},
    {"zsh", "For zsh: source <(headroom completion zsh)",
     [](CLI::App&, Common& c) { return written(c, [] { return zsh_completion(all_words()); }); }},
    {"fish", "For fish: headroom completion fish | source",
     [](CLI::App&, Common& c) { return written(c, [] { return fish_completion(all_words()); }); }},
    {"man", "The manual page: man -l <(headroom completion man)",
     [](CLI::App&, Common& c) { return written(c, [] { return manual(all_words(), overview()); }); }},
};

// A value of thousands of characters, as a file given in the place of its name, does not hide what is said of it.
int complain(const std::string& who, const std::string& what, int code) {
  constexpr int columns = 1000;
  say(fmt::format("{}: {}", who, shortened(as_called(what), columns)));
  return code;
}

// An empty word is what an unset shell variable leaves ('--save "$RUN"'): no option takes one. After -- words are another program's.
void check_no_empty_word(std::span<char*> arguments) {
  std::string before;
  for (const std::string word : arguments) {
    if (word == "--") return;
    const bool cut = word.starts_with("--") && word.find('=') == word.size() - 1;
    check(!word.empty() && !cut, Code::bad_argument, "{} is empty (an unset variable?); give a value or leave it out",
          cut                       ? word.substr(0, word.size() - 1)
          : before.starts_with("-") ? before
                                    : "an argument");
    before = word;
  }
}

bool takes_bytes(const CLI::App& app, const std::string& option) {
  if (const auto* o = app.get_option_no_throw(option); o && is_unit_of_bytes(o->get_type_name().substr(0, o->get_type_name().find(','))))
    return true;
  const auto topics = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(topics.begin(), topics.end(), [&](const CLI::App* topic) { return takes_bytes(*topic, option); });
}

// A shell hands over `--memory 24 GiB` as three words, of which the last two are one value.
bool is_unit_of_what_is_before(const CLI::App& app, const std::string& word, const std::vector<std::string>& before) {
  if (!is_unit_of_bytes(word) || before.empty()) return false;
  const std::string& number = before.back();
  const auto equals = number.find('=');  // --memory=24 GiB
  const bool in_one = number.starts_with("--") && equals != std::string::npos;
  if (!in_one && before.size() < 2) return false;
  const auto [x, unit] = number_and_unit(in_one ? std::string_view(number).substr(equals + 1) : number);
  return x > 0 && unit.empty() && takes_bytes(app, in_one ? number.substr(0, equals) : before[before.size() - 2]);
}

std::vector<std::string> words_in_our_terms(const CLI::App& app, std::span<char*> arguments) {
  std::vector<std::string> words;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (std::string_view(*at) == "--") {  // behind it are another program's
      words.insert(words.end(), at, arguments.end());
      break;
    }
    const std::string word = as_this_command_says(app, *at);
    if (is_unit_of_what_is_before(app, word, words))
      words.back() += word;
    else
      words.push_back(word);
  }
  return words;
}

// Names of the options that `app`, or its topics, understand.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* o : app.get_options({})) names.push_back(o->get_name());
  for (const auto* topic : app.get_subcommands({}))
    for (const auto& n : option_names(*topic)) names.push_back(n);
  return names;
}

std::vector<std::string> topic_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* topic : app.get_subcommands({})) names.push_back(topic->get_name());
  return names;
}

std::string unknown_topic(const std::string& word, const std::vector<std::string>& topics) {
  return fmt::format("there is no '{}'; choose from {}{}", word, joined(topics), did_you_mean(word, topics));
}

// CLI11 names what is left over in a sentence; what matters is the word.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words) {
  const auto left_over = std::find_if(words.begin(), words.end(), [](const std::string& word) { return word != "--"; });
  const std::string word = left_over == words.end() ? "?" : left_over->substr(0, left_over->find('='));
  std::vector<std::string> owners;
  for (const auto* topic : app.get_subcommands({}))
    if (word.starts_with("-") && topic->get_option_no_throw(word)) owners.push_back(topic->get_name());
  if (!owners.empty()) return fmt::format("{} is an option of {}; write it after that word", word, joined(owners, " and of "));
  if (const std::string say = instead_of(app, word); !say.empty()) return fmt::format("there is no option {}: {}", word, say);
  if (word.starts_with("-")) {
    const bool starts_programs = app.get_option_no_throw("command");
    return fmt::format("there is no option {}{}{}", word, did_you_mean(word, option_names(app)),
                       starts_programs ? "; a program and its own options come after --" : "");
  }
  const std::vector<std::string> topics = topic_names(app);
  const CLI::App& chosen = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  if (topics.empty() || &chosen != &app)
    return fmt::format("'{}' is not the value of any option{}", word,
                       chosen.get_option_no_throw("--save")    ? "; a model is named by --model, a run's folder by --save"
                       : chosen.get_option_no_throw("--model") ? "; a model is named by --model"
                                                               : "");
  return unknown_topic(word, topics);
}

// CLI11 says "A is required"; what A is, its description says.
std::string what_is_missing(const CLI::App& app, const CLI::RequiredError& e) {
  if (const auto topics = topic_names(app); !topics.empty()) return fmt::format("say which: {}", joined(topics));
  const std::string said = e.what(), name = said.substr(0, said.find(' '));
  const CLI::Option* missing = app.get_option_no_throw(name);
  return missing ? fmt::format("{} is missing. {}", name, missing->get_description()) : said;
}

bool was_given(std::span<char*> words, const std::string& option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return word.substr(0, word.find('=')) == option; });
}

// A sentence that begins with an option names it as it was typed: --gpus where that is --ranks, --max-seq-length where that is --len.
std::string as_it_was_typed(const CLI::App& app, const std::string& said, std::span<char*> given) {
  const std::string option = said.substr(0, said.find_first_of(": "));
  if (!option.starts_with("--") || was_given(given, option)) return said;
  const std::string other = other_name_of(app, option, given);
  return other.empty() ? said : other + said.substr(option.size());
}

// CLI11's own sentences, said as this program says things.
std::string mismatch_in_words(const CLI::App& app, const std::string& said,
                              std::span<char*> given) {  // "--len: 1 required N,N,... missing", "--len: At Most 1 required but received 2"
  const std::string option = said.substr(0, said.find(':'));
  if (said.find("received") == std::string::npos)
    return fmt::format("{} needs a value{}", option,
                       option == "--page" ? ": tokens in a page of the cache. A page to read is written by --out FILE.html" : "");
  if (const std::string other = other_name_of(app, option, given); !other.empty() && was_given(given, option))
    return fmt::format("{} is {} here, which is given too; leave one of them out", other, option);
  return as_it_was_typed(app, fmt::format("{} is given more than once; a list in it takes commas", option), given);
}

std::string conversion_in_words(const CLI::App& app,
                                const std::string& said) {  // "Could not convert: --resume = maybe"; only flags are converted by CLI11
  const auto from = said.find("--"), to = said.find(" = ");
  if (from == std::string::npos || to == std::string::npos) return said;
  const std::string option = said.substr(from, to - from);
  const bool of_a_folder = option == "--resume" && app.get_option_no_throw("--save");
  return fmt::format("{} takes no value{}", option, of_a_folder ? "; the folder is --save's" : "");
}

// What a library calls itself before its sentence, the command has said already.
std::string without_name(const std::string& said, const std::string& name) {
  return said.starts_with(name + ": ") ? said.substr(name.size() + 2) : said;
}

bool asks_for_help(std::span<char*> arguments) {
  const auto own_end = std::find(arguments.begin(), arguments.end(), std::string_view("--"));  // behind it are another program's words
  return std::any_of(arguments.begin(), own_end, [](std::string_view word) { return word == "--help" || word == "-h"; });
}

// Help is given wherever it is asked for, beside wrong values too. The topic is the first word that names one.
int help_with(const CLI::App& app, const std::string& who, std::span<char*> arguments) {
  const auto topics = topic_names(app);
  for (const std::string word : arguments)
    if (std::find(topics.begin(), topics.end(), word) != topics.end()) {
      print(as_called(app.get_subcommand(word)->help(who)));
      return yes;
    }
  const std::string first = arguments.front();
  if (!topics.empty() && !first.starts_with("-") && !app.get_option_no_throw("command"))
    return complain(who, unknown_topic(first, topics), usage);
  print(as_called(app.help()));
  return yes;
}

int run(const Command& command, std::span<char*> arguments) {
  const std::string who = fmt::format("{} {}", called, command.name);
  const std::string hint = fmt::format(" (see {} --help)", who);
  CLI::App app(command.about, who);
  app.formatter(std::make_shared<HelpFormatter>());  // before topics, which take it over
  app.option_defaults()->always_capture_default(false);
  app.get_formatter()->label("REQUIRED", "");
  Common common;
  try {
    const RunCommand body = command.declare(app, common);
    add_common(app, common);
    if (asks_for_help(arguments)) return help_with(app, who, arguments);
    check_no_empty_word(arguments);
    std::vector<std::string> words = words_in_our_terms(app, arguments);
    std::reverse(words.begin(), words.end());  // CLI11 takes them last first
    try {
      app.parse(words);
    } catch (const CLI::ExtrasError&) {
      return complain(who, unknown_word(app, app.remaining(true)) + hint, usage);
    } catch (const CLI::ArgumentMismatch& e) {
      return complain(who, mismatch_in_words(app, e.what(), arguments) + hint, usage);
    } catch (const CLI::ConversionError& e) {
      return complain(who, conversion_in_words(app, e.what()) + hint, usage);
    } catch (const CLI::RequiredError& e) {  // a command with topics: a mistyped topic looks like none
      const auto words_left = app.remaining(true);
      return complain(who, (words_left.empty() ? what_is_missing(app, e) : unknown_word(app, words_left)) + hint, usage);
    } catch (const CLI::ParseError& e) { return complain(who, e.what() + hint, usage); }
    check_outputs(app, common);
    return body();
  } catch (const dist::Quiet& e) { return e.at.code == Code::bad_argument ? usage : failed; } catch (const Error& e) {
    return complain(who, as_it_was_typed(app, without_name(e.what(), command.name), arguments),
                    e.at.code == Code::bad_argument ? usage : failed);
  } catch (const std::bad_alloc&) {
    return complain(who, "the system has no memory left for this program", failed);
  } catch (const std::exception& e) { return complain(who, e.what(), failed); }
}

int find_and_run(std::span<char*> arguments) {
  if (arguments.empty()) {
    std::fputs(overview().c_str(), stderr);
    return usage;
  }
  const std::string_view word = arguments.front();
  const bool help = word == "--help" || word == "-h" || word == "help";
  if (help && arguments.size() > 1 && *arguments[1] != '-' && std::string_view(arguments[1]) != "help") {  // headroom help memory model
    std::string asked = "--help";
    std::vector<char*> words(arguments.begin() + 1, arguments.end());
    words.push_back(asked.data());
    return find_and_run(words);
  }
  if (help) {
    print(overview());
    return yes;
  }
  if (word == "--version") {
    print("headroom " HEADROOM_VERSION "\n");
    return yes;
  }
  std::vector<std::string> names;
  for (const Command& c : commands) {
    if (word == c.name) return run(c, arguments.subspan(1));
    names.emplace_back(c.name);
  }
  if (word.starts_with("-"))
    return complain(
        called,
        fmt::format("{} comes before a command; options come after it, as in headroom plan --device h100. Alone there are --help "
                    "and --version{}",
                    word, did_you_mean(word, {"--help", "--version"})),
        usage);
  if (const std::string say = command_for(word); !say.empty())
    return complain(called, fmt::format("there is no command '{}': {}", word, say), usage);
  std::vector<std::string> meant = names;
  meant.insert(meant.end(), {"--help", "--version"});
  return complain(called, fmt::format("there is no command '{}'; choose from {}{}", word, joined(names), did_you_mean(word, meant)), usage);
}

}  // namespace

RunCommand completion(CLI::App& app, Common& common) {
  common.machine = Machine::none;
  app.footer("make install puts all four where shells and man look for them.");
  return with_topics(app, common, shells);
}

}  // namespace headroom::cli

static int run_program(int argc, char** argv) {
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == "gpu-headroom") headroom::cli::called = "gpu-headroom";
  headroom::cli::remember_command(std::span(argv, std::size_t(argc)));
  headroom::hold_standard_descriptors();
  headroom::listen_for_signals();
  try {
    return headroom::cli::find_and_run(std::span(argv, std::size_t(argc)).subspan(argc > 0 ? 1 : 0));
  } catch (const headroom::dist::Quiet&) { return headroom::cli::failed; } catch (const std::exception& e) {
    return headroom::cli::complain(headroom::cli::called, e.what(), headroom::cli::failed);
  }
}

int headroom_program(int argc, char** argv) {
  const int code = run_program(argc, argv);
  if (headroom::has_room_for_addresses(headroom::openblas_bytes_of_a_thread)) return code;
  // OpenBLAS starts a thread as it is loaded. Without room that thread asks for its buffer without end, and an ordinary end would wait for it.
  std::fflush(nullptr);
  _exit(code);
}
