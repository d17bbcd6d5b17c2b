// A study's life: it starts a run in the store, keeps each row as soon as it exists, and finishes the run when all its rows
// exist and were shown. An interrupted run can be resumed. The study owns its life; a command only shows the results.
//
// Order of calls: Life(…), keep(…) for every row, finish() after the answer is printed. A run whose answer was not printed is not
// finished, so that --resume prints it without measuring again.
//
// A store that fails costs no measurement: rows that it does not take wait in memory. One line says so, each later row tries again, and
// so does the end. A store that fails from the beginning is an Error, unless it is only busy.
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

struct Host {           // who runs a study
  std::string store;    // the file of the store; empty: the user's own
  bool resume = false;  // continue the interrupted run with the same settings
  std::function<bool()> stop = [] { return false; };
  std::function<void(double share, const std::string& doing)> progress = [](double, const std::string&) {};
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line, at once
  std::chrono::milliseconds patience = Results::usual_wait;                 // with other programs that hold the store
};

// Before work that takes seconds: an Error where a Life could not begin.
void check_store(const Host&);

class Life {
 public:
  enum class Afresh : std::uint8_t { said, unsaid };  // that there is no run to resume
  Life(const Host&, const std::string& command, const RowObject& settings, const std::string& machine, Afresh = Afresh::said);
  ~Life();  // what waits in memory is offered to the store once more
  Life(Life&&) noexcept = default;

  bool goes_on() const { return goes_on_; }              // there was a run to resume
  const RowObject* known(const std::string& key) const;  // a row from before the interruption
  void keep(const std::string& key, const RowObject& row, const RowObject& detail = RowObject::object());
  // Where no run goes on: takes over the rows that `wanted` names from the newest earlier run of this command and machine whose
  // settings `same` recognises, because this run begins where that one was.
  void adopt(const std::function<bool(const RowObject& settings)>& same, const std::function<bool(const RowObject& row)>& wanted);
  std::string finish();      // a line to be said: that the store has not all of the run, or that it got it only now; mostly empty
  std::string name() const;  // "run 12 in results.db"
  // What a command says that was asked to stop, the same for all: who, by which signal, how far it came ("after 3 of 8 rows"), where
  // that is kept, and, where there is a way, how to go on.
  std::string stopped(const std::string& where, const std::string& then = "the same command with --resume continues from there");

 private:
  void warn(const std::string& why);
  void put_waiting(std::chrono::milliseconds wait);
  std::string put_late(std::chrono::milliseconds wait);  // why it did not succeed; empty where it did

  std::string store_, command_, settings_, machine_;
  std::function<void(const std::string&)> say_;
  std::chrono::milliseconds patience_;
  std::optional<Results> results_;  // none while the store is too busy to be opened
  std::int64_t run_ = 0;            // 0: not started yet
  bool goes_on_ = false, warned_ = false;
  std::chrono::steady_clock::time_point tried_{};
  std::map<std::string, RowObject> known_;
  std::vector<StoredRow> waiting_;
};

enum class Answer : std::uint8_t { yes, failed, no };  // no: nothing that was asked about can be had, as where every row is oom

struct Outcome {
  Record record;
  Answer answer = Answer::yes;
  std::optional<Life> life{};  // to be finished once the record is shown; none: cut short, or nothing is kept
  std::string said{};          // a line beside the record: which run this is, what to do next
};
inline Outcome yes_or_no(Record record, bool yes) { return {std::move(record), yes ? Answer::yes : Answer::no}; }

}  // namespace headroom::studies
