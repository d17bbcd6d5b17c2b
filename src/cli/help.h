// How --help is laid out: names on the left, sentences folded on the right, no line wider than the terminal or 100 columns.
#pragma once
#include <CLI/CLI.hpp>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace headroom::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_group(std::string title, bool is_positional, std::vector<const CLI::Option*>) const override;
  std::string make_option(const CLI::Option*, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option*) const override;
  std::string make_option_desc(const CLI::Option*) const override;
  std::string make_subcommand(const CLI::App*) const override;
  std::string make_description(const CLI::App*) const override;
  std::string make_footer(const CLI::App*) const override;
};

// A sentence of a help page that begins at this column, as is each of its lines.
std::string folded_from(int column, const std::string& sentence);

struct HelpGroup {
  const char* title;
  std::vector<std::string> options;
};
// Puts options under titles; options in no group stay under "Options". Names that the command lacks are ignored.
void group(CLI::App&, std::initializer_list<HelpGroup>);

// Translates other programs' option names: --seq-len and --seq_len mean --len. Only if the command has no such option itself.
std::string as_this_command_says(const CLI::App&, const std::string& word);

// What to say in place of an option that the command lacks, if that is known; else empty.
std::string instead_of(const CLI::App&, const std::string& option);
// For a word that is no command, the command that answers what it asks; empty: none is known.
std::string command_for(std::string_view word);

// Another name, its own or another program's, by which an option was given among these words; empty where none was.
std::string other_name_of(const CLI::App&, const std::string& option, std::span<char* const> words);

}  // namespace headroom::cli
