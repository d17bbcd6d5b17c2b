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
  std::string started, finished;                    // UTC; finished is empty while it runs or when it was cut short
  std::int64_t rows = 0;
};

// Other programs held the store all the time that was waited for it.
struct StoreBusy : Error {
  using Error::Error;
};

struct StoredRow {
  std::string key, row, detail;  // JSON objects; detail is what the row's columns have no room for
};

class Results {
 public:
  enum class Access : std::uint8_t { write, read };
  static constexpr std::chrono::milliseconds usual_wait = std::chrono::seconds(10);
  // write makes the file and its folder where they are missing. wait: for other programs that hold the store; then StoreBusy.
  Results(const std::string& file, Access, std::chrono::milliseconds wait = usual_wait);
  void wait_at_most(std::chrono::milliseconds);
  // For readers of what may have been kept: nothing where there is no file, or a file that holds nothing yet.
  static std::optional<Results> if_any(const std::string& file);
  ~Results();
  Results(Results&&) noexcept;

  // All that is read and written before commit() is one transaction: no other process writes in between.
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

  // A run belongs to the process that started or resumed it, until it is finished, or its Results goes, or the process ends.
  std::int64_t start_run(const std::string& command, const std::string& settings, const std::string& machine);
  // The newest run that was cut short, with the same command, settings and machine, by this version of the program. Runs that other
  // processes measure are passed over; where there are only such, an Error names the process.
  std::optional<StoredRun> resume_run(const std::string& command, const std::string& settings, const std::string& machine);
  void add_row(std::int64_t run, const StoredRow&);  // on disk when it returns; a key that the run has already is replaced
  void finish_run(std::int64_t run);

  std::vector<StoredRun> runs() const;  // newest first
  std::optional<StoredRun> run(std::int64_t id) const;
  std::vector<StoredRow> rows(std::int64_t run) const;  // in the order they were added

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

// As Results::if_any. `store`: empty for the user's own.
std::optional<Results> results_if_any(const std::string& store);

// $XDG_DATA_HOME/headroom/results.db, or ~/.local/share/headroom/results.db.
std::string default_results_file();

}  // namespace headroom
