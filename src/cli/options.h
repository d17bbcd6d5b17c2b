// The program's kinds of options: lists with commas, numbers with a range, sizes with units. Each shows its
// default in --help and refuses a bad value in one line before anything runs.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/command.h"

namespace headroom::cli {

CLI::Option* add_integer(CLI::App&, const std::string& name, std::int64_t& value, Between allowed, const std::string& about);
CLI::Option* add_integers(CLI::App&, const std::string& name, std::vector<std::int64_t>& values, Between allowed, const std::string& about);
CLI::Option* add_number(CLI::App&, const std::string& name, double& value, double low, double high, const std::string& about);
CLI::Option* add_words(CLI::App&, const std::string& name, std::vector<std::string>& values, const std::string& about);
// One word or several of those allowed; anything else is refused with the list and the nearest.
CLI::Option* add_choice(CLI::App&, const std::string& name, std::string& value, const std::vector<std::string>& allowed,
                        const std::string& about);
CLI::Option* add_choices(CLI::App&, const std::string& name, std::vector<std::string>& values, const std::vector<std::string>& allowed,
                         const std::string& about);
CLI::Option* add_fraction(CLI::App&, const std::string& name, double& value, const std::string& about);                     // 0.5%
CLI::Option* add_bytes(CLI::App&, const std::string& name, std::optional<std::uint64_t>& value, const std::string& about);  // GiB
CLI::Option* add_mask(CLI::App&, std::string& value, const std::string& about);  // --mask, as the attention op names them
CLI::Option* add_masks(CLI::App&, std::vector<std::string>& values, const std::string& about);
CLI::Option* add_file(CLI::App&, const std::string& name, std::string& value, const std::string& about);  // that is written
CLI::Option* add_flag(CLI::App&, const std::string& name, bool& value, const std::string& about);

// A command's topic, as in `headroom memory model`: options of the command may follow it.
CLI::App* add_topic(CLI::App& command, const std::string& name, const std::string& about);
// A command that consists of topics: each declares its options, one has to be named, and that one is run.
Run with_topics(CLI::App& command, Common&, std::span<const Command> topics);

void add_common(CLI::App&, Common&);
// Once everything is parsed: the format that the end of --out names, and that no output replaces what is read, another output or the
// store.
void check_outputs(const CLI::App&, Common&);

}  // namespace headroom::cli
