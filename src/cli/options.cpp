#include "cli/options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
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
  } catch (const Error& e) {
    const bool advised = e.at.code == Code::bad_argument;  // it says already what to name instead
    throw Error(Code::bad_argument, fmt::format("{}: {}{}", option, e.what(), advised ? "" : "; choose another place"));
  }
}

// Options whose value is a file that is written; every other's may be one that is read.
constexpr std::string_view outputs[] = {"--out", "--trace"};

struct Named {  // a value on the command line
  std::string option, value;
};

void add_named(const CLI::App& app, std::vector<Named>& written, std::vector<Named>& others) {
  for (const auto* o : app.get_options([](const CLI::Option* o) { return o->count() > 0; })) {
    const std::string name = o->get_name();
    if (name == "command") continue;  // another program's own words
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
        "--out: '{}' is the ending of no known format; use .txt, .md, .csv, .json or .html, or give --format", end);
  common.format = format.value_or(Format::text);
}

void add_device(CLI::App& app, Common& common) {
  const bool gpu = common.machine == Machine::a_gpu, described = gpu || common.machine == Machine::described;
  std::string machines = gpu ? "cuda|cuda:N" : "cpu|cuda|cuda:N";
  if (described) {
    for (const Device& d : known_devices()) machines += "|" + d.key;
    machines += "|FILE";
  }
  add_read(app, "--device", machines, "",
           gpu         ? "The GPU, present or not: a name from headroom device --known, or a JSON file [the one here, else an H200]"
           : described ? "The machine, present or not: a name from headroom device --known, or a JSON file"
                       : "Where to run [the best present: a GPU, else the CPU]",
           [&common](const std::string& s) { common.device = s; });
}

}  // namespace

CLI::Option* add_file(CLI::App& app, const std::string& name, std::string& value, const std::string& about) {
  return add_read(app, name, "FILE", "", about, [&value, name](const std::string& s) {
    check_out(name, s);
    value = s;
  });
}

CLI::Option* add_flag(CLI::App& app, const std::string& name, bool& value, const std::string& about) {
  return app.add_flag(name, value, about);
}

CLI::App* add_topic(CLI::App& command, const std::string& name, const std::string& about) {
  return command.add_subcommand(name, about)->fallthrough();
}

RunCommand with_topics(CLI::App& command, Common& common, std::span<const Command> topics) {
  command.require_subcommand(1);
  std::vector<std::pair<CLI::App*, RunCommand>> declared;
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
             common.format = *format_named(s);
             common.format_given = true;
           });
  add_read(app, "--out", "FILE", "", "Write to this file instead of the terminal", [&common](const std::string& s) {
    check_out("--out", s);
    common.out = s;
  });
  if (common.machine != Machine::none) add_device(app, common);
  add_read(app, "--db", "FILE", "", "Where results are kept [~/.local/share/headroom/results.db]", [&common](const std::string& s) {
    check(s != ":memory:", Code::bad_argument, "--db: '{}' is not a file; name a file for the results", s);
    common.db = s;
  });
  const bool draws = common.machine == Machine::present;  // what only counts has no random inputs
  if (draws)
    add_read(app, "--seed", "N", "0", "Seed of all random inputs",
             [&common](const std::string& s) { common.seed = std::uint64_t(parse_integer(s, "--seed")); });
  const char* const shared = draws                             ? "--format, --out, --device, --db and --seed"
                             : common.machine == Machine::none ? "--format, --out and --db"
                                                               : "--format, --out, --device and --db";
  for (CLI::App* topic : app.get_subcommands({}))  // their own help does not show what they take from here
    topic->footer(topic->get_footer() + (topic->get_footer().empty() ? "" : "\n\n") +
                  fmt::format("Also {}: see {} --help.", shared, app.get_name()));
}

std::int64_t run_number(const std::string& word) {
  const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  std::error_code failed;
  const bool there = !number && std::filesystem::exists(word, failed);
  check(number, Code::bad_argument, "{}; headroom results lists the runs",
        there ? why_no_file(word) : fmt::format("'{}' is neither a file nor a run's number", word));
  return parse_integer(word, "RUN");
}

StoredRun run_kept(const Results* store, std::int64_t id) {
  auto run = store ? store->run(id) : std::nullopt;
  check(run.has_value(), Code::bad_argument, "there is no run {} in {}; headroom results lists the runs", id,
        store ? store->file() : "the store, which is still empty");
  return std::move(*run);
}

void check_lengths_said_once(const CLI::App& app, bool documents, bool cached) {
  check(!documents || app.count("--len") == 0, Code::bad_argument, "--documents: a row is as long as they are together; leave --len out");
  check(!cached || app.count("--batch") == 0, Code::bad_argument, "--cached: there are as many sequences as lengths; leave --batch out");
}

void check_outputs(const CLI::App& app, Common& common) {
  std::vector<Named> written, others;
  add_named(app, written, others);
  std::string store = common.db;
  try {
    if (store.empty()) store = default_results_file();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a command that needs the file says so
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
