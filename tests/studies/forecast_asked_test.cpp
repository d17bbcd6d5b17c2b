// What a forecast is asked: values in place of names, cards, ranks of a launcher.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/device_names.h"
#include "base/error.h"
#include "studies/forecast/forecast.h"
#include "studies/forecast/run.h"

namespace headroom::studies {
namespace {

TEST(ForecastAsked, AValueTakesThePlaceOfItsName) {
  const std::vector<std::string> program{"python3", "t.py", "--batch", "{batch}", "--out=run-{batch}-{len}"};
  EXPECT_EQ(with_value(program, "batch", "16"), (std::vector<std::string>{"python3", "t.py", "--batch", "16", "--out=run-16-{len}"}));
  EXPECT_EQ(list_of_values("len=1024,4096", program).values, (std::vector<std::string>{"1024", "4096"}));
  EXPECT_EQ(range_of_values("batch=1..256", program).high, 256);
  EXPECT_THROW(range_of_values("batch=9..3", program), Error);
  EXPECT_THROW(range_of_values("batch=1,2", program), Error);
  EXPECT_THROW(list_of_values("batch", program), Error);
  try {
    list_of_values("bacth=1,2", program);
    FAIL();
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("did you mean 'batch'"), std::string::npos) << e.what(); }
}

TEST(ForecastAsked, AProgramIsRunForCardsThatRunCuda) {
  check(Forecast{.program = {"python3", "t.py"}, .device = device_described("t4")});
  try {
    check(Forecast{.program = {"python3", "t.py"}, .device = device_described("mi300x")});
    FAIL();
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("AMD Instinct MI300X runs no CUDA"), std::string::npos) << e.what(); }
}

TEST(ForecastAsked, ALaunchersProcessesAreCounted) {
  EXPECT_EQ(ranks_told({"torchrun", "--nproc-per-node", "8", "t.py"}), 8);
  EXPECT_EQ(ranks_told({"python3", "-m", "torch.distributed.run", "--nproc_per_node=4", "t.py"}), 4);
  EXPECT_EQ(ranks_told({"accelerate", "launch", "--num_processes=2", "t.py"}), 2);
  EXPECT_EQ(ranks_told({"torchrun", "--nproc-per-node", "gpu", "t.py"}), 1);
  EXPECT_EQ(ranks_told({"python3", "t.py"}), 1);
}

TEST(ForecastAsked, TheCardIsTheOneThatPlanAsksAbout) {
  const Device h100 = device_described("h100");
  const Room room = room_of_program(h100, std::nullopt, 1);
  const dry::Dry d = dry_of(h100, room, 2);
  EXPECT_EQ(d.card.memory_bytes, room_of(h100, std::nullopt).memory_bytes);
  EXPECT_EQ(d.card.context_bytes, room.overhead_bytes);
  EXPECT_EQ(d.card.name, name_by_driver(h100));
  EXPECT_EQ(d.cards, 2);
}

}  // namespace
}  // namespace headroom::studies
