// The account of one card, as one process of a dry run used it: read from the record, block by block. The sums are those of PyTorch's own
// allocator; only the words for what a block is are ours, by the phase in which it was allocated and the phase in which it was given back.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "dry/clock.h"
#include "dry/read.h"
#include "dry/replay.h"
#include "studies/forecast/rows.h"

namespace headroom::studies {

// What a dry run guesses where sizes follow from it, as the observer numbers it: which experts tokens go to, which elements of a mask are true, what the
// card draws at random, which products torch.compile pads, how many values differ, whether numbers that a branch
// compares fall or rise, where within its bounds a number is, how long LBFGS searches, on which side of a threshold a number is, whether such numbers
// jump, and which of several has the least or the most of them.
enum class Guessed { experts, masks, draws, paddings, differences, falls, bounds, searches, levels, jumps, orders };
constexpr int guesses = 11;

struct GuessedWords {
  const char *others, *does, *decides;
  std::array<const char*, 4>
      runs;  // with the usual guess, with as little and as much as there may be, and with nearly as much; null: no run of its own
};
const GuessedWords& words_of(Guessed);

struct Routing {
  std::string line;  // the line that reads a size that follows from the guess
  Guessed guessed = Guessed::experts;
};

// "with tokens to any experts and half of each such mask true": what one of these runs is; empty: none of the guesses has it.
std::string words_of_run(const std::vector<Routing>&, std::size_t run);

// Another run that the observer asks for, by what it read in the program's source and saw as it ran.
struct RunAsked {
  std::string value;     // of the variable that makes it another one
  std::string how;       // "with 100 and more for each such number"
  bool instead = false;  // it is made only where the one before it failed
};

struct RanOut {             // the card had no room, and the program was told
  std::uint64_t bytes = 0;  // the tensor's bytes; 0: unknown
  std::int64_t step = 0;    // the step under way, counted from 1
  std::string phase{}, line{}, own_line{};
  bool raised = false;  // PyTorch raised, after it had emptied its cache; else the driver refused, and PyTorch may have recovered
};

struct Fraction {  // the program's own limit: set_per_process_memory_fraction
  double share = 1;
  std::string line;
  std::uint64_t of(std::uint64_t memory_bytes) const { return std::uint64_t(share * double(memory_bytes)); }
};

struct ProgramAccount {
  int pid = 0, rank = 0, card = 0;
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  std::uint64_t unsure_bytes = 0;      // workspaces of libraries may take so much more or less
  std::uint64_t pool_slack_bytes = 0;  // cudaMallocAsync: what its pools have taken and may not need
  std::uint64_t elsewhere_bytes = 0;   // taken from the driver, not through PyTorch's allocator
  std::uint64_t libraries_bytes = 0;   // of them: libraries' code and handles, streams, graphs, pages that map pinned memory
  std::uint64_t others_bytes = 0;      // by which the card's peak was higher, because of other processes on it
  std::optional<std::uint64_t> step_allocated_bytes{};  // the last whole step's
  std::uint64_t saved_bytes = 0;                        // saved for backward, in the step of the peak
  std::int64_t whole_steps = 0, blocks = 0;
  std::string peak_phase, peak_line, peak_own_line;
  std::int64_t peak_step = 0;  // 0: before the first
  std::vector<ForecastStepRow> steps;
  std::vector<ForecastPhaseRow> phases;
  std::vector<ForecastBlockRow> at_peak, saved;
  std::vector<ForecastMomentRow> curve;
  std::optional<RanOut> ran_out{};
  std::optional<Fraction> fraction{};         // share of the card's memory that PyTorch may reserve
  std::optional<dry::Spread> spread{};        // these peaks with segments at other addresses
  bool addresses_matter = false;              // the effect of addresses is unknown
  std::uint64_t threads = 1;                  // threads that trained at once
  std::optional<dry::Needs> before_update{};  // until an optimizer first stepped, where a card may skip all of the program's steps
};

struct ReservedRange {
  std::uint64_t low = 0, high = 0;
};
// Reserved bytes with segments at other addresses, and workspaces that are not known exactly. The layouts that were played are a sample: an
// eighth of their range is added at both ends.
ReservedRange reserved_range(const dry::Needs& low, const dry::Needs& high, std::uint64_t unsure_bytes);
ReservedRange reserved_range(const ProgramAccount&);
// `low`, or what is left of it where threads asked for memory in an order that is the system's, or where a scaler may skip every step.
std::uint64_t least_allocated(const ProgramAccount&, std::uint64_t low);

// What one process did, beside its cards' bytes.
struct ProcessStory {
  int pid = 0, rank = 0, ranks = 1;
  int visible = 0;  // cards that it sees
  std::string program;
  std::vector<ProgramAccount> cards;  // cards that it allocated on
  bool collectives = false, damaged = false, observed = false;
  std::uint64_t pinned_bytes = 0, managed_bytes = 0;  // peaks
  std::uint64_t seen_bytes = 0;                       // other processes' of a card on which this one has a context and no memory of its own
  std::vector<UnknownValueRow> values;
  std::vector<OnlyAcceptedRow> functions;
  std::vector<std::string> static_runtimes;  // files that bring a runtime of their own
  std::vector<SaidRow> said;                 // the observer's remarks
  int raised = 0;                            // errors for want of memory; all but the last were caught
  std::string loop;                          // a line that has read values that only a card knows again and again since the last step
  std::int64_t loop_reads = 0;               // how often
  std::string end;                           // why the observer ended the program; empty: it did not
  bool waits = false;                        // because a loop waits for a value to change; else enough steps were done
  std::string open;                          // why more may be needed than was seen, with nothing that bounds it
  std::uint64_t threads = 1;                 // threads that trained at once, in an order that the system chooses
  std::int64_t skips = 0;                    // steps that a scaler of the loss may skip on a card, one after another; 0: there is none
  bool tuned = false;                        // kernels were chosen by their times: what measuring them leaves reserved is not known
  std::string settled;                       // why what was seen by then is enough; the program went on for a while
  bool ended_itself = false;                 // in that while, with an exit code of its own
  std::vector<std::string> unknown_lines;    // lines that read unknown values since the last step; the first ones
  bool made_optimizer = false;
  std::vector<Routing> routed;  // the first line of each guess
  std::vector<RunAsked> runs;   // further ones, in their order
  bool late_events = false;  // PyTorch's allocator asked whether another stream is done with memory, and only the card's speed decides it
  std::string torch;         // its version; empty: not known
  bool torch_with_cuda = true;
  dry::StepTimed time;  // a step's; story_of leaves it empty
  std::int64_t unknown_values() const;
  bool ran_out_at_its_end() const;  // PyTorch raised for want of memory, and the process was not ended by the forecast
};

ProcessStory story_of(const dry::Process&);

}  // namespace headroom::studies
