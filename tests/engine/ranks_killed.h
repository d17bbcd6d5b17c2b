// Ranks of which one is killed in a collective of a step, of a run or of its checkpoint: the others end within ten seconds with its name,
// and nothing that is not whole is left. Ranks are processes over shared memory, as `headroom train --device cpu --ranks 3` has them.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "dist/shared.h"
#include "engine/files/save.h"
#include "tests/dist/processes.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace ranks_killed_tests {  // a name: what is used here stays here, where a folder is one source

namespace fs = std::filesystem;
using dist::Outcome;

// The ranks' own way to speak to each other; before the call that is named it ends this process, as kill -9 would.
class Mortal final : public dist::Comm {
 public:
  Mortal(dist::Comm& way, std::string deadly) : Comm(way.rank(), way.ranks()), way_(way), deadly_(std::move(deadly)) {}
  dist::Backend backend() const override { return way_.backend(); }
  std::string route(dist::Call c) const override { return way_.route(c); }
  void check_alive() override { way_.check_alive(); }
  void end(const std::string& why) noexcept override { way_.end(why); }
  std::map<std::string, int> seen;  // by name: how often

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void* s, dist::Own own) override {
    begin("exchange"), way_.exchange(mine, theirs, s, own);
  }
  void do_gather(const Tensor& part, const Tensor& whole, void* s) override { begin("gather"), way_.gather(part, whole, s); }
  void do_broadcast(const Tensor& whole, int root, void* s) override { begin("broadcast"), way_.broadcast(whole, root, s); }
  void do_barrier(void* s) override { begin("barrier"), way_.barrier(s); }

 private:
  void begin(const char* call) {
    way_.carries(carried());
    const std::string name = fmt::format("{} of {}", call, carried().text);
    if (++seen[name] == 1 && name == deadly_) ::raise(SIGKILL);
  }
  dist::Comm& way_;
  std::string deadly_;
};

struct Course {
  const char* name;
  Sharding sharding;
  Holding holding{};
  Purpose purpose = Purpose::training;
  bool split_tokens = false;
};

// Two steps and a checkpoint between them. What was called, if no rank was killed.
inline std::string run(const Course& course, int rank, int ranks, const dist::Address& at, const std::string& deadly,
                       const std::string& folder) {
  dist::Rendezvous meeting(dist::coming(rank, ranks, at));
  const auto way = dist::make_shared_comm(meeting);
  Mortal comm(*way, rank == 1 ? deadly : "");
  Recipe r{tiny(), 1, 4 * std::int64_t(ranks), *precision_named("bf16")};
  r.ranks = {ranks, course.sharding, course.split_tokens}, r.holding = course.holding, r.purpose = course.purpose;
  Workshop w(r, 1, {}, &comm);
  const auto step = [&] {
    if (r.purpose == Purpose::forward) return w.training.forward();
    if (r.purpose == Purpose::gradients) return w.training.backward();
    w.training.step(r.hyper());
  };
  step();
  if (r.purpose == Purpose::training) save(w.training, {1, 7, "{}"}, folder);
  step();
  std::string all;
  for (const auto& [name, count] : comm.seen) all += name + "\n";
  meeting.leave();
  return all;
}

inline std::size_t segments() {  // our segments: others may come and go meanwhile
  std::size_t n = 0;
  for (const auto& e : fs::directory_iterator("/dev/shm")) n += e.path().filename().string().find("headroom") != std::string::npos;
  return n;
}

// `most`: calls of each course in which a rank is killed, spread over all of them; 0: every one.
inline void expect_others_to_end(int ranks, std::size_t most = 0) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("headroom-killed-{}", ::getpid());
  const Course courses[] = {
      {"replicas", Sharding::none},
      {"everything", Sharding::everything},
      {"during", Sharding::optimizer, {Masters::halves, Updating::during, Gradients::half}},
      {"forward", Sharding::everything, {}, Purpose::forward},
      {"tokens split", Sharding::gradients, {}, Purpose::gradients, true},
  };
  for (const Course& course : courses) {
    const auto ended = [&](const std::string& deadly) {
      const dist::Address at = dist::fresh_address();
      return dist::as_processes(ranks, [&](int rank) { return run(course, rank, ranks, at, deadly, folder.string()); });
    };
    std::vector<std::string> calls;
    std::istringstream said(ended("")[0].said);
    for (std::string line; std::getline(said, line);) calls.push_back(line);
    ASSERT_GE(calls.size(), course.purpose == Purpose::forward ? 3u : 5u);
    const std::size_t every = most == 0 ? 1 : std::max<std::size_t>(1, calls.size() / most);
    for (std::size_t n = 0; n < calls.size(); n += every) {
      const std::string &deadly = calls[n], call = deadly.substr(0, deadly.find(' '));
      SCOPED_TRACE(fmt::format("{} ranks, {}, killed in the {}", ranks, course.name, deadly));
      fs::remove_all(folder);
      const auto all = ended(deadly);
      EXPECT_EQ(all[1].signal, SIGKILL);
      const std::string sentence = call + ": rank 1 ended: its process is gone without a word (killed, or crashed)";
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_LT(all[i].seconds, 10);
        if (i == 1) continue;
        EXPECT_EQ(all[i].said, (i == 0 ? "error: " : "quiet: ") + sentence);
        EXPECT_EQ(all[i].code, 1);
      }
      if (!fs::exists(folder)) continue;
      for (const auto& file : fs::directory_iterator(folder)) {
        EXPECT_EQ(file.path().filename(), "step-00000001.safetensors") << "nothing unfinished";
        EXPECT_EQ(describe_checkpoint(file.path().string()).position.step, 1);
      }
    }
  }
  fs::remove_all(folder);
  // A test beside this one may have a segment for a moment; one that a killed rank left would stay.
  std::size_t left = segments();
  for (int tries = 0; left > 0 && tries < 200; ++tries, left = segments()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(left, 0u);
}

}  // namespace ranks_killed_tests
}  // namespace headroom::engine
