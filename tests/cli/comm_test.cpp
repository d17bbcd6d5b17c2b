// Ranks as the program starts them: one table, one voice, and an end that reaches every rank.
#include <signal.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/threads.h"
#include "tests/cli/program.h"
#include "tests/sanitizers.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

// Two busy cores: the others end 5 to 7 s after a rank was killed, 1.6 s without the sanitizer; what is in hand takes 72 s.
constexpr int slower = thread_sanitizer ? 6 : 1;
constexpr std::chrono::seconds soon(10 * slower);  // an end has reached every rank

class Comm : public Program {
 protected:
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> out;
    for (const auto& e : fs::directory_iterator("/proc")) {
      const std::string name = e.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string stat = text_of(e.path() / "stat");
      const auto close = stat.rfind(')');  // the name before it may hold anything
      int of = 0;
      if (close != std::string::npos && std::sscanf(stat.c_str() + close, ") %*c %d", &of) == 1 && of == parent)
        out.push_back(std::stoi(name));
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static bool lives(pid_t pid) {
    const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
    const auto close = stat.rfind(')');
    return close != std::string::npos && stat[close + 2] != 'Z';
  }
  static std::vector<pid_t> wait_for_children(pid_t parent, std::size_t count) {
    for (int k = 0; k < 1000; ++k) {
      const auto c = children_of(parent);
      if (c.size() == count) return c;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }
  void wait_for_rows(const std::string& db) const {  // it measures
    for (int k = 0; k < 1000; ++k) {
      if (fs::exists(db) && fs::file_size(db) > 0 && run("results --db " + db + " --format json").out.find("\"comm\"") != std::string::npos)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  pid_t start_into(const std::string& arguments, const std::string& err) const {  // a program alone, its error output in a file
    const pid_t child = fork();
    if (child == 0) {
      const std::string words = "exec " + std::string(HEADROOM_BINARY_DIR) + "/headroom " + arguments + " > /dev/null 2> " + err;
      execl("/bin/sh", "sh", "-c", words.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
  // Every call of every size once, all of them right.
  void expect_rows(const Json& rows, int ranks, const std::string& backend, std::size_t count) const {
    ASSERT_EQ(rows.size(), count);
    for (const auto& row : rows) {
      EXPECT_EQ(row["status"], "ok") << row;
      EXPECT_EQ(row["ranks"], ranks);
      EXPECT_EQ(row["backend"], backend);
      EXPECT_GT(row["time_ms"].get<double>(), 0);
      EXPECT_GT(row["bus_bytes_per_s"].get<double>(), 0);
    }
  }
};

TEST_F(Comm, SizesFarFromWhatWasAskedAreSaid) {
  const Ended e = run("comm --device cpu --ranks 2 --bytes 1000,1mb --call gather --steps 1 --warmup 0 --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  std::string said = e.out;
  std::replace(said.begin(), said.end(), '\n', ' ');
  EXPECT_NE(said.find("A size is a multiple of 256 bytes for each rank, so 1000 B between 2 ranks is 512 B."), std::string::npos) << e.out;
}

TEST_F(Comm, TheUsualSizesOfCoresEndInSeconds) {
  const Ended e = run("comm --device cpu --ranks 2 --call broadcast --steps 1 --warmup 0 --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json rows = Json::parse(e.out)["comm"];
  std::vector<std::int64_t> bytes;
  for (const Json& row : rows) bytes.push_back(row["bytes"]);
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{999'936, 9'999'872, 99'999'744}));  // 1, 10 and 100 MB in multiples of 512
}
TEST_F(Comm, MoreRanksThanDescriptorsAreSaidInOneLine) {
  const Ended e = shell("ulimit -n 32; $H comm --device cpu --ranks 40 --bytes 1KB --steps 1 --warmup 0 --db " + db_);
  EXPECT_EQ(e.code, 1) << e.err;
  EXPECT_NE(e.err.find("cannot be started: Too many open files; take fewer ranks, or raise ulimit -n\n"), std::string::npos) << e.err;
  EXPECT_EQ(e.err.find("HEADROOM_FD"), std::string::npos) << e.err;
}

TEST_F(Comm, StartsTheOtherRanksAndPrintsOneTable) {
  const Ended e = run("comm --device cpu --ranks 3 --bytes 64KiB,1MiB --steps 3 --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  expect_rows(Json::parse(e.out)["comm"], 3, "shared", 8);
  EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << e.err;  // which run it is
  const Ended kept = run("results 1 --format json --db " + db_);
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_NE(kept.out.find("all-reduce"), std::string::npos);
}

TEST_F(Comm, SeveralNumbersOfRanksAreOneRun) {
  const Ended e = run("comm --device cpu --counts 2,3 --bytes 64KiB --steps 2 --call exchange --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json rows = Json::parse(e.out)["comm"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["ranks"], 2);
  EXPECT_EQ(rows[1]["ranks"], 3);
}

TEST_F(Comm, AKilledRankEndsTheOthersWithOneSentence) {
  for (const std::size_t which : {0, 1}) {
    const std::string err = (folder_ / "killed").string(), db = db_ + std::to_string(which);
    const pid_t parent = start_into("comm --device cpu --ranks 3 --bytes 10MB --steps 1000000 --db " + db, err);
    const auto children = wait_for_children(parent, 2);
    ASSERT_EQ(children.size(), 2u);
    wait_for_rows(db);
    const auto start = Clock::now();
    kill(children[which], SIGKILL);
    const int status = ended_within(parent, soon + std::chrono::seconds(2));
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_LT(Clock::now() - start, soon);
    while (slower > 1 && std::any_of(children.begin(), children.end(), lives) &&
           Clock::now() - start < soon)  // its exit takes seconds there
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const pid_t c : children) EXPECT_FALSE(lives(c));
    const std::string said = text_of(err);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_NE(said.find(": rank " + std::to_string(which + 1) + " ended: killed by signal 9 (Killed)\n"), std::string::npos) << said;
  }
}

TEST_F(Comm, WhereTheFirstRankIsKilledTheOthersEndAndTheNextSaysIt) {
  const std::string err = (folder_ / "killed").string();
  const pid_t parent = start_into("comm --device cpu --ranks 3 --bytes 10MB --steps 1000000 --db " + db_, err);
  const auto children = wait_for_children(parent, 2);
  ASSERT_EQ(children.size(), 2u);
  wait_for_rows(db_);
  kill(parent, SIGKILL);
  ended_within(parent, std::chrono::seconds(1));
  const auto start = Clock::now();
  const auto any = [&] { return std::any_of(children.begin(), children.end(), lives); };
  while (any() && Clock::now() - start < soon) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(any());
  const std::string said = text_of(err);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("rank 0 ended: its process is gone without a word"), std::string::npos) << said;
}

TEST_F(Comm, ASignalToAnyRankStopsAllAfterWhatTheyHaveInHand) {
  for (const bool to_parent : {true, false}) {
    const std::string err = (folder_ / "stopped").string(), db = db_ + (to_parent ? "p" : "c");
    const pid_t parent = start_into("comm --device cpu --ranks 2 --bytes 64KiB --steps 10000 --db " + db, err);
    const auto children = wait_for_children(parent, 1);
    ASSERT_EQ(children.size(), 1u);
    wait_for_rows(db);
    kill(to_parent ? parent : children[0], SIGTERM);
    const int status = ended_within(parent, std::chrono::seconds(60 * slower));
    ASSERT_TRUE(WIFEXITED(status)) << text_of(err);
    EXPECT_EQ(WEXITSTATUS(status), 1) << text_of(err);
    EXPECT_FALSE(lives(children[0]));
  }
}

TEST_F(Comm, RanksStartedByHandMeetAtAPort) {
  const std::string port = std::to_string(21000 + getpid() % 9000);
  const std::string words = "comm --device cpu --ranks 2 --bytes 64KiB --steps 2 --call gather --rendezvous localhost:" + port;
  const pid_t other = start_into(words + " --rank 1", (folder_ / "other").string());
  const Ended e = run(words + " --rank 0 --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  expect_rows(Json::parse(e.out)["comm"], 2, "shared", 1);
  const int status = ended_within(other, soon);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(text_of(folder_ / "other"), "");  // the first rank speaks
}

TEST_F(Comm, RanksGivenDifferentSettingsAreRefused) {
  const std::string port = std::to_string(31000 + getpid() % 9000);
  const std::string words = "comm --device cpu --ranks 2 --call gather --rendezvous localhost:" + port;
  const pid_t other = start_into(words + " --rank 1 --bytes 1MiB", (folder_ / "other").string());
  const Ended e = run(words + " --rank 0 --bytes 2MiB --db " + db_);
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.err, "headroom comm: rank 1 was given other settings than rank 0: --bytes is 1MiB there, and 2MiB on rank 0\n");
  const int status = ended_within(other, soon);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2);
  EXPECT_EQ(text_of(folder_ / "other"), "");
  EXPECT_FALSE(fs::exists(db_));
}

TEST_F(Comm, TorchrunsVariablesAreUnderstood) {
  const std::string port = std::to_string(41000 + getpid() % 9000);
  const auto rank = [&](int r) {
    setenv("RANK", std::to_string(r).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
  };
  setenv("WORLD_SIZE", "2", 1), setenv("MASTER_ADDR", "localhost", 1), setenv("MASTER_PORT", port.c_str(), 1);
  rank(1);
  const pid_t other = start_into("comm --device cpu --bytes 64KiB --steps 2 --call broadcast", (folder_ / "other").string());
  rank(0);
  const Ended e = run("comm --device cpu --bytes 64KiB --steps 2 --call broadcast --format json --db " + db_);
  for (const char* v : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(v);
  ASSERT_EQ(e.code, 0) << e.err;
  expect_rows(Json::parse(e.out)["comm"], 2, "shared", 1);
  EXPECT_EQ(ended_within(other, soon), 0);
}

TEST_F(Comm, UnderMpirunRanksTalkOverSharedMemoryOrMpi) {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun here";
  for (const std::string backend : {"shared", "mpi"}) {
    if (backend == "mpi" && !fs::exists(std::string(HEADROOM_BINARY_DIR) + "/libheadroom_mpi.so"))
      GTEST_SKIP() << "MPI was not found by the build";
    const std::string out = (folder_ / "mpi").string(), err = (folder_ / "mpi_err").string();
    const std::string words = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 3 " +
                              std::string(HEADROOM_BINARY_DIR) + "/headroom comm --device cpu --backend " + backend +
                              " --bytes 64KiB,3MB --steps 3 --format json --db " + db_ + " > " + out + " 2> " + err;
    ASSERT_EQ(std::system(words.c_str()), 0) << text_of(err);
    expect_rows(Json::parse(text_of(out))["comm"], 3, backend, 8);
  }
}

// Train and step: whichever rank is killed, whenever, the run ends with code 1 and one line, and leaves whole checkpoints alone.
TEST_F(Comm, AKilledRankEndsTrainAndStep) {
  keep_ceilings();
  put("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  const std::string model =
      " --device cpu --ranks 3 --threads 1 --width 48 --layers 2 --heads 2 --len 32 --batch 1 --steps 1000000 --db " + db_;
  const std::string text = " --text " + at("text.txt") + model, vocab = " --vocab 100" + model;
  const auto checkpoints = [&] {
    std::size_t n = 0;
    if (fs::exists(at("run")))
      for (const auto& file : fs::directory_iterator(at("run"))) n += file.path().extension() == ".safetensors";
    return n;
  };
  struct Killed {
    std::string command;
    int rank;
    bool saves = false;
  };
  const Killed all[] = {
      {"train --shard everything --every 3 --save " + at("run") + text, 1, true},
      {"train --shard everything --every 3 --resume --save " + at("run") + text, 2, true},
      {"train --shard everything --every 3 --resume --save " + at("run") + text, 0, true},
      {"train --shard none --micro-batches 2" + text, 1},
      {"step --shard optimizer --phase train" + vocab, 2},
      {"step --shard everything --phase forward" + vocab, 0},
  };
  // A little later each time. Under the sanitizer ranks meet later. One that loses rank 0 before is quiet: rank 0 may have said why.
  int milliseconds = thread_sanitizer ? 2000 : 20;
  for (const auto& [command, rank, saves] : all) {
    SCOPED_TRACE(command + fmt::format(", rank {} killed", rank));
    const pid_t parent = start_into(command, at("killed"));
    const auto children = wait_for_children(parent, 2);
    ASSERT_EQ(children.size(), 2u);
    for (int k = 0; saves && checkpoints() == 0 && k < 3000; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds += 37));
    const auto start = Clock::now();
    kill(rank == 0 ? parent : children[std::size_t(rank) - 1], SIGKILL);
    const int status = ended_within(parent, soon + std::chrono::seconds(2));
    const auto any = [&] { return std::any_of(children.begin(), children.end(), lives); };
    while (any() && Clock::now() - start < soon) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(any());
    if (rank > 0) {
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 1);
    }
    const std::string said = text_of(at("killed"));
    std::stringstream lines(said);
    int others = 0;  // beside how far a training has come, and what it continues
    for (std::string line; std::getline(lines, line);)
      others += line.starts_with("headroom train: step ") || line.starts_with("headroom train: continuing from ") ? 0 : 1;
    EXPECT_EQ(others, 1) << said;
    EXPECT_NE(said.find(fmt::format("rank {} ended: ", rank)), std::string::npos) << said;
  }
  const Ended e = run("train --steps 0 --validate 1 --init " + at("run") + " --text " + at("text.txt") + " --len 32 --batch 1 --db " + db_);
  EXPECT_EQ(e.code, 0) << "the newest checkpoint is whole: " << e.err;
}

TEST_F(Comm, UnderMpirunATrainingHasTheDigitsOfOneRank) {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun here";
  put("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  const std::string command =
      "train --device cpu --threads 1 --shard optimizer --width 40 --layers 1 --heads 2 --len 24 --batch 1 --steps 4 --text " +
      at("text.txt") + " --format json --db " + db_;
  const auto rows = [](const std::string& text) {
    Json all = Json::parse(text, nullptr, false)["rows"];
    for (auto& row : all) row.erase("tokens_per_s");
    return all;
  };
  std::string alone = command;
  alone.replace(alone.find("--shard optimizer"), 17, "--micro-batches 3");
  const Ended one = run(alone);
  ASSERT_EQ(one.code, 0) << one.err;
  const std::string words = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 3 " +
                            std::string(HEADROOM_BINARY_DIR) + "/headroom " + command + " > " + at("mpi") + " 2> " + at("mpi_err");
  ASSERT_EQ(std::system(words.c_str()), 0) << text_of(at("mpi_err"));
  EXPECT_EQ(rows(text_of(at("mpi"))), rows(one.out));
}

TEST_F(Comm, AStepOnRanksHoldsWhatWasForecastAndCountsTheTokensOfAll) {
  keep_ceilings();
  for (const std::string shard : {"none", "everything"}) {
    const Ended e = run("step --device cpu --ranks 2 --shard " + shard +
                        " --width 64 --layers 2 --heads 2 --vocab 100 --len 32 --batch 2 --steps 3 --warmup 1 --format json --db " + db_);
    ASSERT_EQ(e.code, 0) << e.err;
    const Json rows = Json::parse(e.out)["rows"];
    ASSERT_EQ(rows.size(), 3u);
    for (const auto& row : rows) {
      EXPECT_EQ(row["status"], "ok") << row;
      EXPECT_EQ(row["ranks"], 2);
      EXPECT_EQ(row["shard"], shard);
      EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]);
      EXPECT_NEAR(row["tokens_per_s"].get<double>(), 2 * 2 * 32 * 1e3 / row["ms"].get<double>(), 1e-3 * row["tokens_per_s"].get<double>());
    }
    EXPECT_GT(rows[2]["link_bytes"].get<double>(), 0);
  }
}

TEST_F(Comm, TheMfuOfARankIsOfItsShareOfTheCores) {
  keep_ceilings(1e15);
  const Ended e =
      run("step --device cpu --ranks 2 --width 64 --layers 2 --heads 2 --vocab 100 --len 32 --phase forward --steps 1 --format json --db " +
          db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out), row = j["rows"][0];
  EXPECT_DOUBLE_EQ(j["matmul_ceiling_tflops"], 500);
  EXPECT_NEAR(row["mfu"].get<double>() * 500, row["model_tflops"].get<double>(), 1e-9);
}

TEST_F(Comm, RanksKeepWhatTheFirstOneFinds) {
  keep_ceilings();
  const std::string step =
      "step --device cpu --ranks 2 --threads 1 --width 64 --layers 4 --heads 2 --vocab 100 --len 32 --batch 2 --phase train"
      " --steps 1 --warmup 0 --format json --db " +
      db_;
  const auto row_of = [&](const std::string& options) {
    const Ended e = run(step + options);
    EXPECT_EQ(e.code, 0) << e.err;
    return Json::parse(e.out)["rows"][0];
  };
  const double most = row_of(" --keep everything")["peak_bytes"], least = row_of(" --keep input")["peak_bytes"];
  const Json row = row_of(fmt::format(" --keep auto --memory {}B", std::int64_t((most + least) / 2)));
  EXPECT_EQ(row["status"], "ok") << row;
  EXPECT_NE(row["kept"], "everything");
  EXPECT_LE(row["peak_bytes"], (most + least) / 2);
  EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]);
}

TEST_F(Comm, ManyMoreRanksThanCoresAreMentioned) {
  const int cores = available_cores();
  if (cores > 16) GTEST_SKIP() << "it would take " << 4 * cores + 1 << " ranks";
  const auto said = [&](int ranks) {
    return run(fmt::format("comm --device cpu --ranks {} --bytes 64KiB --call gather --steps 1 --warmup 0 --db {}", ranks, db_)).err;
  };
  EXPECT_NE(said(4 * cores + 1).find(fmt::format("headroom comm: {} ranks share {} core", 4 * cores + 1, cores)), std::string::npos);
  EXPECT_EQ(said(2).find("share"), std::string::npos);
}

TEST_F(Comm, TheBestExchangeIsTheLinkThatAStepIsForecastWith) {
  keep_ceilings();
  const std::string step =
      "step --device cpu --ranks 2 --phase train --width 64 --layers 2 --heads 2 --vocab 100 --len 32 --batch 2 --steps 2 "
      "--format json --db " +
      db_;
  const Json before = Json::parse(run(step).out)["rows"][0];
  EXPECT_TRUE(before["link_ms"].is_null()) << "nobody has measured it";
  const Ended timed = run("comm --device cpu --ranks 2 --bytes 64KiB,1MiB --call exchange,gather --steps 3 --format json --db " + db_);
  double best = 0;
  const Json rows = Json::parse(timed.out)["comm"];
  for (const Json& row : rows)
    if (row["call"] == "exchange") best = std::max(best, row["bus_bytes_per_s"].get<double>());
  const Json row = Json::parse(run(step).out)["rows"][0];
  EXPECT_NEAR(row["link_ms"].get<double>(), 1e3 * row["link_bytes"].get<double>() / best, 0.01 * row["link_ms"].get<double>());
  EXPECT_LE(row["exposed_ms"], row["link_ms"]);
}

TEST_F(Comm, RanksThatSplitTokensTakeWhatWasForecastAndLearnTheSame) {
  keep_ceilings();
  const std::string model = " --width 64 --layers 2 --heads 2 --len 48 --batch 1 --threads 1 --format json --db " + db_;
  const Ended e = run("step --device cpu --ranks 3 --split-tokens --shard gradients --vocab 100 --steps 2 --warmup 1" + model);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json rows = Json::parse(e.out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["status"], "ok") << row;
    EXPECT_EQ(row["split_tokens"], true);
    EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]);
    EXPECT_NEAR(row["tokens_per_s"].get<double>(), 48 * 1e3 / row["ms"].get<double>(), 1e-3 * row["tokens_per_s"].get<double>());
  }
  std::string text;
  for (int i = 0; i < 6000; ++i) text += char('a' + i * i % 23);
  put("text.txt", text);
  const std::string train = "train --device cpu --steps 6 --validate 4 --sample 3 --text " + at("text.txt") + model;
  const Ended one = run(train), three = run(train + " --ranks 3 --split-tokens --shard everything");
  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(three.code, 0) << three.err;
  const Json a = Json::parse(one.out), b = Json::parse(three.out);
  EXPECT_NEAR(b["validation_loss"].get<double>(), a["validation_loss"].get<double>(), 1e-5);
  EXPECT_EQ(b["sample"], a["sample"]);
  ASSERT_EQ(b["rows"].size(), a["rows"].size());
  for (std::size_t i = 0; i < a["rows"].size(); ++i)
    EXPECT_NEAR(b["rows"][i]["loss"].get<double>(), a["rows"][i]["loss"].get<double>(), 1e-5);
  EXPECT_EQ(b["peak_bytes"], b["forecast_peak_bytes"]);
}

TEST_F(Comm, AProfileOfRanksHasTheLanesOfEach) {
  keep_ceilings();
  const Ended e =
      run("profile step --device cpu --ranks 2 --shard optimizer --width 64 --layers 2 --heads 2 --vocab 100 --len 32 --batch 1 "
          "--steps 2 --warmup 1 --phase train --trace " +
          at("trace.json") + " --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  ASSERT_EQ(j["ranks"].size(), 2u);
  for (int rank : {0, 1}) {
    const Json& row = j["ranks"][std::size_t(rank)];
    EXPECT_EQ(row["rank"], rank);
    EXPECT_GT(row["exposed_ms"], 0.0) << "on a CPU nothing runs beside";
    EXPECT_LE(row["work_ms"].get<double>() + row["exposed_ms"].get<double>(), row["step_ms"].get<double>() * 1.0001);
    EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]);
    const auto of = [&](const char* what) {
      return std::count_if(j["lanes"].begin(), j["lanes"].end(), [&](const Json& l) { return l["rank"] == rank && l["what"] == what; });
    };
    EXPECT_GE(of("gradients"), 4) << "of every group";
    EXPECT_EQ(of("gradients"), of("updated weights"));
    EXPECT_EQ(of("norms"), 1);
    EXPECT_EQ(of("losses"), 1);
    EXPECT_GE(of("work"), 4);
  }
  EXPECT_EQ(j["ranks"][0]["link_bytes"], j["ranks"][1]["link_bytes"]);
  const std::string trace = text_of(at("trace.json"));
  EXPECT_NE(trace.find("train, rank 1"), std::string::npos);
  EXPECT_NE(trace.find("updated weights"), std::string::npos);
  refused("profile step --shard optimizer", 2, "--shard: there is one rank; give --gpus or --ranks");
}

TEST_F(Comm, WhatCannotBeMeantIsRefusedInALine) {
  refused("comm --device cpu", 2, "a collective takes at least 2 ranks: give --gpus N or --ranks N, or --counts 2,3,4");
  refused("comm --device cpu --ranks 2 --bytes 1KiB --route kernels --db " + db_, 2, "--route kernels: routes are of GPUs");
  EXPECT_FALSE(fs::exists(db_));
  refused("comm --device cpu --rank 1 --ranks 2", 2, "--rank 1: where do the ranks meet? Give --rendezvous HOST:PORT");
  refused("comm --device cpu --gpus 2 --ranks 3", 2, "--gpus 2 and --ranks 3: a GPU has one rank; give one of them");
  if (!fs::exists("/dev/nvidiactl"))
    refused("comm --gpus 2", 1, "--gpus 2: there is no GPU here; --device cpu --ranks 2 takes processes on the CPU");
  refused("comm --device cpu --ranks 2 --counts 2,3", 2, "--counts takes the place of --ranks; give one of them");
  refused("comm --device cpu --ranks 2 --rendezvous localhost:99999", 2,
          "--rendezvous localhost:99999: which rank is this? Give --rank too");
  refused("comm --device cpu --ranks 2 --rank 0 --rendezvous localhost:99999", 2, "--rendezvous: the port");
  refused("step --device cpu --shard optimizer", 2, "--shard: there is one rank; give --gpus or --ranks");
  refused("step --device cpu --ranks 2 --seconds 1 --db " + db_, 2,
          "--seconds 1: ranks take the same number of steps, and each has a clock of its own; give --steps");
  refused("step --device cpu --split-tokens", 2, "--split-tokens: there is one rank; give --gpus or --ranks");
  refused("step --device cpu --ranks 3 --split-tokens --len 32 --db " + db_, 2, "make it a multiple of 6, 30 for one");
  refused("comm --device cpu --ranks 2 --backend nccl --bytes 1MB --db " + db_, 1, "the ranks cannot be joined: nccl: it joins GPUs");
}

}  // namespace
}  // namespace headroom
