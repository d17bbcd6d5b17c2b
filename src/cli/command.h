// What all commands share: their row in main.cpp's table, the common options, the exit codes.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/device.h"
#include "base/interrupt.h"
#include "report/render.h"

namespace headroom::cli {

// What a command does with a machine, and so what its --device may name.
enum class Machine : std::uint8_t {
  present,    // the command runs on the machine; it alone has --seed
  described,  // the command counts for the machine, which need not be here
  a_gpu,      // as described, and never for the CPU
  none        // the command has no --device
};

enum Exit : int { yes = 0, failed = 1, usage = 2, no = 3 };

struct Common {  // options that commands share
  Format format = Format::text;
  bool format_given = false;  // false: the ending of `out` decides
  std::string out;            // the file to write; empty: standard output
  std::string device;         // cpu, cuda, cuda:N; empty: the best present
  std::string db;             // empty: the user's own store
  std::uint64_t seed = 0;
  bool silent = false;  // another rank prints, and keeps rows
  Machine machine = Machine::present;
  bool of_kept_runs = false;  // the command measures nothing: its answer can be made again
};

// A command declares its options on `app` and answers with what to do once they are parsed. `common` outlives the call.
// A command with topics (`memory model`) is a table of such rows: with_topics (options.h).
using RunCommand = std::function<int()>;
struct Command {
  const char* name;
  const char* about;
  RunCommand (*declare)(CLI::App& app, Common& common);
};

RunCommand attention(CLI::App&, Common&);
RunCommand bench(CLI::App&, Common&);
RunCommand comm(CLI::App&, Common&);
RunCommand device(CLI::App&, Common&);
RunCommand forecast(CLI::App&, Common&);
RunCommand kernels(CLI::App&, Common&);
RunCommand memory(CLI::App&, Common&);
RunCommand memory_attention_topic(CLI::App&, Common&);  // app is the topic
RunCommand precision(CLI::App&, Common&);
RunCommand memory_model_topic(CLI::App&, Common&);
RunCommand plan(CLI::App&, Common&);
RunCommand profile(CLI::App&, Common&);
RunCommand step(CLI::App&, Common&);
RunCommand train(CLI::App&, Common&);
RunCommand results(CLI::App&, Common&);
RunCommand compare(CLI::App&, Common&);
RunCommand report(CLI::App&, Common&);
RunCommand completion(CLI::App&, Common&);

// Prints the record in the format asked for, to --out or standard output, and answers with `code`.
int deliver(const Record&, const Common&, int code = yes);
int deliver_stopped(const Record&, const Common&);  // a signal stopped the run: its answer is neither green nor red; returns "failed"
void remember_command(std::span<char*> words);      // keeps the command as typed; pages, tables in files and JSON show it
void print(std::string_view text);                  // prints to standard output; an Error (io) when not all of it was written
int columns_of_output();                            // of the terminal, else what COLUMNS says; 0: neither is known
void say(const std::string& sentence);              // prints a line to standard error, without control characters

// The machine that --device names, or one line why it cannot be had. Without --device: the first CUDA device, else the CPU.
Device chosen_device(const Common&);
// For commands that run on the CPU alone: the CPU, or an Error if another device was asked for. `who`: "train".
Device chosen_cpu(const Common&, const char* who);

}  // namespace headroom::cli
