// Options that are not fields of described settings (described_options.h): files, flags, topics, and what every command shares.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "store/results.h"

namespace headroom::cli {

CLI::Option* add_file(CLI::App&, const std::string& name, std::string& value, const std::string& about);  // for a file that is written
CLI::Option* add_flag(CLI::App&, const std::string& name, bool& value, const std::string& about);

// A command's topic, as in `headroom memory model`: options of the command may follow it.
CLI::App* add_topic(CLI::App& command, const std::string& name, const std::string& about);
// A command that consists of topics: each declares its options, one has to be named, and that one is run.
RunCommand with_topics(CLI::App& command, Common&, std::span<const Command> topics);

void add_common(CLI::App&, Common&);
// The number of a run that is kept, of a word that is not a file's name; else one line that says what the word is.
std::int64_t run_number(const std::string& word);
// The run of this number; no store: it is still empty.
StoredRun run_kept(const Results* store, std::int64_t id);
// Once everything is parsed: the format that the end of --out names, and that no output replaces what is read, another output or the
// store.
void check_outputs(const CLI::App&, Common&);

// Options that say what others would say once more: the lengths of packed documents, and of sequences that have keys already.
void check_lengths_said_once(const CLI::App&, bool documents, bool cached = false);

}  // namespace headroom::cli
