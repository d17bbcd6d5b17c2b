// What `headroom device` keeps of a machine, and what forecasts take from it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "studies/comm/comm_time.h"
#include "studies/device/ceilings.h"
#include "studies/device/efficiencies.h"
#include "studies/device/study.h"
#include "studies/memory/room.h"

namespace headroom::studies {
namespace {

CeilingRow host_row(const char* what, double bytes_per_s) {
  CeilingRow r{what, "bytes", 1 << 28};
  r.host_bytes_per_s = bytes_per_s;
  return r;
}

class KeptCeilings : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(store_); }
  void keep(const std::vector<CeilingRow>& rows) {
    Life life({.store = store_}, "device", {{"run", ++runs_}}, card_.name);
    for (const CeilingRow& r : rows) life.keep(key_of(r), json_of(r));
    life.finish();
  }
  static CeilingRow copy_row() {
    CeilingRow r{"copy", "bytes", 1 << 28};
    r.copy_bytes_per_s = 4e12;
    return r;
  }

  int runs_ = 0;
  Device card_ = device_described("h200");
  std::string store_ = (std::filesystem::temp_directory_path() / ("headroom_device_" + std::to_string(getpid()) + ".db")).string();
};

TEST_F(KeptCeilings, TheLinkToTheHostIsTheSlowerDirectionAlone) {
  EXPECT_FALSE(host_link_of({}));
  EXPECT_FALSE(host_link_of({copy_row()}));
  EXPECT_EQ(host_link_of({host_row("to host", 54e9), host_row("from host", 53e9), host_row("both ways", 42e9), copy_row()}), 53e9);
}

TEST_F(KeptCeilings, TheNewestRunThatMeasuredTheLinkToTheHostIsTaken) {
  EXPECT_FALSE(kept_host_link(card_, store_));
  keep({copy_row(), host_row("to host", 54e9), host_row("from host", 53e9)});
  keep({copy_row(), host_row("to host", 51e9), host_row("from host", 52e9)});
  keep({copy_row()});  // on a host that had no memory to pin
  EXPECT_EQ(kept_host_link(card_, store_), 51e9);
  const auto ceilings = kept_ceilings(card_, store_);
  ASSERT_TRUE(ceilings);
  EXPECT_EQ(ceilings->copy_bytes_per_s, 4e12);
  EXPECT_EQ(ceilings->fp32_flops, 0) << "a link to the host is no product";
  EXPECT_EQ(ceilings->link_bytes_per_s, card_.ceilings.link_bytes_per_s) << "comm measures it";
}

TEST_F(KeptCeilings, TheNewestEfficienciesAreTakenWithTheCeilingsOfTheirRun) {
  EXPECT_FALSE(kept_efficiencies(card_, store_));
  EfficiencyRow fp32, bf16;
  fp32.efficiency.product = 1.5, bf16.efficiency.precision = {DType::bf16}, bf16.efficiency.within = 1.25;
  const EfficiencyStep step{.model = "wide", .batch = 2, .len = 8, .ms = 3};
  {
    Life life({.store = store_}, "device", {{"run", ++runs_}}, card_.name);
    const CeilingRow copy = copy_row();
    life.keep(key_of(copy), json_of(copy));
    life.keep(key_of(step), json_of(step));
    for (const EfficiencyRow& r : {fp32, bf16}) life.keep(key_of(r), json_of(r));
    life.finish();
  }
  CeilingRow faster = copy_row();
  faster.copy_bytes_per_s = 8e12;
  keep({faster});  // later, of ceilings alone
  const auto kept = kept_efficiencies(card_, store_);
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->by_precision.size(), 2u);
  EXPECT_EQ(kept->by_precision[0].product, 1.5);
  EXPECT_EQ(kept->by_precision[1].precision, (Precision{DType::bf16}));
  EXPECT_EQ(kept->by_precision[1].within, 1.25);
  EXPECT_EQ(kept->ceilings.copy_bytes_per_s, 4e12);
  EXPECT_EQ(kept->source, "measured by headroom device, run 1");
  EXPECT_EQ(kept_ceilings(card_, store_)->copy_bytes_per_s, 8e12);
}

TEST(HostRoom, MoreThanTheHostCanLendIsRefusedInALine) {
  const Device cpu = cpu_device();
  EXPECT_EQ(host_misfit(0, cpu, nullptr), "");
  EXPECT_EQ(host_misfit(1 << 20, cpu, nullptr), "");
  const std::string why = host_misfit(1ull << 60, cpu, nullptr);
  EXPECT_NE(why.find("in host memory, and "), std::string::npos) << why;
  EXPECT_EQ(host_misfit(1ull << 60, device_described("h200"), nullptr), "") << "nothing is known of its host";
}

}  // namespace
}  // namespace headroom::studies
