// What is said of a program that was run dry and took no memory of a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "studies/forecast/run.h"

namespace headroom::studies {
namespace {

TEST(ForecastWithoutBytes, AProgramThatAsksForACardThatIsNotShownIsToldHowToShowIt) {
  DryRun run;
  run.tail = "torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out of range\n";
  EXPECT_EQ(advice_on(run, 0), "--gpus 2 shows two GPUs to the program; here it is shown one");
  DryRun cleared;
  cleared.tail = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n";
  EXPECT_EQ(advice_on(cleared, 1).find("it starts Python without the environment that it has, LD_PRELOAD among it"), 0u)
      << advice_on(cleared, 1);
  DryRun twice;
  twice.tail = "DistBackendError: NCCL error\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 0\n";
  EXPECT_EQ(advice_on(twice, 1), "two ranks are on one card; --gpus N shows N GPUs to the program, here it is shown one");
  EXPECT_EQ(advice_on(twice, 2).find("two ranks are on one card; each takes its own by torch.cuda.set_device("), 0u) << advice_on(twice, 2);
  EXPECT_EQ(advice_on(run, 2), "--gpus 3 shows 3 GPUs to the program; here it is shown 2");
  run.ended.exit_code = 1;
  try {
    refuse_without_bytes(run, {"python3", "-u", "train.py", "--batch", "8"}, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "'train.py' ended before it used a card, with exit code 1: torch.AcceleratorError: CUDA error: invalid device ordinal; "
                 "--gpus 2 shows two GPUs to the program; here it is shown one");
  }
  run.tail = "ValueError: too few\n";
  EXPECT_EQ(advice_on(run, 1), "");
}

TEST(ForecastWithoutBytes, AProgramToWhichNoCardIsShownIsToldWhy) {
  const DryRun run;
  for (const char* const none : {"", "-1"}) {
    setenv("CUDA_VISIBLE_DEVICES", none, 1);
    try {
      refuse_without_bytes(run, {"python3", "train.py"}, 1);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.what(),
                fmt::format("CUDA_VISIBLE_DEVICES={} shows no card to 'train.py': leave it out, as by env -u CUDA_VISIBLE_DEVICES "
                            "headroom forecast",
                            none));
    }
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(ForecastWithoutBytes, AScriptThatIsNotThereIsSaidWhateverItsLauncherSays) {
  DryRun run;
  run.ended.exit_code = 1;
  run.tail = "python3: can't open file 'gone.py': [Errno 2] No such file or directory\nmultiprocessing.errors.ChildFailedError: \n";
  try {
    refuse_without_bytes(run, {"torchrun", "gone.py"}, 1);
    FAIL();
  } catch (const Error& e) { EXPECT_STREQ(e.what(), "there is no 'gone.py'; name the script as it is reached from here"); }
}

TEST(ForecastWithoutBytes, AProgramHasTheNameOfItsScript) {
  EXPECT_EQ(name_of({"/v/bin/python3", "-u", "/home/me/train.py", "x.py"}), "/home/me/train.py");
  EXPECT_EQ(name_of({"python3", "-m", "trainer.run", "--config", "c.py"}), "trainer.run");
  EXPECT_EQ(name_of({"python3", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"}), "train.py");
  EXPECT_EQ(name_of({"torchrun", "train.py"}), "train.py");
  EXPECT_EQ(name_of({"sh", "train.sh"}), "train.sh");
  EXPECT_EQ(name_of({"sh", "-c", "exit 5"}), "sh");
  EXPECT_EQ(name_of({"./train", "-m", "large"}), "./train");
}

}  // namespace
}  // namespace headroom::studies
