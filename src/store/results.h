// Results — measured rows in SQLite. A run is one command with its settings on one machine; a row is a JSON object under a key.
//
// Every row is its own transaction in a plain rollback journal: a killed program keeps every row for which add_row returned, the
// store stays one file, and it works on file systems without shared memory, where WAL does not.
// A file that is damaged, or is not ours, is reported and left as it is.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "store/claim.h"

struct sqlite3;

namespace headroom {

struct StoredRun {
  std::int64_t id = 0;
  std::string command, settings, machine, version;  // settings: a JSON object
  std::string started, finished;                    // times in UTC; finished is empty while the run goes on, or when it was cut short
  std::int64_t rows = 0;
};

// Other programs held the store for the whole time that we waited.
struct StoreBusy : Error {
  using Error::Error;
};

struct StoredRow {
  std::string key, row, detail;  // row and detail are JSON objects; detail has what no column shows
};

class Results {
 public:
  enum class Access : std::uint8_t { write, read };
  static constexpr std::chrono::milliseconds usual_wait = std::chrono::seconds(10);
  // write makes the file and its folder where they are missing. wait: how long other programs may hold the store before StoreBusy.
  Results(const std::string& file, Access, std::chrono::milliseconds wait = usual_wait);
  void wait_at_most(std::chrono::milliseconds);
  // The store to read from; none where there is no file, or a file that holds nothing yet.
  static std::optional<Results> if_any(const std::string& file);
  ~Results();
  Results(Results&&) noexcept;

  // Reads and writes before commit() are one transaction: no other process writes in between.
  class Transaction {
   public:
    explicit Transaction(const Results&);
    ~Transaction();  // without commit(), nothing is written
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

   private:
    const Results* results_;
  };

  // A run belongs to the process that started or resumed it, until the run is finished, its Results is destroyed, or the process ends.
  std::int64_t start_run(const std::string& command, const std::string& settings, const std::string& machine);
  // The newest run that was cut short, with the same command, settings and machine, by this version of the program. Runs that other
  // processes measure are passed over; where there are only such, an Error names the process.
  std::optional<StoredRun> resume_run(const std::string& command, const std::string& settings, const std::string& machine);
  void add_row(std::int64_t run, const StoredRow&);  // the row is on disk when this returns; it replaces a row with the same key
  void finish_run(std::int64_t run);

  std::vector<StoredRun> runs() const;  // the newest run first
  std::optional<StoredRun> run(std::int64_t id) const;
  std::vector<StoredRow> rows(std::int64_t run) const;  // rows in the order they were added

  const std::string& file() const { return file_; }

 private:
  enum class Found : std::uint8_t { no_file, nothing, results };
  using Database = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;
  Results(std::string file, Database);
  bool claim(std::int64_t run);
  static std::pair<Database, Found> look(const std::string& file, Access, std::chrono::milliseconds wait);

  std::string file_;
  Database db_;
  std::map<std::int64_t, Claim> claims_;
};

// The same as Results::if_any. `store`: empty for the user's own.
std::optional<Results> results_if_any(const std::string& store);

// $XDG_DATA_HOME/headroom/results.db, or ~/.local/share/headroom/results.db.
std::string default_results_file();

}  // namespace headroom
