#include "cli/options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "ops/attention/mask.h"
#include "store/results.h"

namespace headroom::cli {

namespace {

// An option whose text is read by `read`; an Error thrown there reaches main as it is.
template <class Read>
CLI::Option* add_read(CLI::App& app, const std::string& name, const std::string& shape, const std::string& now, const std::string& about,
                      Read read) {
  auto* option = app.add_option_function<std::string>(name, std::move(read), about)->type_name(shape);
  if (!now.empty()) option->default_str(now);
  return option;
}

void check_choice(const std::string& name, const std::string& word, const std::vector<std::string>& allowed) {
  check(std::find(allowed.begin(), allowed.end(), word) != allowed.end(), Code::bad_argument, "{}: there is no '{}'; choose from {}{}",
        name, word, joined(allowed), did_you_mean(word, allowed));
}

void check_mask(const std::string& word) {
  check(attention::mask_named(word).has_value(), Code::bad_argument,
        "--mask: there is no '{}'; choose from full, causal, window:W with W at least 1, causal:top-left, window:W:top-left{}", word,
        did_you_mean(word, {"full", "causal", "causal:top-left"}));
}

void check_out(const std::string& option, const std::string& file) {  // before anything is measured for it
  namespace fs = std::filesystem;
  std::error_code ignored;
  check(!fs::is_directory(file, ignored), Code::bad_argument, "{}: '{}' is a directory; name a file in it", option, file);
  const fs::path parent = fs::path(file).parent_path();
  check(parent.empty() || fs::is_directory(parent, ignored), Code::bad_argument, "{}: there is no directory '{}'; make it first", option,
        parent.string());
  if (fs::exists(file, ignored) && !is_regular_file(file)) {  // a pipe would hear of a trial
    check(access(file.c_str(), W_OK) == 0, Code::bad_argument, "{}: '{}' cannot be written to; choose another place", option, file);
    return;
  }
  try {
    const AtomicFile trial(file);
  } catch (const Error& e) { throw Error(Code::bad_argument, fmt::format("{}: {}; choose another place", option, e.what())); }
}

// Options whose value is a file that is written; every other's may be one that is read.
constexpr std::string_view outputs[] = {"--out", "--trace"};

struct Named {  // a value on the command line
  std::string option, value;
};

void add_named(const CLI::App& app, std::vector<Named>& written, std::vector<Named>& others) {
  for (const auto* o : app.get_options([](const CLI::Option* o) { return o->count() > 0; })) {
    const std::string name = o->get_name();
    if (name == "command") continue;  // of another program
    auto& into = std::find(std::begin(outputs), std::end(outputs), name) != std::end(outputs) ? written : others;
    for (const auto& value : o->results()) into.push_back({name, value});
  }
  for (const auto* topic : app.get_subcommands()) add_named(*topic, written, others);
}

void choose_format(Common& common) {
  if (common.out.empty() || common.format_given) return;
  const std::string end = std::filesystem::path(common.out).extension().string();
  std::error_code ignored;
  if (std::filesystem::exists(common.out, ignored) && !is_regular_file(common.out)) return;  // /dev/fd/63
  const auto format = format_of_file(common.out);
  check(format || end.empty(), Code::bad_argument,
        "--out: the ending of '{}' is not a known format; use .txt, .md, .csv, .json or .html, or give --format", end);
  common.format = format.value_or(Format::text);
}

std::string text_of(const std::vector<std::int64_t>& values) {
  std::vector<std::string> words;
  for (auto v : values) words.push_back(std::to_string(v));
  return joined(words, ",");
}

}  // namespace

CLI::Option* add_integer(CLI::App& app, const std::string& name, std::int64_t& value, Between allowed, const std::string& about) {
  return add_read(app, name, "N", std::to_string(value), about,
                  [&value, name, allowed](const std::string& s) { value = parse_integer(s, name, allowed); });
}

CLI::Option* add_integers(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values, Between allowed,
                          const std::string& about) {
  return add_read(app, name, "N,N,...", text_of(values), about, [&values, name, allowed](const std::string& s) {
    values.clear();
    for (const auto& item : parse_list(s, name)) values.push_back(parse_integer(item, name, allowed));
  });
}

CLI::Option* add_number(CLI::App& app, const std::string& name, double& value, double low, double high, const std::string& about) {
  return add_read(app, name, "X", fmt::format("{}", value), about,
                  [&value, name, low, high](const std::string& s) { value = parse_number(s, name, low, high); });
}

CLI::Option* add_words(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::string& about) {
  return add_read(app, name, "A,B,...", joined(values, ","), about,
                  [&values, name](const std::string& s) { values = parse_list(s, name); });
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& value, const std::vector<std::string>& allowed,
                        const std::string& about) {
  return add_read(app, name, joined(allowed, "|"), value, about, [&value, name, allowed](const std::string& s) {
    check_choice(name, s, allowed);
    value = s;
  });
}

CLI::Option* add_choices(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::vector<std::string>& allowed,
                         const std::string& about) {
  return add_read(app, name, joined(allowed, ","), joined(values, ","), about, [&values, name, allowed](const std::string& s) {
    auto words = parse_list(s, name);
    for (const auto& w : words) check_choice(name, w, allowed);
    values = std::move(words);
  });
}

CLI::Option* add_fraction(CLI::App& app, const std::string& name, double& value, const std::string& about) {
  return add_read(app, name, "P%", "", about, [&value, name](const std::string& s) { value = parse_fraction(s, name); });
}

CLI::Option* add_bytes(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value, const std::string& about) {
  return add_read(app, name, "GiB", "", about, [&value, name](const std::string& s) { value = parse_bytes(s, name); });
}

CLI::Option* add_mask(CLI::App& app, std::string& value, const std::string& about) {
  return add_read(app, "--mask", "MASK", value, about, [&value](const std::string& s) { check_mask(s), value = s; });
}

CLI::Option* add_masks(CLI::App& app, std::vector<std::string>& values, const std::string& about) {
  return add_read(app, "--mask", "MASK,...", joined(values, ","), about, [&values](const std::string& s) {
    auto words = parse_list(s, "--mask");
    for (const auto& w : words) check_mask(w);
    values = std::move(words);
  });
}

CLI::Option* add_file(CLI::App& app, const std::string& name, std::string& value, const std::string& about) {
  return add_read(app, name, "FILE", "", about, [&value, name](const std::string& s) { check_out(name, s), value = s; });
}

CLI::Option* add_flag(CLI::App& app, const std::string& name, bool& value, const std::string& about) {
  return app.add_flag(name, value, about);
}

CLI::App* add_topic(CLI::App& command, const std::string& name, const std::string& about) {
  return command.add_subcommand(name, about)->fallthrough();
}

Run with_topics(CLI::App& command, Common& common, std::span<const Command> topics) {
  command.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Run>> declared;
  for (const Command& t : topics) {
    CLI::App* topic = add_topic(command, t.name, t.about);
    declared.emplace_back(topic, t.declare(*topic, common));
  }
  return [declared] {
    for (const auto& [topic, run] : declared)
      if (topic->parsed()) return run();
    return int(usage);
  };
}

void add_common(CLI::App& app, Common& common) {
  const auto formats = format_names();
  add_read(app, "--format", joined(formats, "|"), "", "Output format [by the ending of --out, else text]",
           [&common, formats](const std::string& s) {
             check_choice("--format", s, formats);
             common.format = *format_named(s), common.format_given = true;
           });
  add_read(app, "--out", "FILE", "", "Write to this file instead of the terminal", [&common](const std::string& s) {
    check_out("--out", s);
    common.out = s;
  });
  add_read(app, "--device", common.only_counts ? "cpu|cuda|cuda:N|NAME|FILE" : "cpu|cuda|cuda:N", "",
           common.only_counts ? "The machine, present or not: a name from headroom device --known, or a JSON file"
                              : "Where to run [the best present: a GPU, else the CPU]",
           [&common](const std::string& s) { common.device = s; });
  add_read(app, "--db", "FILE", "", "Where results are kept [~/.local/share/headroom/results.db]", [&common](const std::string& s) {
    check(s != ":memory:", Code::bad_argument, "--db: '{}' is not a file; name a file for the results", s);
    common.db = s;
  });
  add_read(app, "--seed", "N", "0", "Seed of all random inputs",
           [&common](const std::string& s) { common.seed = std::uint64_t(parse_integer(s, "--seed")); });
  for (CLI::App* topic : app.get_subcommands({}))  // their own help does not show what they take from here
    topic->footer(topic->get_footer() + (topic->get_footer().empty() ? "" : "\n\n") +
                  fmt::format("Also --format, --out, --device, --db and --seed: see {} --help.", app.get_name()));
}

void check_outputs(const CLI::App& app, Common& common) {
  std::vector<Named> written, others;
  add_named(app, written, others);
  std::string store = common.db;
  try {
    if (store.empty()) store = default_results_file();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): whoever needs it says so
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [option, file] = written[i];
    for (const std::string& held : {store, store + "-journal"})
      check(store.empty() || !is_same_file(file, held), Code::bad_argument, "{}: '{}' is where results are kept; name another file", option,
            file);
    for (std::size_t j = 0; j < i; ++j)
      check(!is_same_file(file, written[j].value), Code::bad_argument, "{} and {}: both name '{}'; one would replace the other",
            written[j].option, option, file);
    for (const auto& [other, value] : others)
      check(!is_regular_file(value) || !is_same_file(file, value), Code::bad_argument, "{}: '{}' is what {} reads; name another file",
            option, file, other);
  }
  choose_format(common);
}

}  // namespace headroom::cli
