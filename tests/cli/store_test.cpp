// The file of results as commands meet it: empty, in no folder, left by a writer that was killed, or with rows that were not delivered.
#include <chrono>

#include "store/results.h"
#include "tests/cli/small_run.h"
#include "tests/store/killed_writer.h"

namespace headroom {
namespace {

class StoreFile : public SmallRun {};

TEST_F(StoreFile, AnEmptyFileBecomesAStore) {
  const std::string empty = db_ + ".empty";
  std::fclose(std::fopen(empty.c_str(), "w"));
  const Ended e = run("attention --device cpu --len 16 --batch 1 --dim 16 --warmup 0 --steps 1 --db " + empty);
  EXPECT_EQ(e.code, 0) << e.err;
}

TEST_F(StoreFile, AStoreThatCannotBeOpenedIsSaidBeforeAnythingIsMeasured) {
  put("a-file", "x");
  const auto start = std::chrono::steady_clock::now();
  refused("profile step --model small --len 1024 --batch 4 --device cpu --db " + at("a-file/results.db"), 1, "cannot be made");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(StoreFile, AStoreWhoseWriterWasKilledIsReadByEveryCommand) {
  for (const char* command : {"results", "results 1", "report 1", "compare 1 1"}) {
    fs::remove(db_);
    ASSERT_TRUE(killed_inside_write(db_, 4));
    EXPECT_EQ(run(std::string(command) + " --db " + db_).code, 0) << command;
  }
  fs::remove(db_);
  ASSERT_TRUE(killed_inside_write(db_, 1));
  refused("results --db " + db_, 1, "measure something first");
}

TEST_F(StoreFile, WhatWasMeasuredAndNotDeliveredIsNotMeasuredAgain) {
  const std::string sweep =
      "$H attention --variant flash --batch 1 --dim 16 --len 16,32 --warmup 0 --steps 2 --format json --db results.db";
  EXPECT_EQ(shell(sweep + " > /dev/full").code, 1) << "as if it was killed between its last row and the output";
  const Ended again = shell(sweep + " --resume");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("starting afresh"), std::string::npos) << again.err;
  const Results r(db_, Results::Access::read);
  EXPECT_EQ(r.runs().size(), 1u);
  EXPECT_FALSE(r.runs()[0].finished.empty());
  EXPECT_EQ(Json::parse(again.out)["rows"].size(), 2u);
}

}  // namespace
}  // namespace headroom
