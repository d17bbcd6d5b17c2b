// The store when memory runs out at every single point, SQLite's own allocations among them: rows that were taken are there, the
// file stays whole, and an attempt that failed hurts no later one. The sweep when an arena, a block or operator new is refused: its
// rows end as oom, or the whole of it as a clean error.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "store/results.h"
#include "studies/attention/sweep.h"
#include "tests/failure/allocations.h"

namespace headroom::allocations {
namespace {

// SQLite takes its memory here, so that it is counted and refused like all other memory.
struct SqliteMemory {
  static constexpr std::size_t header = 16;  // keeps the size, and the alignment that SQLite asks for
  static void* take(int bytes) {
    try {
      auto* at = static_cast<char*>(::operator new(std::size_t(bytes) + header));
      *reinterpret_cast<int*>(at) = bytes;
      return at + header;
    } catch (const std::bad_alloc&) { return nullptr; }
  }
  static void give(void* p) {
    if (p) ::operator delete(static_cast<char*>(p) - header);
  }
  static int size(void* p) { return p ? *reinterpret_cast<int*>(static_cast<char*>(p) - header) : 0; }
  static void* resize(void* p, int bytes) {
    void* bigger = take(bytes);
    if (!bigger) return nullptr;
    std::memcpy(bigger, p, std::size_t(std::min(bytes, size(p))));
    give(p);
    return bigger;
  }
  static int round(int bytes) { return (bytes + 7) & ~7; }
  static int begin(void*) { return SQLITE_OK; }
  static void end(void*) {}
};

const bool sqlite_is_counted = [] {
  static const sqlite3_mem_methods methods = {SqliteMemory::take,  SqliteMemory::give,  SqliteMemory::resize, SqliteMemory::size,
                                              SqliteMemory::round, SqliteMemory::begin, SqliteMemory::end,    nullptr};
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK && sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK &&
         sqlite3_initialize() == SQLITE_OK;
}();

class StoreFile : public testing::Test {
 protected:
  StoreFile() { std::filesystem::remove(path); }
  ~StoreFile() override { std::filesystem::remove(path); }
  // In memory where there is such a place: a store waits for the disk at every row.
  const std::filesystem::path folder = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
  const std::string path = (folder / ("headroom_failure_" + std::to_string(getpid()) + ".sqlite")).string();
};

using OutOfMemoryStore = StoreFile;

TEST_F(OutOfMemoryStore, WhatAddRowReturnedFromIsThere) {
  ASSERT_TRUE(sqlite_is_counted);
  std::size_t added = 0;
  const auto work = [&] {
    added = 0;
    Results results(path, Results::Access::write);
    const auto run = results.start_run("attention", "{}", "cpu");
    for (const char* key : {"a", "b"}) results.add_row(run, {key, "{\"len_q\":256}", "{}"}), ++added;
    results.finish_run(run);
    EXPECT_EQ(results.rows(run).size(), 2u);
    return Outcome::done;
  };
  const auto verify = [&] {  // opens what the failed attempt left: whole, with its rows
    const std::size_t promised = added;
    {
      const bool there = std::filesystem::exists(path) && std::filesystem::file_size(path) > 0;
      if (there) {
        const Results results(path, Results::Access::read);
        const auto runs = results.runs();
        if (promised > 0) {
          ASSERT_FALSE(runs.empty());
          EXPECT_GE(results.rows(runs.front().id).size(), promised);
        }
      }
    }
    std::filesystem::remove(path);
    EXPECT_EQ(int(work()), int(Outcome::done));
    std::filesystem::remove(path);
  };
  fail_each(Source::operator_new, work, verify);
}

TEST_F(OutOfMemoryStore, WantOfMemoryIsNotCalledDamage) {
  {
    Results results(path, Results::Access::write);
    const auto run = results.start_run("attention", "{}", "cpu");
    for (const char* key : {"a", "b", "c"}) results.add_row(run, {key, "{}", std::string(200'000, ' ')});  // many pages for one text
    results.finish_run(run);
  }
  const auto work = [&] {
    try {
      const Results results(path, Results::Access::read);
      EXPECT_EQ(results.runs().size(), 1u);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("damaged"), std::string::npos) << e.what();
      throw;
    }
    return Outcome::done;
  };
  fail_each(Source::operator_new, work, [&] { EXPECT_EQ(int(work()), int(Outcome::done)); });
}

TEST_F(OutOfMemoryStore, ASweepEndsInRowsOrACleanError) {
  studies::AttentionSweep sweep;
  sweep.batch = 1, sweep.dims = {8}, sweep.lens = {16};
  sweep.protocol.warmup = 0, sweep.protocol.steps = 1;
  sweep.memory = 1 << 24;
  Device device;
  device.memory_bytes = 1 << 30;
  device.name = "CPU", device.units = 1;
  const auto rows_of = [&] { return studies::run_sweep(sweep, device).rows; };
  const auto work = [&] {
    for (const auto& row : rows_of()) EXPECT_TRUE(row.ok() || row.status == studies::Status::oom) << row.why;
    return Outcome::done;
  };
  const auto verify = [&] {
    const auto rows = rows_of();
    ASSERT_EQ(rows.size(), 2u);
    for (const auto& row : rows) EXPECT_TRUE(row.ok()) << row.why;
  };
  fail_each(Source::arena, work, verify);
  fail_each(Source::operator_new, work, verify);
}

}  // namespace
}  // namespace headroom::allocations
