#include "store/results.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace headroom {

namespace {

constexpr int application_id = 0x48656164;  // "Head"
constexpr int schema_version = 1;
constexpr const char* schema = R"(
  CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, command TEXT NOT NULL, settings TEXT NOT NULL, machine TEXT NOT NULL,
                    version TEXT NOT NULL, started TEXT NOT NULL DEFAULT (datetime('now')), finished TEXT NOT NULL DEFAULT '');
  CREATE TABLE rows(id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs(id), key TEXT NOT NULL,
                    row TEXT NOT NULL, detail TEXT NOT NULL, UNIQUE(run, key));
)";

namespace fs = std::filesystem;

// A writer was killed inside a write: what it left is whole again once its journal is played back, which takes write access.
struct HotJournal : Error {
  explicit HotJournal(const std::string& file)
      : Error(Code::io, fmt::format("results: a writer of '{}' was killed just now; try again", file)) {}
};

// database: whether the file begins as one. To be asked of what is no store alone: who closes a file, by whatever handle, loses SQLite's locks on it.
std::string damaged(const std::string& file, bool database = true) {
  return fmt::format("results: '{}' is {}; it was left as it is, move it away or name another with --db", file,
                     database ? "damaged" : "damaged, or was never a file of results");
}

class Statement {  // prepared, bound in order, stepped
 public:
  Statement(sqlite3* db, const std::string& file, const char* sql) : db_(db), file_(file) {
    if (sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr) != SQLITE_OK) fail();
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::int64_t x) { return bound(sqlite3_bind_int64(statement_, ++parameters_, x)); }
  Statement& bind(const std::string& s) {
    return bound(sqlite3_bind_text(statement_, ++parameters_, s.data(), int(s.size()), SQLITE_TRANSIENT));
  }
  bool next() {
    const int rc = sqlite3_step(statement_);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) fail();
    return rc == SQLITE_ROW;
  }
  std::int64_t integer(int column) { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) {
    const auto* s = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    check(s || sqlite3_column_type(statement_, column) == SQLITE_NULL, Code::out_of_memory,
          "out of memory: a text of '{}' could not be read", file_);
    return s ? std::string(s, std::size_t(sqlite3_column_bytes(statement_, column))) : "";
  }

 private:
  Statement& bound(int rc) {
    if (rc != SQLITE_OK) fail();
    return *this;
  }
  [[noreturn]] void fail() const {
    const int rc = sqlite3_errcode(db_), extended = sqlite3_extended_errcode(db_), system = sqlite3_system_errno(db_);
    const std::string said = sqlite3_errmsg(db_);
    sqlite3_finalize(statement_);
    statement_ = nullptr;
    if (extended == SQLITE_READONLY_ROLLBACK || extended == SQLITE_READONLY_RECOVERY) throw HotJournal(file_);
    switch (rc & 0xff) {
      case SQLITE_NOTADB: throw Error(Code::io, damaged(file_, is_database(file_)));
      case SQLITE_CORRUPT: throw Error(Code::io, damaged(file_));
      case SQLITE_READONLY:
        throw Error(Code::io, extended == SQLITE_READONLY_DBMOVED
                                  ? fmt::format("results: '{}' was moved or deleted while it was in use", file_)
                                  : fmt::format("results: '{}' cannot be written to; name another with --db", file_));
      case SQLITE_CANTOPEN:
        throw Error(Code::io, fmt::format("results: the folder of '{}' cannot be written to; name another with --db", file_));
      case SQLITE_IOERR:
        // SQLite has often forgotten the reason by then; a write that was cut short has these.
        if (system != ENOSPC && system != EDQUOT && system != EFBIG && extended != SQLITE_IOERR_WRITE && extended != SQLITE_IOERR_FSYNC)
          throw Error(Code::io, fmt::format("results: '{}' cannot be read or written: {}", file_,
                                            system ? std::strerror(system) : "the system gives no reason"));
        [[fallthrough]];
      case SQLITE_FULL:
        throw Error(Code::io,
                    fmt::format("results: no room is left for '{}', or it may not grow any larger here; name another with --db", file_));
      case SQLITE_BUSY:
        throw StoreBusy(Code::io, fmt::format("results: '{}' is held by another program; try again, or name another with --db", file_));
      case SQLITE_NOMEM: throw Error(Code::out_of_memory, fmt::format("out of memory: results: '{}' could not be read or written", file_));
      default: throw Error(Code::io, fmt::format("results: '{}': {}", file_, said));
    }
  }

  sqlite3* db_;
  const std::string& file_;
  mutable sqlite3_stmt* statement_ = nullptr;
  int parameters_ = 0;
};

void execute(sqlite3* db, const std::string& file, const char* sql) { Statement(db, file, sql).next(); }

std::int64_t ask(sqlite3* db, const std::string& file, const char* sql) {
  Statement s(db, file, sql);
  return s.next() ? s.integer(0) : 0;
}

// Whether there are results in the file, or an Error where it is another program's. A process that was killed while it made the store left nothing.
bool holds_tables(sqlite3* db, const std::string& file) {
  const auto id = ask(db, file, "PRAGMA application_id"), version = ask(db, file, "PRAGMA user_version");
  if (id == 0 && version == 0 && ask(db, file, "SELECT count(*) FROM sqlite_master") == 0) return false;
  check(id == application_id, Code::io, "results: '{}' is another program's; name another with --db", file);
  check(version == schema_version, Code::io, "results: '{}' has format {}, this program knows {}; name another with --db", file, version,
        schema_version);
  return true;
}

// What a check says where it had no memory for a page (7 is SQLITE_NOMEM), which tells nothing of the file.
bool could_not_read(const std::string& found) {
  return found.find("failed to get page") != std::string::npos || found.find("error code=7") != std::string::npos;
}

// The same, with an Error where the file is damaged.
bool holds_results(sqlite3* db, const std::string& file) {
  Statement quick(db, file, "PRAGMA quick_check(1)");
  const std::string found = quick.next() ? quick.text(0) : "";
  if (found == "ok") return holds_tables(db, file);
  check(!could_not_read(found), Code::out_of_memory, "out of memory: results: '{}' could not be read to its end; it was left as it is",
        file);
  throw Error(Code::io, damaged(file));
}

void make_tables(sqlite3* db, const std::string& file) {
  char* said = nullptr;
  const int rc = sqlite3_exec(db, schema, nullptr, nullptr, &said);
  sqlite3_free(said);
  check(rc != SQLITE_NOMEM, Code::out_of_memory, "out of memory: results: the tables of '{}' could not be made", file);
  check(rc == SQLITE_OK, Code::io, "results: '{}' cannot be written to; name another with --db", file);
  execute(db, file, fmt::format("PRAGMA application_id = {}", application_id).c_str());
  execute(db, file, fmt::format("PRAGMA user_version = {}", schema_version).c_str());
}

constexpr const char* run_columns =
    "SELECT id, command, settings, machine, version, started, finished, (SELECT count(*) FROM rows WHERE run = runs.id) FROM runs ";

StoredRun run_of(Statement& s) { return {s.integer(0), s.text(1), s.text(2), s.text(3), s.text(4), s.text(5), s.text(6), s.integer(7)}; }

}  // namespace

namespace {

using Database = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;

Database opened(const fs::path& place, int flags, const std::string& file, std::chrono::milliseconds wait) {
  sqlite3* db = nullptr;
  const int rc = sqlite3_open_v2(fs::absolute(place).c_str(), &db, flags, nullptr);  // absolute: no name means anything else to SQLite
  Database owner(db, sqlite3_close);
  check(rc != SQLITE_NOMEM, Code::out_of_memory, "out of memory: results: '{}' could not be opened", file);
  check(rc == SQLITE_OK, Code::io, "results: '{}' cannot be opened: {}; name another with --db", file,
        sqlite3_system_errno(db) ? std::strerror(sqlite3_system_errno(db)) : "the system gives no reason");
  sqlite3_busy_timeout(db, int(wait.count()));
  return owner;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code failed;
    std::string name = (fs::temp_directory_path(failed) / "headroom-results-XXXXXX").string();
    const bool made = !failed && mkdtemp(name.data()) != nullptr;  // before errno is an argument of check
    check(made, Code::io, "results: a writer was killed and its store is read as a copy, but there is no place for one: {}",
          failed ? failed.message() : std::strerror(errno));
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path path;
};

// For a reader who may not write: a copy whose journal is played back. The journal is copied first, and must still be the same after the
// store: a program that repairs the store meanwhile deletes its journal last.
Database repaired_copy(const std::string& file, std::chrono::milliseconds wait) {
  const fs::path journal = file + "-journal";
  for (int attempt = 0; attempt < 3; ++attempt) {
    const TemporaryFolder folder;
    const fs::path copy = folder.path / "results.db";
    std::error_code failed;
    const auto before = fs::last_write_time(journal, failed);
    if (failed) return opened(file, SQLITE_OPEN_READONLY, file, wait);  // repaired meanwhile
    fs::copy_file(journal, copy.string() + "-journal", failed);
    if (!failed) fs::copy_file(file, copy, failed);
    check(!failed, Code::io, "results: a writer of '{}' was killed, and it cannot be repaired here: {}", file, failed.message());
    if (fs::last_write_time(journal, failed) != before || failed) continue;
    for (const auto& entry : fs::directory_iterator(folder.path, failed))  // the original's may be for reading only
      fs::permissions(entry.path(), fs::perms::owner_read | fs::perms::owner_write, failed);
    Database db = opened(copy, SQLITE_OPEN_READWRITE, file, wait);
    ask(db.get(), file, "SELECT count(*) FROM sqlite_master");  // plays the journal back
    return db;                                                  // the folder goes, the open file stays
  }
  throw Error(Code::io, fmt::format("results: '{}' is being repaired by another program; try again", file));
}

Database opened_for_reading(const std::string& file, std::chrono::milliseconds wait) {
  const auto readable = [&](Database db) {
    ask(db.get(), file, "SELECT count(*) FROM sqlite_master");
    return db;
  };
  try {
    return readable(opened(file, SQLITE_OPEN_READONLY, file, wait));
  } catch (const HotJournal&) {}  // NOLINT(bugprone-empty-catch): gone on with below
  try {
    Database db = readable(opened(file, SQLITE_OPEN_READWRITE, file, wait));
    if (sqlite3_db_readonly(db.get(), "main") == 0) {
      execute(db.get(), file, "PRAGMA query_only = 1");
      return db;
    }
  } catch (const HotJournal&) {  // NOLINT(bugprone-empty-catch)
  } catch (const Error& e) {
    if (e.at.code == Code::out_of_memory) throw;
  }
  return repaired_copy(file, wait);
}

Database opened_for_writing(const std::string& file, bool there, std::chrono::milliseconds wait) {
  const auto folder = fs::path(file).parent_path();
  if (!folder.empty()) {
    std::error_code failed;
    fs::create_directories(folder, failed);
    check(fs::is_directory(folder, failed), Code::io, "results: the folder '{}' cannot be made; name another file with --db",
          folder.string());
  }
  const std::string place = folder.empty() ? "." : folder.string();
  const bool may_be_made = there || eaccess(place.c_str(), W_OK | X_OK) == 0;  // before errno is an argument of check
  check(may_be_made, Code::io, "results: no file can be made in '{}': {}; name another with --db", place, std::strerror(errno));
  check(!there || eaccess(file.c_str(), W_OK) == 0, Code::io, "results: '{}' cannot be written to; name another with --db", file);
  Database db = opened(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, file, wait);
  check(sqlite3_db_readonly(db.get(), "main") == 0, Code::io, "results: '{}' cannot be written to; name another with --db", file);
  return db;
}

}  // namespace

std::pair<Results::Database, Results::Found> Results::look(const std::string& file, Access access, std::chrono::milliseconds wait) {
  std::error_code failed;
  const auto status = fs::status(file, failed);
  check(!fs::is_directory(status), Code::bad_argument, "results: '{}' is a directory; name a file in it", file);
  check(!fs::exists(status) || fs::is_regular_file(status), Code::bad_argument, "results: '{}' is no file that keeps what is written to it",
        file);
  if (!fs::exists(status) && access == Access::read) return {Database(nullptr, sqlite3_close), Found::no_file};
  const bool empty = !fs::exists(status) || fs::file_size(file, failed) == 0;
  if (empty && access == Access::read) return {Database(nullptr, sqlite3_close), Found::nothing};
  Database db = access == Access::write ? opened_for_writing(file, !empty, wait) : opened_for_reading(file, wait);
  const bool results = holds_results(db.get(), file);
  return {std::move(db), results ? Found::results : Found::nothing};
}

Results::Results(std::string file, Database db) : file_(std::move(file)), db_(std::move(db)) {}

Results::Results(const std::string& file, Access access, std::chrono::milliseconds wait) : file_(file), db_(nullptr, sqlite3_close) {
  auto [db, found] = look(file, access, wait);
  check(found == Found::results || access == Access::write, Code::io,
        "results: there is {} yet; measure something first, or name another with --db",
        found == Found::nothing ? fmt::format("nothing in '{}'", file) : fmt::format("no '{}'", file));
  db_ = std::move(db);
  if (found == Found::results) return;
  Transaction making(*this);
  if (!holds_results(db_.get(), file_)) make_tables(db_.get(), file_);  // another process may have been faster
  making.commit();
}

std::optional<Results> Results::if_any(const std::string& file) {
  auto [db, found] = look(file, Access::read, usual_wait);
  return found == Found::results ? std::optional(Results(file, std::move(db))) : std::nullopt;
}

Results::~Results() = default;
Results::Results(Results&&) noexcept = default;

Results::Transaction::Transaction(const Results& r) : results_(sqlite3_get_autocommit(r.db_.get()) != 0 ? &r : nullptr) {
  if (results_) execute(r.db_.get(), r.file_, "BEGIN IMMEDIATE");
}

Results::Transaction::~Transaction() {
  if (results_) sqlite3_exec(results_->db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Results::Transaction::commit() {
  if (!results_) return;
  execute(results_->db_.get(), results_->file_, "COMMIT");
  results_ = nullptr;
}

void Results::wait_at_most(std::chrono::milliseconds wait) { sqlite3_busy_timeout(db_.get(), int(wait.count())); }

bool Results::claim(std::int64_t run) {
  if (claims_.contains(run)) return true;
  auto claimed = Claim::of(file_, run);
  if (claimed) claims_.emplace(run, std::move(*claimed));
  return claimed.has_value();
}

std::int64_t Results::start_run(const std::string& command, const std::string& settings, const std::string& machine) {
  Transaction t(*this);  // no other process sees the run before it is claimed
  Statement(db_.get(), file_, "INSERT INTO runs(command, settings, machine, version) VALUES(?, ?, ?, ?)")
      .bind(command)
      .bind(settings)
      .bind(machine)
      .bind(std::string(HEADROOM_VERSION))
      .next();
  const std::int64_t run = sqlite3_last_insert_rowid(db_.get());
  claim(run);
  t.commit();
  return run;
}

std::optional<StoredRun> Results::resume_run(const std::string& command, const std::string& settings, const std::string& machine) {
  Transaction t(*this);
  std::optional<StoredRun> cut_short, elsewhere;
  {
    Statement s(
        db_.get(), file_,
        fmt::format("{} WHERE finished = '' AND command = ? AND settings = ? AND machine = ? AND version = ? ORDER BY id DESC", run_columns)
            .c_str());
    s.bind(command).bind(settings).bind(machine).bind(std::string(HEADROOM_VERSION));
    while (!cut_short && s.next()) {
      StoredRun run = run_of(s);
      if (claim(run.id))
        cut_short = std::move(run);
      else if (!elsewhere)
        elsewhere = std::move(run);
    }
  }
  t.commit();
  check(cut_short || !elsewhere, Code::io,
        "results: run {} in '{}' has these settings, and {} is measuring it; wait for it, or leave out --resume for a run of its own",
        elsewhere ? elsewhere->id : 0, file_, elsewhere ? Claim::owner(file_, elsewhere->id) : "");
  return cut_short;
}

void Results::add_row(std::int64_t run, const StoredRow& r) {
  Statement s(db_.get(), file_, "INSERT OR REPLACE INTO rows(run, key, row, detail) VALUES(?, ?, ?, ?)");
  s.bind(run).bind(r.key).bind(r.row).bind(r.detail).next();
}

void Results::finish_run(std::int64_t run) {
  Statement(db_.get(), file_, "UPDATE runs SET finished = datetime('now') WHERE id = ?").bind(run).next();
  claims_.erase(run);
}

std::vector<StoredRun> Results::runs() const {
  Statement s(db_.get(), file_, fmt::format("{} ORDER BY id DESC", run_columns).c_str());
  std::vector<StoredRun> all;
  while (s.next()) all.push_back(run_of(s));
  return all;
}

std::optional<StoredRun> Results::run(std::int64_t id) const {
  Statement s(db_.get(), file_, fmt::format("{} WHERE id = ?", run_columns).c_str());
  if (!s.bind(id).next()) return std::nullopt;
  return run_of(s);
}

std::vector<StoredRow> Results::rows(std::int64_t run) const {
  Statement s(db_.get(), file_, "SELECT key, row, detail FROM rows WHERE run = ? ORDER BY id");
  s.bind(run);
  std::vector<StoredRow> all;
  while (s.next()) all.push_back({s.text(0), s.text(1), s.text(2)});
  return all;
}

namespace {

std::string users_own_file() {  // empty where there is no place for one
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data && *data == '/') return std::string(data) + "/headroom/results.db";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.local/share/headroom/results.db" : "";
}

}  // namespace

std::optional<Results> results_if_any(const std::string& store) {
  const std::string file = store.empty() ? users_own_file() : store;
  return file.empty() ? std::nullopt : Results::if_any(file);
}

std::string default_results_file() {
  const std::string file = users_own_file();
  check(!file.empty(), Code::io, "results: neither HOME nor XDG_DATA_HOME is set; name a file with --db");
  return file;
}

}  // namespace headroom
