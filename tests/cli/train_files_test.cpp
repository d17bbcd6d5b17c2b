// Files of a training: its text, its checkpoints, and its store where disks are full or other programs hold them.
#include <fmt/format.h>

#include <sqlite3.h>
#include <chrono>
#include <thread>

#include "store/results.h"
#include "tests/cli/small_run.h"

namespace headroom {
namespace {

class TrainFiles : public SmallRun {};

TEST_F(TrainFiles, ALimitOnFilesEndsNoCommandBySignal) {
  put_text();
  shell_refused("ulimit -f 1; $H attention --batch 1 --dim 16 --len 16 --steps 2 --warmup 0 --db new.db", 1,
                "no room is left for 'new.db'");
  const Ended e = shell(std::string("ulimit -f 100; ") + train + "--steps 3 --save run");
  EXPECT_EQ(e.code, 1) << e.err;
  EXPECT_NE(e.err.find("may not grow any larger here"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("; its losses are run 1 in "), std::string::npos) << "a long training's curve is not lost: " << e.err;
  EXPECT_TRUE(fs::is_empty(folder_ / "run")) << "no part of a checkpoint";
}

TEST_F(TrainFiles, ATrainingOutlivesItsStore) {
  put_text();
  const std::string words = std::string(train) + "--steps 60 --log-every 1 --db small.db ";
  const Ended full = shell("ulimit -f 60; " + words + "--format json");
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(Json::parse(full.out)["rows"].size(), 60u) << "what was measured is printed";
  EXPECT_NE(full.err.find("no room is left for 'small.db'"), std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("The run goes on"), full.err.rfind("The run goes on")) << "warned once: " << full.err;
  EXPECT_NE(full.err.find("run 1 in small.db is not complete"), std::string::npos) << full.err;

  sqlite3* other = nullptr;  // a program that holds the store while the training begins, and lets go of it before its end
  ASSERT_EQ(sqlite3_open(at("held.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::seconds(12));
    sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
    sqlite3_close(other);
  });
  const Ended held = shell(std::string(train) + "--steps 3 --log-every 1 --db held.db");
  later.join();
  EXPECT_EQ(held.code, 0) << held.err;
  EXPECT_NE(held.err.find("is held by another program"), std::string::npos) << held.err;
  EXPECT_EQ(Results(at("held.db"), Results::Access::read).rows(1).size(), 3u) << held.err;
}

TEST_F(TrainFiles, ThatCheckpointsHaveNoPlaceIsSaidBeforeTraining) {
  put_text();
  put("notes.txt", "mine");
  refused("train --text " + at("text.txt") + " --steps 1000000 --save " + at("notes.txt"), 2, "is no folder");
  refused("train --text " + at("text.txt") + " --steps 1000000 --save " + at("notes.txt/run"), 2, "notes.txt/run' cannot be made");
  EXPECT_EQ(text_of(folder_ / "notes.txt"), "mine");
}

TEST_F(TrainFiles, ADiskThatWillBeFullIsSaidBeforeTraining) {
  if (shell("unshare -rm true").code != 0) GTEST_SKIP() << "this machine lends no mount namespace, in which a small disk is made";
  put_text();
  const auto on_disk = [&](const std::string& size, const std::string& words) {
    return shell("mkdir -p disk; unshare -rm sh -c 'mount -t tmpfs -o size=" + size + " none disk && " +
                 std::string(train).replace(0, 2, HEADROOM_BINARY_DIR "/headroom") + words + "'");
  };
  const std::string endless = "--every 1 --steps 1000000 --save disk/run";
  const Ended none = on_disk("64k", endless);
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_EQ(none.err.find("headroom train: 'disk/run' has no room for 3 checkpoints of "), 0u) << none.err;
  EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
  EXPECT_EQ(on_disk("64k", "--every 1 --steps 1 --save disk/run").err.find("headroom train: 'disk/run' has no room for 1 checkpoint of "),
            0u);
  EXPECT_EQ(on_disk("32k", "--steps 1000000 --save-hf disk/hf").err.find("headroom train: 'disk/hf' has no room for the weights in FP32: "),
            0u);
  EXPECT_EQ(on_disk("16m", "--every 1 --steps 3 --save disk/run --save-hf disk/hf").code, 0);
}

TEST_F(TrainFiles, CopiesOfCheckpointsNeitherStopATrainingNorAreReplaced) {
  put_text();
  const std::string run = std::string(train) + "--every 2 --save run --steps ";
  ASSERT_EQ(shell(run + "4").code, 0);
  fs::copy_file(at("run/step-00000004.safetensors"), at("run/step-99999999.safetensors"));
  const Ended on = shell(run + "4 --resume");
  EXPECT_EQ(on.code, 0) << on.err;
  fs::rename(at("run/step-00000002.safetensors"), at("run/step-00000003.safetensors"));
  fs::remove(at("run/step-00000004.safetensors"));
  const std::string bytes = text_of(at("run/step-00000003.safetensors"));
  shell_refused(run + "4 --resume", 2, "step-00000003.safetensors' is not a checkpoint of this program, or was renamed");
  EXPECT_EQ(text_of(at("run/step-00000003.safetensors")), bytes);
  fs::remove(at("run/step-00000003.safetensors"));
  EXPECT_EQ(shell(run + "4").code, 0) << "nothing of this program is there: a new training";
  EXPECT_TRUE(fs::exists(at("run/step-99999999.safetensors")));
  put("run/step-00000009.safetensors", "cut short");
  shell_refused(run + "4 --resume", 1, "move it away to go on from an earlier one");
}

TEST_F(TrainFiles, TooLittleTextIsNotANumber) {
  put_text(200);
  const Ended e = shell(std::string(train) + "--steps 1");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out.find("nan"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("held-out part of the data is shorter than one batch"), std::string::npos) << e.out;
}

TEST_F(TrainFiles, ASampleWithZeroBytesCutsNothingShort) {
  put("zeros.bin", std::string(4000, '\0'));
  const Ended e =
      shell("$H train --text zeros.bin --layers 1 --width 32 --heads 2 --len 16 --batch 2 --steps 20 --lr 0.01 --sample 8 --format text");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("\\x00"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("grad_norm"), std::string::npos) << "the table of losses follows: " << e.out;
}

}  // namespace
}  // namespace headroom
