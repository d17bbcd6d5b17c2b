// What shells and man know of the program: read off the options that its commands declare, so that nothing is said twice.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace headroom::cli {

struct OptionWords {
  std::vector<std::string> names;                      // "--keep", "--recompute"; none: a word that belongs to no option
  std::string about, shape, usual;                     // shape: as --help writes the value; empty: takes none. usual: without the option
  std::vector<std::string> words;                      // allowed values; empty: any
  bool list = false;                                   // the value is a list of such words, with commas
  bool file = false, folder = false, or_file = false;  // or_file: one of the words, or a file
};
struct CommandWords {
  std::string name, about, footer;
  std::vector<OptionWords> options;
  std::vector<CommandWords> topics;
};

// The words of a command that has declared its options.
CommandWords words_of(const CLI::App&, const Command&);

std::string bash_completion(std::span<const CommandWords>);
std::string zsh_completion(std::span<const CommandWords>);
std::string fish_completion(std::span<const CommandWords>);
std::string manual(std::span<const CommandWords>, std::string_view overview);  // a page for man, section 1

}  // namespace headroom::cli
