// `headroom bench` as a user meets it, with peers that are a script of this test's: cells, ratios, losses, one page of several cards.
#include <chrono>
#include <thread>

#include "studies/bench/bench.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class Bench : public Program {
 protected:
  // A Python with torch in the eyes of bench. What it does with --cells is `then`, with the file's name in $cells.
  void put_python(const std::string& then) {
    fs::create_directories(folder_ / "peers");
    put("peers/cells.py", "");
    put("python",
        "#!/bin/sh\n[ \"$1\" = -c ] && { echo 2.11.0; exit; }\nwhile [ $# -gt 0 ]; do [ \"$1\" = --cells ] && cells=$2; shift; done\n" +
            then);
    fs::permissions(folder_ / "python", fs::perms::owner_all);
  }
  std::string bench(const std::string& more) const {
    return "bench --device cpu --tables step-peers --python " + at("python") + " --peers " + at("peers") + " --db " + db_ + " " + more;
  }
};

constexpr const char* three_cells =
    "printf 'cell,peer,ours_ms,peer_ms,why\\nsmall,eager,10,20,\\nlarge,eager,10,5,\\nhuge,eager,10,,out of memory\\n' > $cells\n";

TEST_F(Bench, PeersTakeTurnsAndLossesAreShown) {
  put_python(three_cells);
  const Ended e = run(bench("--out " + at("card.json")));
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(text_of(at("card.json")));
  EXPECT_NE(j["answer"].get<std::string>().find("1 of 1 tables measured"), std::string::npos) << j["answer"];
  ASSERT_EQ(j["rows"].size(), 1u);
  EXPECT_EQ(j["rows"][0]["status"], "ok");
  EXPECT_EQ(j["rows"][0]["lines"], 3);
  EXPECT_EQ(j["rows"][0]["step-peers"][1]["peer_ms"], 5);
  EXPECT_DOUBLE_EQ(j["beside"][0]["mean_ratio"], 1.0) << "2 and 1/2";
  EXPECT_EQ(j["beside"][0]["cells"], 2) << "what was not measured is in no mean";
  ASSERT_EQ(j["losses"].size(), 1u);
  EXPECT_EQ(j["losses"][0]["cell"], "large");
  EXPECT_NE(j["made_by"]["command"].get<std::string>().find("headroom bench --device cpu"), std::string::npos);

  fs::copy_file(at("card.json"), at("other.json"));
  const Ended page = run("report " + at("card.json") + " " + at("other.json") + " --format json");
  ASSERT_EQ(page.code, 0) << page.err;
  const Json cards = Json::parse(page.out)["cards"];
  EXPECT_EQ(cards["means"].size(), 1u);
  EXPECT_EQ(cards["losses"].size(), 2u) << "of each card";
  EXPECT_EQ(cards["cards"][0]["measured"], 1);
}

TEST_F(Bench, AStopIsHeardWhilePeersAreLookedFor) {
  put_python(three_cells);
  put("python", "#!/bin/sh\ntouch " + at("asked") + "\nsleep 3\n");
  const pid_t child =
      start({"bench", "--device", "cpu", "--python", at("python"), "--peers", at("peers"), "--db", db_, "--out", at("card.json")}, true);
  for (int i = 0; i < 1500 && !fs::exists(at("asked")); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(text_of(at("err")).find("stopped by Ctrl-C after 0 of 6 tables"), std::string::npos) << text_of(at("err"));
}

TEST_F(Bench, WhatCannotBeHadSaysWhy) {
  put_python("echo no card 1>&2; exit 1\n");
  const Ended failed = run(bench("--format json"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(Json::parse(failed.out)["rows"][0]["why"], "no card");
  fs::remove(folder_ / "python");
  const Ended none = run(bench("--format json"));
  EXPECT_EQ(none.code, 3) << "nothing can be had";
  EXPECT_NE(Json::parse(none.out)["rows"][0]["why"].get<std::string>().find("has no torch"), std::string::npos) << none.out;
  refused("bench --tables nothing --device cpu", 2, "choose from device, attention");
}

TEST_F(Bench, QuickMeasuresTheSameTablesInLessTime) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    Device d;
    d.kind = kind;
    const auto whole = studies::bench_tables(d, 2, false), quick = studies::bench_tables(d, 2, true);
    ASSERT_EQ(whole.size(), quick.size());
    double minutes = 0, fewer = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].name, quick[i].name);
      EXPECT_LE(quick[i].minutes, whole[i].minutes) << whole[i].name;
      minutes += whole[i].minutes, fewer += quick[i].minutes;
    }
    EXPECT_LE(minutes, 20.5) << "as --minutes says";
    EXPECT_LT(fewer, 0.7 * minutes);
  }
  const Ended list = run("bench --list --quick --device cpu");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_NE(list.out.find("--rounds 1"), std::string::npos) << list.out;
  const Ended two = run("bench --list --tables comm,device --device cpu --format csv");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(std::count(two.out.begin(), two.out.end(), '\n'), 3) << "a line of names, and the two that were asked for: " << two.out;
  refused("bench --list --tables attention-decode --device cpu", 2, "has none of these; headroom bench --list shows which there are");
  for (const char* of_measuring : {"--resume", "--minutes 3", "--card not-there.json"})
    refused(std::string("bench --list --device cpu ") + of_measuring, 2, "--list measures nothing; leave --");
}

TEST_F(Bench, ACardsFileKeepsItsTablesAndGetsNewOnes) {
  put_python(three_cells);
  ASSERT_EQ(run(bench("--out " + at("card.json"))).code, 0);
  put_python("echo it is not to be asked again 1>&2; exit 1\n");
  const std::string more =
      "bench --device cpu --python " + at("python") + " --peers " + at("peers") + " --db " + db_ + " --format json --card ";
  const Ended kept = run(more + at("card.json") + " --tables comm");
  const Json j = Json::parse(kept.out);
  ASSERT_EQ(j["rows"].size(), 2u) << kept.out << kept.err;
  EXPECT_EQ(j["rows"][0]["bench"], "step-peers");
  EXPECT_EQ(j["rows"][0]["step-peers"][1]["peer_ms"], 5);
  EXPECT_NE(j["rows"][0]["made"].get<std::string>().find("20"), std::string::npos) << "when it was measured";
  EXPECT_EQ(j["rows"][1]["bench"], "comm");
  EXPECT_EQ(run(more + at("card.json") + " --tables step-peers --minutes 9").code, 1) << "a table that is named is measured again";
  put("other.json", R"({"machine": "another", "rows": [{"bench": "device", "status": "ok", "lines": 1, "device": [{"what": "copy"}]}]})");
  refused(more + at("other.json"), 2, "it is of another");
  refused(more + at("none.json"), 2, "none.json'; leave --card out to measure every table");
}

TEST_F(Bench, WaysOfOursAreNoPeers) {
  put_python("printf 'cell,peer,ours_ms,peer_ms,why\\nx,our rows of a batch,10,5,\\n' > $cells\n");
  const Json j = Json::parse(run(bench("--format json")).out);
  EXPECT_DOUBLE_EQ(j["beside"][0]["mean_ratio"], 0.5);
  EXPECT_EQ(j["losses"].size(), 0u);
  EXPECT_NE(j["answer"].get<std::string>().find("no peer took a turn"), std::string::npos) << j["answer"];
}

TEST_F(Bench, StoppedItGoesOnWithTheTablesThatAreThere) {
  put_python("[ -e " + at("again") + " ] && { " + std::string(three_cells) + " exit 0; }\ntouch " + at("began") + "; exec sleep 60\n");
  const std::vector<std::string> words{"bench",      "--device", "cpu",       "--tables", "step-peers", "--python",
                                       at("python"), "--peers",  at("peers"), "--db",     db_};
  const pid_t child = start(words, true);
  for (int i = 0; i < 600 && !fs::exists(at("began")); ++i) usleep(50'000);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT_NE(text_of(at("err")).find("--resume"), std::string::npos) << text_of(at("err"));
  put("again", "");
  const Ended e = run(bench("--resume --format json"));
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(Json::parse(e.out)["rows"][0]["status"], "ok");
  EXPECT_EQ(Results(db_, Results::Access::read).runs().size(), 1u) << "one run, gone on with";
}

}  // namespace
}  // namespace headroom
