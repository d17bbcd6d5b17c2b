// Who am I: what the launchers' variables mean, and the traps in them.
#include "dist/ranks.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace headroom::dist {
namespace {

using Variables = std::map<std::string, std::string>;

Seat seat(const Variables& variables, const RanksAsked& asked = {}) {
  return find_seat(asked, [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal(const Variables& variables, const RanksAsked& asked = {}) {
  try {
    seat(variables, asked);
  } catch (const Error& e) { return e.what(); }
  return "";
}

const Variables torchrun = {{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", "1325662209"},
                            {"PMIX_RANK", "2"}};
const Variables mpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}};
const Variables slurm = {
    {"SLURM_JOB_ID", "123456"}, {"SLURM_PROCID", "5"},         {"SLURM_LOCALID", "1"},        {"SLURM_NTASKS", "8"},
    {"SLURM_STEP_ID", "0"},     {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "gpu[017-018]"}};

Variables with(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(Seat, AloneOrWithOthersToStart) {
  EXPECT_EQ(seat({}).ranks, 1);
  EXPECT_FALSE(seat({}).start_others);
  const Seat two = seat({}, {-1, 2});
  EXPECT_EQ(two.rank, 0);
  EXPECT_EQ(two.ranks, 2);
  EXPECT_TRUE(two.start_others);
  EXPECT_FALSE(seat({}, {-1, 1}).start_others);
}

TEST(Seat, EachLauncherIsUnderstood) {
  const Seat t = seat(torchrun);
  EXPECT_EQ(t.rank, 1);
  EXPECT_EQ(t.ranks, 4);
  EXPECT_EQ(t.launcher, "torchrun");
  EXPECT_EQ(t.address.text(), "node1:29501");  // its agent has 29500
  EXPECT_EQ(t.address.ports, 16);
  const Seat o = seat(open_mpi);
  EXPECT_EQ(o.rank, 2);
  EXPECT_EQ(o.ranks, 3);
  EXPECT_EQ(o.address.text(), "local:ompi-1325662209");
  const Seat m = seat(mpich);
  EXPECT_EQ(m.ranks, 2);
  EXPECT_EQ(m.launcher, "PMI");
  EXPECT_TRUE(m.address.local);
  const Seat s = seat(slurm);
  EXPECT_EQ(s.rank, 5);
  EXPECT_EQ(s.ranks, 8);
  EXPECT_EQ(s.address.text(), "gpu017:23456");
  EXPECT_FALSE(s.start_others);
}

TEST(Seat, ALauncherNamesItsJobAndRanksOfOneMachineNeedNoPort) {
  Variables t = torchrun;
  t["TORCHELASTIC_RUN_ID"] = "night", t["TORCHELASTIC_RESTART_COUNT"] = "2", t["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(seat(t).address.text(), "node1:29501");
  EXPECT_EQ(seat(t).job, "night 2");
  t["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(seat(t).address.text(), "local:torchrun-29500-2-night");
  EXPECT_EQ(seat(slurm).job, "SLURM 123456.0");
}

TEST(Seat, AnAddressOfEveryMachineListensOnThisOne) {
  Variables t = torchrun;
  for (const char* everywhere : {"0.0.0.0", "::"}) {
    t["MASTER_ADDR"] = everywhere;
    EXPECT_EQ(seat(t).address.text(), "localhost:29501");
    t["LOCAL_WORLD_SIZE"] = "2";
    EXPECT_NE(refusal(t).find("is no machine that ranks elsewhere can find"), std::string::npos) << refusal(t);
    t.erase("LOCAL_WORLD_SIZE");
  }
}

TEST(Seat, OfSeveralThatSpeakTheFirstInOrderIsHeard) {
  EXPECT_EQ(seat(with(with(torchrun, open_mpi), slurm)).launcher, "torchrun");
  EXPECT_EQ(seat(with(with(open_mpi, mpich), slurm)).launcher, "Open MPI");
  EXPECT_EQ(seat(with(mpich, slurm)).launcher, "PMI");
  const Seat by_hand = seat(with(torchrun, slurm), {1, 2, "node3:1234"});
  EXPECT_EQ(by_hand.launcher, "--rank");
  EXPECT_EQ(by_hand.ranks, 2);
  EXPECT_EQ(by_hand.address.text(), "node3:1234");
  EXPECT_EQ(seat(torchrun, {-1, 0, "node9:7"}).address.text(), "node9:7");
}

TEST(Seat, ABatchScriptIsNoRank) {  // SLURM sets these in a script of sbatch --ntasks=8, which is one process
  const Variables script = {{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(seat(script).ranks, 1);
  EXPECT_TRUE(seat(script, {-1, 2}).start_others);
  const Variables shell = with({{"SLURM_STEP_NUM_TASKS", "1"}}, slurm);  // srun --pty bash
  EXPECT_EQ(seat(shell).ranks, 1);
  EXPECT_EQ(seat({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, {-1, 3}).ranks, 3);
  EXPECT_EQ(seat({{"RANK", "3"}}).ranks, 1);  // a variable that any program may set
}

TEST(Seat, ARankThatRankZeroStartedKnowsIt) {
  const Seat s = seat({{"HEADROOM_RANK", "1"}, {"HEADROOM_RANKS", "3"}, {"HEADROOM_FD", "7"}}, {-1, 3});
  EXPECT_EQ(s.rank, 1);
  EXPECT_EQ(s.ranks, 3);
  EXPECT_EQ(s.inherited, 7);
  EXPECT_FALSE(s.start_others);
}

TEST(Seat, ContradictionsAreSaid) {
  EXPECT_EQ(refusal(torchrun, {-1, 2, "", "--gpus"}), "--gpus 2: torchrun started 4 ranks; leave --gpus out, or start 2");
  EXPECT_EQ(refusal({}, {1, 0, ""}), "--rank 1: of how many? Give --ranks too");
  EXPECT_EQ(refusal({}, {2, 2, "a:1"}), "--rank 2: there are 2 ranks, counted from 0");
  EXPECT_EQ(refusal({}, {1, 2, ""}), "--rank 1: where do the ranks meet? Give --rendezvous HOST:PORT, a free port on rank 0's machine");
  EXPECT_EQ(refusal({}, {-1, 2, "a:1"}), "--rendezvous a:1: which rank is this? Give --rank too");
  Variables far = open_mpi;
  far["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_TRUE(seat(far).address.host.empty());  // MPI is asked
  far["MASTER_ADDR"] = "node1", far["MASTER_PORT"] = "4000";
  EXPECT_EQ(seat(far).address.text(), "node1:4000");
  for (const char* port : {"0", "65536", "99999"})  // a port beyond the last would be another one, where no rank comes
    EXPECT_EQ(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", port}}),
              fmt::format("MASTER_PORT: '{}' is not a whole number from 1 to 65535", port));
  EXPECT_EQ(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}}),
            "torchrun started 4 ranks and does not say where they meet: give --rendezvous HOST:PORT, a free port on rank 0's machine");
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), "torchrun says that this is rank 4 of 4; ranks are counted from 0");
  EXPECT_NE(refusal({{"RANK", "x"}, {"WORLD_SIZE", "4"}}).find("RANK"), std::string::npos);
}

TEST(Seat, FirstHostOfASlurmList) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("a-1,b"), "a-1");
  EXPECT_EQ(first_host("gpu[017-018,20],x"), "gpu017");
  EXPECT_EQ(first_host("gpu[3]"), "gpu3");
  EXPECT_EQ(first_host("gpu[3,5]"), "gpu3");
  EXPECT_EQ(first_host("a,gpu[3,5]"), "a");
}

}  // namespace
}  // namespace headroom::dist
