// What blocks keep on the host changes no bit of a step; its bytes there and on the device are those of the forecast.
#include "engine/pass/host_keep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/forecast/keep_auto.h"
#include "tests/engine/ranks_at_work.h"

namespace headroom::engine {
namespace host_keep_tests {

Taken trained(const Recipe& r) { return alone(r, 2, r.served({.lr = 0.01})); }

Recipe deep(const char* precision) {
  Recipe r{tiny(), 2, 9, *precision_named(precision)};
  change_sizes(r.model, [](PlainModel& m) { m.layers = 7; });
  return r;
}

TEST(HostKeep, GivesTheSameBitsAndTakesTheBytesForecast) {
  for (const auto& [precision, micro_batches] : {std::pair{"fp32", 1}, std::pair{"bf16", 4}, std::pair{"fp8", 1}}) {
    Recipe r = deep(precision);
    r.micro_batches = micro_batches;
    if (micro_batches == 1) r.holding.updating = Updating::during;
    const Taken all = trained(r);
    for (const Keeping& k : {Keeping::on_host(1), Keeping{Keep::no_cheap, 1, 5}, Keeping{Keep::no_attention_inputs, 1, 7}}) {
      r.keep = k;
      EXPECT_EQ(trained(r), all) << precision << " " << WordsOf<Keeping>::to(k) << " micro-batches " << micro_batches;
    }
    r.keep.levels.assign(7, Keep::everything);
    r.keep.levels[0] = r.keep.levels[2] = Keep::input, r.keep.levels[5] = Keep::no_product, r.keep.host = 4;
    EXPECT_EQ(trained(r), all) << "levels of each block";
  }
}

TEST(HostKeep, GoesWithRanks) {
  Recipe r = deep("bf16");
  r.micro_batches = 2;
  r.keep = Keeping::on_host();
  const Taken one = trained(r);
  r.micro_batches = 1;
  for (const Sharding sharding : {Sharding::none, Sharding::everything}) {
    r.ranks = {2, sharding};
    EXPECT_GT(forecast(r, {}, 1).host_bytes, 0u);
    for (const Taken& each : together(r, 2, r.served({.lr = 0.01}))) EXPECT_EQ(each, one);
  }
}

// Two rooms instead of what all blocks keep; the last two blocks need no place on the host.
TEST(HostKeep, LeavesTwoBlocksTensorsOnTheDevice) {
  Recipe r = deep("bf16");
  const Device cpu;
  const auto of = [&](int host) {
    r.keep = Keeping::on_host(host);
    return forecast(r, cpu, 1);
  };
  const std::size_t kept = of(3).host_bytes;
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(of(2).host_bytes, 0u);
  EXPECT_EQ(of(7).host_bytes, 5 * kept);
  EXPECT_EQ(of(7).host_moved_bytes, 2.0 * 5 * double(kept));
  EXPECT_EQ(of(0).peak_bytes - of(7).peak_bytes, 5 * kept);
  EXPECT_EQ(of(2).peak_bytes, of(0).peak_bytes);
  r.micro_batches = 5;
  EXPECT_EQ(of(7).host_bytes, 5 * kept);
  EXPECT_EQ(of(7).host_moved_bytes, 5 * 2.0 * 5 * double(kept)) << "of each micro-batch";
  r.purpose = Purpose::forward;
  EXPECT_EQ(of(7).host_bytes, 0u) << "a forward pass keeps nothing";
}

TEST(HostKeep, IsSpreadEvenlyOverTheBlocksThatKeepSomething) {
  Recipe r = deep("bf16");
  r.keep.host = 3;
  EXPECT_EQ(r.blocks_on_host(), (std::vector{0, 3, 5}));
  r.keep.levels.assign(7, Keep::input);
  r.keep.levels[2] = r.keep.levels[4] = r.keep.levels[6] = Keep::no_cheap;
  r.keep.host = 2;
  EXPECT_EQ(r.blocks_on_host(), (std::vector{2, 6}));
  r.keep.host = 3;
  EXPECT_EQ(r.blocks_on_host(), (std::vector{2, 4, 6}));
}

TEST(HostKeep, HasWordsThatAreReadBack) {
  using Words = WordsOf<Keeping>;
  Keeping mixed({Keep::input, Keep::input, Keep::input, Keep::input});
  mixed.levels.resize(12, Keep::everything);
  Keeping some_on_host = mixed;
  some_on_host.host = 3;
  const std::pair<const char*, Keeping> all[] = {{"host", Keeping::on_host()},
                                                 {"auto", Keeping::automatic()},
                                                 {"input × 4, everything × 8", mixed},
                                                 {"input × 4, everything × 8; 3 of them in host memory", some_on_host},
                                                 {"host:no-cheap", {Keep::no_cheap, 1, -1}},
                                                 {"host:12", Keeping::on_host(12)},
                                                 {"host:12:no-product", {Keep::no_product, 1, 12}},
                                                 {"groups", {Keep::input, 0}},
                                                 {"groups:4", {Keep::input, 4}},
                                                 {"groups:4:everything", {Keep::everything, 4}}};
  for (const auto& [word, k] : all) {
    EXPECT_EQ(Words::to(k), word);
    ASSERT_TRUE(Words::named(word)) << word;
    EXPECT_EQ(*Words::named(word), k) << word;
  }
  for (const char* wrong : {"host:",
                            "host:0",
                            "host:-1",
                            "host:x",
                            "hosts",
                            "host:2:",
                            "host:2:most",
                            "host:no-cheap:2",
                            "host:2:input:3",
                            "groups:1",
                            "groups:",
                            "groups:no-cheap",
                            "groups:3:most",
                            "groups:3x",
                            "input × ",
                            "input × 0",
                            "input × 2x",
                            "most × 2",
                            "input × 2; 0 of them in host memory",
                            "input × 2; 1",
                            "automatic"})
    EXPECT_FALSE(Words::named(wrong)) << wrong;
}

TEST(HostKeep, RefusesWhatMakesNoSense) {
  const auto refused = [](const Keeping& k) {
    Recipe r = deep("bf16");
    r.keep = k;
    EXPECT_THROW(check(r), Error) << WordsOf<Keeping>::to(k);
  };
  refused({Keep::input, 1, 3});
  refused(Keeping::on_host(8));
  refused({Keep::no_cheap, 2, 3});
}

Device described(const char* name, double host_gb_s) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("headroom-{}-{}.json", name, getpid());
  std::ofstream(file) << fmt::format(
      R"({{"name": "{}", "memory_mib": 100000, "sm": 90, "units": 132, "copy_tb_s": 4, "fp32_tflops": 50, "bf16_tflops": 700,
      "host_gb_s": {}}})",
      name, host_gb_s);
  const Device d = device_described(file.string());
  std::filesystem::remove(file);
  return d;
}

TEST(HostKeep, IsChosenWhereTheLinkPays) {
  EXPECT_EQ(device_described("h200").ceilings.host_bytes_per_s, 55e9);
  Recipe r{model_described("small"), 4, 1024, *precision_named("bf16")};
  const Device fast = described("a fast host", 2000), slow = described("a slow host", 0.001);
  r.keep = {Keep::everything};
  const std::size_t all = forecast_peak(r, fast, 1);
  r.keep = Keeping::on_host();
  const std::size_t bytes = (all + forecast_peak(r, fast, 1)) / 2;
  const auto found = keep_that_fits(r, bytes, fast, 1);
  ASSERT_TRUE(found);
  EXPECT_GT(found->host, 2);
  r.keep = *found;
  const Forecast f = forecast(r, fast, 1);
  EXPECT_LE(f.peak_bytes, bytes);
  EXPECT_GT(f.host_ms, 0);
  EXPECT_LT(f.host_exposed_ms, 0.1 * f.host_ms);
  r.keep.host -= 1;
  EXPECT_GT(forecast_peak(r, fast, 1), bytes) << "as few as fit";
  r.keep.host += 1;
  const Forecast waits = forecast(r, slow, 1);
  EXPECT_GT(waits.host_exposed_ms, 0.9 * waits.host_ms) << "nothing covers it";
  EXPECT_GT(waits.ms, waits.host_exposed_ms);
  const auto without = keep_that_fits(r, bytes, slow, 1);
  ASSERT_TRUE(without);
  EXPECT_EQ(without->host, 0);
  r.keep = *without;
  EXPECT_LT(f.ms, forecast(r, fast, 1).ms) << "than with what is made again instead";
}

}  // namespace host_keep_tests
}  // namespace headroom::engine
