// headroom forecast of several processes: on one card, under a launcher, on several hosts.
#include <thread>

#include "studies/forecast/asked.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, PeaksOfProcessesThatShareACardAreThoseOfOne) {
  const Json j = json("--device h100", "batch=1 shares", 0);
  EXPECT_EQ(j["ranks"].size(), 2u);
  EXPECT_EQ(j["peak_reserved_bytes"], 1024 * mib + 64 * mib + 256 * mib);
  EXPECT_EQ(j["peak_allocated_bytes"], 512 * mib) << "of the same process; the other has 900 MiB at once";
  EXPECT_EQ(j["fragmented_bytes"], j["peak_reserved_bytes"].get<std::int64_t>() - 512 * mib);
  EXPECT_GE(j["beside_bytes"].get<std::int64_t>(), 900 * mib);
  EXPECT_NE(run(line("--device h100", "batch=1 shares")).out.find("(the peaks are those of process "), std::string::npos);
}

TEST_F(Forecast, AProcessThatOnlyOpensAnothersMemoryHasAContext) {
  const auto beside = [&](const char* words) { return json("--device h100", words, 0)["beside_bytes"].get<std::int64_t>(); };
  const std::int64_t alone = beside("batch=1");
  EXPECT_EQ(beside("batch=1 opened"), 2 * alone) << "while the other one grows";
  EXPECT_EQ(beside("batch=1 opened-late"), 2 * alone) << "when it has all that it needs";
}

// The card had most when the small process took its part, so only that one's record has the sum.
TEST_F(Forecast, ThePeaksAreThoseOfTheProcessThatReservesMost) {
  const Json j = json("--device h100", "batch=4 shares-late", 0), alone = json("--device h100", "batch=4", 0);
  EXPECT_EQ(j["peak_reserved_bytes"], alone["peak_reserved_bytes"]);
  EXPECT_GT(j["needed_bytes"].get<std::int64_t>(), alone["needed_bytes"].get<std::int64_t>() + 20 * mib) << "and a context";
}

TEST_F(Forecast, AProcessThatRunsOutBesideOneThatWasEndedDoesNotFit) {
  EXPECT_EQ(json("--device rtx4090", "batch=1 neighbour", 3)["status"], "oom");
  EXPECT_EQ(json("--device h200", "batch=1 neighbour", 0)["status"], "ok");
}

// Words that tell a launcher to start two: contexts of ranks have NCCL's buffers, those of processes that only share a card have not.
TEST_F(Forecast, ProcessesOfALauncherThatAreNoRanksHaveSmallContexts) {
  const Json alone = json("--device h100", "shares", 0), launched = json("--device h100", "shares --nproc-per-node 2", 0);
  EXPECT_EQ(launched["needed_bytes"], alone["needed_bytes"]);
  EXPECT_EQ(launched["beside_bytes"], alone["beside_bytes"]);
  const std::string two = "The launcher starts 2 processes, and all use card 0";
  EXPECT_NE(run("forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " shares --nproc-per-node 2").out.find(two),
            std::string::npos);
  EXPECT_EQ(run("forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " shares").out.find(two), std::string::npos);
}

TEST_F(Forecast, OfSeveralHostsOneIsRun) {
  using Words = std::vector<std::string>;
  const auto one =
      studies::one_host_of({"torchrun", "--nnodes=2", "--node-rank", "1", "--nproc-per-node", "8", "--master-addr", "far", "train.py"});
  EXPECT_EQ(one.hosts, 2);
  EXPECT_EQ(one.program,
            (Words{"torchrun", "--nnodes=1", "--node-rank", "0", "--nproc-per-node", "8", "--master-addr", "localhost", "train.py"}));
  const auto elastic =
      studies::one_host_of({"torchrun", "--nnodes", "1:4", "--rdzv-backend", "c10d", "--rdzv-endpoint=far:29400", "train.py"});
  EXPECT_EQ(elastic.hosts, 4);
  EXPECT_EQ(elastic.program, (Words{"torchrun", "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint=localhost:0", "train.py"}));
  for (const Words& same : {Words{"torchrun", "--nnodes", "1", "--node-rank", "0", "t.py"}, Words{"python3", "t.py", "--nnodes", "many"}}) {
    EXPECT_EQ(studies::one_host_of(same).hosts, 1);
    EXPECT_EQ(studies::one_host_of(same).program, same);
  }
}

TEST_F(Forecast, TwoSideBySideDoNotMeet) {
  const auto go = [&](int batch) {
    const std::string out = at("both" + std::to_string(batch));
    return std::system((std::string(HEADROOM_BINARY_DIR) + "/headroom forecast --format json --device h100 --db " +
                        at("db" + std::to_string(batch)) + " -- " HEADROOM_LIKE_TORCH " batch=" + std::to_string(batch) + " > " + out +
                        " 2> /dev/null")
                           .c_str());
  };
  std::thread other([&] { go(4); });
  go(8);
  other.join();
  EXPECT_EQ(Json::parse(text_of(at("both4")))["peak_allocated_bytes"], 64 * mib + 4 * 256 * mib);
  EXPECT_EQ(Json::parse(text_of(at("both8")))["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib);
}

}  // namespace
}  // namespace headroom
#endif
