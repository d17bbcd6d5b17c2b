// A study's life: it starts a run in the store, keeps each row as soon as it exists, and finishes the run when all its rows
// exist and were shown. An interrupted run can be resumed. The study owns its life; a command only shows the results.
//
// Order of calls: Life(…), keep(…) for every row, finish() after the answer is printed. A run whose answer was not printed is not
// finished, so that --resume prints it without measuring again.
//
// A store that fails costs no measurement: rows that it refuses wait in memory. One line says so; each later row, and the end, try again.
// A store that fails at the start is an Error, unless it is only busy.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

struct Host {           // what a study needs from the program that runs it
  std::string store;    // the file of the store; empty: the user's own
  bool resume = false;  // continue the interrupted run with the same settings
  std::function<bool()> stop = [] { return false; };
  std::function<void(double share, const std::string& doing)> progress = [](double, const std::string&) {};
  std::function<void(const std::string& doing)> announce = [](const std::string&) {};  // before long work; only a terminal shows it
  std::function<void(const std::string&)> say = [](const std::string&) {};             // prints a line at once
  std::chrono::milliseconds patience = Results::usual_wait;  // how long to wait for a store that another program holds
};

// Call it before work that takes seconds: throws an Error where a Life could not begin.
void check_store(const Host&);

class Life {
 public:
  enum class Afresh : std::uint8_t { said, unsaid };  // whether to say that there is no run to resume
  Life(const Host&, const std::string& command, const RowObject& settings, const std::string& machine, Afresh = Afresh::said);
  ~Life();  // offers the store once more what waits in memory
  Life(Life&&) noexcept = default;

  bool goes_on() const { return goes_on_; }              // true: an earlier run is resumed
  const RowObject* known(const std::string& key) const;  // the row that was kept before the interruption; null: there is none
  void keep(const std::string& key, const RowObject& row, const RowObject& detail = RowObject::object());
  // If no run is resumed: copies the rows that `wanted` accepts from the newest earlier run of this command and machine whose settings
  // `same` accepts. This run continues from there.
  void adopt(const std::function<bool(const RowObject& settings)>& same, const std::function<bool(const RowObject& row)>& wanted);
  std::string finish();      // a line to print if the store lacks rows of this run, or got them only now; usually empty
  std::string name() const;  // "run 12 in results.db"
  bool in_store() const { return run_ > 0; }
  // What every command prints when it was asked to stop: the command, the signal, how far it came ("after 3 of 8 rows"), where the
  // rows are kept, and how to continue if that is possible.
  std::string stopped(const std::string& where, const std::string& then = "the same command with --resume continues from there");

 private:
  void warn(const std::string& why);
  void put_waiting(std::chrono::milliseconds wait);
  std::string put_late(std::chrono::milliseconds wait);  // why it failed; empty: it succeeded

  std::string store_, command_, settings_, machine_;
  std::function<void(const std::string&)> say_;
  std::chrono::milliseconds patience_;
  std::optional<Results> results_;  // empty while the store is too busy to be opened
  std::int64_t run_ = 0;            // 0: not started yet
  bool goes_on_ = false, warned_ = false;
  std::chrono::steady_clock::time_point tried_{};
  std::map<std::string, RowObject> known_;
  std::vector<StoredRow> waiting_;
};

enum class Answer : std::uint8_t { yes, failed, no };  // no: nothing that was asked for is possible (every row is oom, say)

struct Outcome {
  Record record;
  Answer answer = Answer::yes;
  std::optional<Life> life{};  // to finish once the record is shown; empty if it was cut short or keeps nothing
  std::string said{};          // a line beside the record: the run's name, what to do next
  bool stopped = false;        // by a signal; what was found until then holds, so the first line is not that of a failure
};
inline Outcome yes_or_no(Record record, bool yes) { return {std::move(record), yes ? Answer::yes : Answer::no}; }

}  // namespace headroom::studies
