// launch — starts another program with settings in its environment, and waits for its end. Its standard input is ours.
// Signals belong to the program: it ends as it wants to, and what it recorded is still read. A terminal sends Ctrl-C to both of us;
// what is sent to this process alone is handed on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::studies {

struct Launch {
  const char* who = "";                 // the command that starts it; every error begins with this word
  const char* advice = "";              // what to give instead, if it cannot be started
  std::vector<std::string> command{};   // found on PATH as a shell would
  std::vector<std::string> settings{};  // NAME=value, in place of what the environment says
  // What the program writes on standard output and error, as it comes; empty: it writes where we would.
  std::function<void(std::string_view)> output{};
  // Asked every 50 ms while the program runs: how to go on. A program that was asked to end has ten seconds.
  enum class Next : std::uint8_t { go_on, end, kill };
  std::function<Next()> watch{};
  // Processes that are left when the program has ended are killed if their environment has this text; empty: none is.
  std::string mark_of_left_over{};
  // A signal that asked to stop meanwhile reaches this program's own handler too, when the program has ended: it stops the rest and names it.
  bool stops_us = true;
};

struct Ended {
  int exit_code = 0;   // the program's own; 128 + signal when one ended it
  std::string by;      // a signal's name, or empty
  bool asked = false;  // a signal asked this process to stop meanwhile
  double wall_s = 0;
  std::int64_t host_peak_bytes = 0;  // resident, of the largest process
  int left_over = 0;                 // processes that were killed
};

constexpr int most_launched = 16;  // programs that several threads may have running at once
Ended launch(const Launch&);

// A command as it is meant: train.py is run by python3, unless it names the way to a file that may be executed.
std::vector<std::string> as_meant(std::vector<std::string> command);

bool can_be_found(const std::string& program);  // in a folder of PATH, or at the path that it names

// Why the system would not start a command, which its `error` says, and what to write instead; `advice` where nothing better is known.
std::string why_not_started(const std::vector<std::string>& command, int error, const std::string& advice);
std::string why_no_notebook(const std::string& file);  // "train.ipynb" is no program

// The files of a folder with this ending, by name. Anything else there belongs to the program.
std::vector<std::filesystem::path> files_with(const std::filesystem::path& folder, const std::string& ending);

// A library or folder of this build: beside this program, or where it was installed; empty where it is in neither.
std::filesystem::path beside_program(const std::string& name);
std::string places_beside_program();  // the places that were tried: "neither 'x' nor 'y'"

}  // namespace headroom::studies
