// Results — measured rows in SQLite. A run is one command with its settings on one machine; a row is a JSON object under a key.
//
// Every row is its own transaction in a plain rollback journal: a killed program keeps every row for which add_row returned, the
// store stays one file, and it works on file systems without shared memory, where WAL does not.
// A file that is damaged, or is not ours, is reported and left as it is.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct sqlite3;

namespace headroom {

struct StoredRun {
  std::int64_t id = 0;
  std::string command, settings, machine, version;  // settings: a JSON object
  std::string started, finished;                    // UTC; finished is empty while it runs or when it was cut short
  std::int64_t rows = 0;
};

struct StoredRow {
  std::string key, row, detail;  // JSON objects; detail is what the row's columns have no room for
};

class Results {
 public:
  enum class Access : std::uint8_t { write, read };
  Results(const std::string& file, Access);  // write makes the file and its folder where they are missing
  ~Results();
  Results(Results&&) noexcept;

  std::int64_t start_run(const std::string& command, const std::string& settings, const std::string& machine);
  void add_row(std::int64_t run, const StoredRow&);  // on disk when it returns; a key that the run has already is replaced
  void finish_run(std::int64_t run);

  std::vector<StoredRun> runs() const;  // newest first
  std::optional<StoredRun> run(std::int64_t id) const;
  std::vector<StoredRow> rows(std::int64_t run) const;  // in the order they were added
  // The newest run that was cut short, with the same command, settings and machine, by this version of the program.
  std::optional<StoredRun> unfinished(const std::string& command, const std::string& settings, const std::string& machine) const;

  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_;
};

// For who reads what may have been kept: nothing where there is no file yet, or an empty one. `store`: empty for the user's own.
std::optional<Results> results_if_any(const std::string& store);

// $XDG_DATA_HOME/headroom/results.db, or ~/.local/share/headroom/results.db.
std::string default_results_file();

}  // namespace headroom
