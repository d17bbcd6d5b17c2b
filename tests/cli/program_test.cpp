// The program as a new user meets it: exit codes, one-line refusals, JSON, a sweep that is killed and goes on.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <set>
#include <thread>

#include "gpu/device.h"
#include "store/results.h"
#include "tests/cli/program.h"
#include "tests/sanitizers.h"

namespace headroom {
namespace {

const std::string tiny = "attention --device cpu --batch 1 --dim 16 --len 16,32 --warmup 0 --steps 2 ";

TEST_F(Program, BadInputGetsOneLineThatSaysWhatIsAllowed) {
  refused("atention", 2, "did you mean 'attention'?");
  refused("attention --variant flsh", 2, "did you mean 'flash'?");
  refused("attention --dim 0", 2, "from 1 to 1024");
  refused("attention --dim 1025", 2, "from 1 to 1024");
  refused("attention --len -4", 2, "--len: '-4'");
  refused("attention --len 256,", 2, "empty item");
  refused("attention --len 256,abc", 2, "'abc'");
  refused("attention --mask casual", 2, "did you mean 'causal'?");
  refused("attention --dtype fp31", 2, "choose from fp32");
  refused("attention --heads 3 --kv-heads 2", 2, "kv_heads must divide heads");
  refused("attention --steps 0", 2, "--steps");
  refused("attention --until 200%", 2, "0.5%");
  refused("attention --memory much", 2, "GiB");
  refused("attention --formt csv", 2, "did you mean '--format'?");
  refused("attention --len 16 --len 32", 2, "takes commas");
  refused("attention --format jsno", 2, "did you mean 'json'?");
  refused("attention --out " + folder_.string(), 2, "is a directory");
  refused("attention --out " + folder_.string() + "/no/such/file", 2, "there is no directory");
  refused("attention --db " + folder_.string(), 2, "is a directory");
  refused("attention --device gpu", 2, "cpu, cuda, cuda:N; did you mean 'cuda'?");
  refused("attention --len", 2, "--len needs a value");
  refused("attention --resume=maybe", 2, "--resume takes no value");
  refused("train --text x --lr abc", 2, "--lr: 'abc'");
  refused("memory model --as pytorch --workspace-mib 99999", 2, "--workspace-mib: '99999'");
  refused("compare 1", 2, "B");
  refused("results", 1, "measure something first");
  refused("results --device cpu", 2, "there is no option --device");
  refused("compare 1 2 --seed 3", 2, "there is no option --seed");
  refused("memory --seed 3", 2, "there is no option --seed: this command draws no random numbers");
  refused("plan --model small --seed 3", 2, "there is no option --seed: this command draws no random numbers");
  refused("forecast --seed 3 -- true", 2, "there is no option --seed");
  refused("kernels --mask window:0", 2, "window:W");
}

TEST_F(Program, WithoutAGpuCudaIsRefusedWithWhatToTry) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  for (const std::string command : {"attention", "device", "kernels", "plan"}) {
    refused(command + " --device cuda", 1, "cannot be had");
    refused(command + " --device cuda:1", 1, command == "attention" || command == "device" ? "try --device cpu" : "as --device h200");
  }
  refused("forecast --device cuda -- python3 train.py", 1, "as --device h200");
  EXPECT_EQ(run("forecast --help").out.find("cpu|"), std::string::npos) << "which it refuses";
  refused("attention --device cuda:x", 2, "'x'");
  const Json j = Json::parse(run("device --no-measure --format json").out)["device"];
  EXPECT_EQ(j["kind"], "cpu") << "the best present";
  EXPECT_LE(j["available_bytes"], j["memory_bytes"]);
  EXPECT_NE(run("kernels --device cpu --len 1 --len-k 300 --page 16").out.find("len 1x300"), std::string::npos);
  for (const char* cache : {"", " --page 64"})
    EXPECT_EQ(Json::parse(run(std::string("kernels --device h200 --dtype bf16 --len 1 --len-k 8192 --format json") + cache).out)["chosen"],
              "flash_decode")
        << "a GPU that is not here can still be asked about, with CUDA and without";
}

TEST_F(Program, ACommandsNameIsSaidOnce) {
  EXPECT_EQ(run("attention --heads 3 --kv-heads 2").err.find("headroom attention: heads 3"), 0u);
  EXPECT_EQ(run("results").err.find("headroom results: there is no"), 0u);
}

TEST_F(Program, HelpIsEnough) {
  EXPECT_EQ(run("").code, 2);
  const Ended overview = run("--help");
  EXPECT_EQ(overview.code, 0);
  for (const std::string name : {"attention", "device", "kernels", "results", "compare"}) {
    EXPECT_NE(overview.out.find("  " + name), std::string::npos);
    const Ended help = run(name + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("Examples:"), std::string::npos) << name;
    EXPECT_NE(help.out.find("--format"), std::string::npos) << name;
  }
  EXPECT_EQ(run("--version").out.substr(0, 9), "headroom ");
}

TEST_F(Program, TheHelpOfASumNamesTheDefaultsThatAreTaken) {
  const Ended help = run("precision accumulate --help");
  EXPECT_NE(help.out.find("How often [1000]"), std::string::npos) << help.out;
  const std::string rest = " --dtype bf16 --method sequential --format csv";
  EXPECT_EQ(run("precision accumulate --value 0.003" + rest).out, run("precision accumulate --value 0.003 --count 1000" + rest).out);
  EXPECT_EQ(run("precision accumulate --count 77" + rest).out, run("precision accumulate --value 0.01 --count 77" + rest).out);
  EXPECT_NE(run("precision accumulate" + rest).out.find("bf16(0.001) x10000"), std::string::npos);
}

TEST_F(Program, TheSweepAnswersInJson) {
  const Ended e = run(tiny + "--variant all --mask causal --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  EXPECT_TRUE(j["device"]["name"].is_string());
  ASSERT_GE(j["rows"].size(), 4u);
  for (const Json& r : j["rows"]) {
    EXPECT_EQ(r["status"], "ok") << r;
    EXPECT_EQ(r["peak_bytes"], r["forecast_peak_bytes"]);
  }
  for (const char* part : {"exponents", "edge", "against_plain"}) EXPECT_FALSE(j["analysis"][part].empty()) << part;
  const Results stored(db_, Results::Access::read);
  EXPECT_EQ(stored.rows(1).size(), j["rows"].size());
  EXPECT_FALSE(stored.run(1)->finished.empty());
  const Json again = Json::parse(run("results 1 --format json --db " + db_).out);
  EXPECT_EQ(again["rows"], j["rows"]) << "what was shown is what was kept";
}

// The same run as in `whole`, cut short after its first row, which had ended so.
void cut_short(const Results& whole, const std::string& file, const char* status) {
  Results half(file, Results::Access::write);
  const auto first = whole.run(1);
  StoredRow row = whole.rows(1).at(0);
  Json changed = Json::parse(row.row);
  changed["status"] = status, changed["why"] = "O is off";
  row.row = changed.dump();
  half.add_row(half.start_run(first->command, first->settings, first->machine), row);
}

TEST_F(Program, ResumeMeasuresWhatFailedAgainAndNothingElse) {
  const std::string sweep = tiny + "--variant flash --format json --db ";
  ASSERT_EQ(run(sweep + db_).code, 0);
  const Results whole(db_, Results::Access::read);
  for (const std::string status : {"failed", "oom"}) {
    const std::string cut = (folder_ / (status + ".db")).string();
    cut_short(whole, cut, status.c_str());
    const Ended e = run(sweep + cut + " --resume");
    EXPECT_EQ(e.code, 0) << e.err;
    const Json rows = Json::parse(e.out)["rows"];
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0]["status"], status == "failed" ? "ok" : "oom");
    EXPECT_EQ(rows[1]["status"], "ok");
    EXPECT_EQ(Results(cut, Results::Access::read).rows(1).size(), 2u) << "no row is there twice";
  }
}

TEST_F(Program, ARunsSettingsAreAnObject) {
  ASSERT_EQ(run(tiny + "--variant flash --format json --db " + db_).code, 0);
  const Json settings = Json::parse(run("results 1 --format json --db " + db_).out)["settings"];
  EXPECT_EQ(settings["len"], "16,32") << settings;
  EXPECT_EQ(settings["batch"], 1);
}

TEST_F(Program, UntilGoesOnPastTheUsualStepsAndSaysWhatEndedIt) {
  const std::string sweep =
      "attention --variant flash --batch 1 --dim 16 --len 16 --warmup 0 --format json --db " + db_ + " --until 0.0001%";
  const char* seconds = thread_sanitizer ? " --seconds 3" : " --seconds 0.3";
  const Json row = Json::parse(run(sweep + seconds).out)["rows"][0];
  EXPECT_EQ(row["status"], "ok");
  EXPECT_GT(row["steps"], 100);
  EXPECT_NE(row["why"].get<std::string>().find("forward was ended by --seconds after"), std::string::npos) << row["why"];
  EXPECT_EQ(Json::parse(run(sweep + " --steps 20").out)["rows"][0]["steps"], 20);
}

TEST_F(Program, OneLengthThatNoMemoryHoldsDoesNotEndTheSweep) {
  const Ended e = run("attention --variant flash --batch 1 --dim 64 --len 64,1073741824 --steps 2 --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json rows = Json::parse(e.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["status"], "ok");
  EXPECT_EQ(rows[1]["status"], "oom");
}

TEST_F(Program, OutTakesTheAnswerAndStandardOutputStaysEmpty) {
  const std::string file = (folder_ / "rows.csv").string();
  const Ended e = run(tiny + "--format csv --out " + file + " --db " + db_);
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.out.empty());
  EXPECT_EQ(text_of(file).substr(0, 21), "variant,device,dtype,");
}

TEST_F(Program, CompareExitsThreeWhereSlower) {
  const auto write = [&](const char* name, double ms) {
    std::ofstream(folder_ / name) << Json{{"rows", {{{"variant", "flash"}, {"fwd_ms", ms}, {"fwd_ms_std", 0.001}, {"steps", 10}}}}};
    return (folder_ / name).string();
  };
  const std::string fast = write("fast.json", 1), slow = write("slow.json", 2);
  EXPECT_EQ(run("compare " + fast + " " + slow).code, 3);
  EXPECT_EQ(run("compare " + slow + " " + fast).code, 0);
  EXPECT_EQ(run("compare " + fast + " " + fast).code, 0);
}

TEST_F(Program, ADamagedRowIsNamedAndNoTraceOfALibraryIsShown) {
  {
    Results store(db_, Results::Access::write);
    for (const char* row : {"{\"variant\": \"fla", "[1, 2]", "{\"status\": 5}"})
      store.add_row(store.start_run("attention", "{}", "m"), {"k", row, "{}"});
  }
  for (const std::string run : {"1", "2", "3"}) {
    refused(fmt::format("results {} --db {}", run, db_), 1, fmt::format("row 1 of '{}' is damaged", db_));
    refused(fmt::format("compare {0} {0} --db {1}", run, db_), 1, fmt::format("row 1 of '{}' is damaged", db_));
  }
  const std::string file = (folder_ / "rows.json").string();
  std::ofstream(file) << R"([{"status": 5}])";
  refused("compare " + file + " " + file, 2, "row 1 of '" + file + "' is damaged");
}

TEST_F(Program, AFullDiskIsCalledByItsName) {
  const std::string err = (folder_ / "err").string();
  const int status = std::system((std::string(HEADROOM_BINARY_DIR) + "/headroom precision formats > /dev/full 2> " + err).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(text_of(err).find("No space left on device"), std::string::npos) << text_of(err);
}

TEST_F(Program, ADamagedStoreIsReportedAndLeftByteForByte) {
  std::ofstream(db_) << std::string(5000, 'x');
  const std::string before = text_of(db_);
  refused(tiny + "--db " + db_, 1, "damaged");
  EXPECT_EQ(text_of(db_), before);
}

TEST_F(Program, ASweepThatWasKilledGoesOnWithoutLosingOrDoublingARow) {
  const std::vector<std::string> words = {"attention",
                                          "--batch",
                                          "1",
                                          "--dim",
                                          "16,32",
                                          "--len",
                                          "16,32,64,96,128,160",
                                          "--steps",
                                          "40",
                                          "--db",
                                          db_,
                                          "--format",
                                          "json",
                                          "--out",
                                          (folder_ / "sweep.json").string()};
  const auto rows_there = [&]() -> std::size_t {
    if (!fs::exists(db_) || fs::file_size(db_) == 0) return 0;
    try {
      return Results(db_, Results::Access::read).rows(1).size();
    } catch (const std::exception&) {
      return 0;  // the tables are being made, or a row is being written
    }
  };
  const pid_t first = start(words);
  while (rows_there() < 3 && waitpid(first, nullptr, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  std::vector<StoredRow> before;
  {
    const Results r(db_, Results::Access::write);  // rolls back what was half written
    before = r.rows(1);
    ASSERT_TRUE(r.run(1)->finished.empty()) << "the kill came too late to test anything";
  }
  ASSERT_GE(before.size(), 3u);
  ASSERT_LT(before.size(), 24u);

  int status = 0;
  auto resumed = words;
  resumed.push_back("--resume");
  const pid_t second = start(resumed);
  waitpid(second, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const Results r(db_, Results::Access::read);
  ASSERT_EQ(r.runs().size(), 1u) << "it is the same run";
  const auto after = r.rows(1);
  ASSERT_EQ(after.size(), 24u);
  std::set<std::string> keys;
  for (const StoredRow& row : after) keys.insert(row.key);
  EXPECT_EQ(keys.size(), 24u);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i].row, before[i].row) << "measured once";
  EXPECT_EQ(Json::parse(text_of(folder_ / "sweep.json"))["rows"].size(), 24u);
}

TEST_F(Program, CtrlCKeepsAndPrintsWhatIsFinished) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string file = (folder_ / "part.json").string();
    execl((std::string(HEADROOM_BINARY_DIR) + "/headroom").c_str(), "headroom", "attention", "--batch", "1", "--dim", "16", "--len",
          "16,32,64,512", "--steps", "1000000", "--warmup", "0", "--seconds", "0.5", "--db", db_.c_str(), "--format", "json", "--out",
          file.c_str(), nullptr);
    _exit(127);
  }
  const auto rows_there = [&]() -> std::size_t {
    try {
      return Results(db_, Results::Access::read).rows(1).size();
    } catch (const std::exception&) { return 0; }
  };
  int status = 0;
  while (rows_there() < 1 && waitpid(child, &status, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGINT);
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "it ended by itself";
  const auto rows = Json::parse(text_of(folder_ / "part.json"))["rows"];
  EXPECT_GE(rows.size(), 1u);
  EXPECT_EQ(rows.size(), Results(db_, Results::Access::read).rows(1).size());
  EXPECT_EQ(WEXITSTATUS(status), rows.size() == 8 ? 0 : 1);
}

}  // namespace
}  // namespace headroom
