// A device's file: what is written is read back, and what is wrong in one is named.
#include "base/device_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/device_names.h"

namespace headroom {
namespace {

class DeviceInAFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  Device read(const std::string& text) {
    std::ofstream(file_) << text;
    return device_described(file_);
  }
  std::string refusal(const std::string& text) {
    try {
      (void)read(text);
      return "";
    } catch (const Error& e) { return e.what(); }
  }
  // Of a card with one efficiency, which has these fields beside its precision.
  std::string refusal_of_efficiency(const std::string& fields) {
    return refusal(R"({"name": "X", "units": 2, "memory_mib": 1024, "efficiencies": [{"precision": "bf16", )" + fields + "}]}");
  }
  std::string file_ = (std::filesystem::temp_directory_path() / ("headroom_device_file_" + std::to_string(getpid()) + ".json")).string();
};

TEST_F(DeviceInAFile, WhatIsWrittenIsReadBack) {
  for (const Device& d : known_devices()) {
    const Device got = read(device_file_text(d));
    EXPECT_EQ(got.name, d.name);
    EXPECT_EQ(got.sm, d.sm);
    EXPECT_EQ(got.units, d.units);
    EXPECT_EQ(got.total_bytes, d.total_bytes);
    EXPECT_EQ(got.ceilings.source, d.ceilings.source);
    for (const auto rate : {&Ceilings::copy_bytes_per_s, &Ceilings::fp32_flops, &Ceilings::tf32_flops, &Ceilings::bf16_flops,
                            &Ceilings::fp16_flops, &Ceilings::fp8_flops, &Ceilings::link_bytes_per_s, &Ceilings::host_bytes_per_s})
      EXPECT_NEAR(got.ceilings.*rate, d.ceilings.*rate, 1e-5 * d.ceilings.*rate) << d.name;
    ASSERT_EQ(bool(got.efficiencies), bool(d.efficiencies)) << d.name;
    if (!d.efficiencies) continue;
    ASSERT_EQ(got.efficiencies->by_precision.size(), d.efficiencies->by_precision.size());
    EXPECT_EQ(device_file_text(got), device_file_text(d));
    EXPECT_TRUE(got.efficiencies->by_precision.at(0).of_kernels);
    std::string older = device_file_text(d);  // before kernels were counted a file had no version
    older.erase(older.find("  \"efficiency_version\""), older.find("  \"efficiencies\"") - older.find("  \"efficiency_version\""));
    EXPECT_FALSE(read(older).efficiencies->by_precision.at(0).of_kernels);
  }
}

TEST_F(DeviceInAFile, EveryNumberOfAnEfficiencyIsKept) {
  Efficiency e{.precision = {DType::bf16}};
  double n = 1.25;
  describe(e, [&](auto& member, const Description&) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>) member = n += 0.25;
  });
  Device d = device_described("h100");
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{e}, d.ceilings, ""});
  const Device got = read(device_file_text(d));
  ASSERT_TRUE(got.efficiencies);
  const Efficiency& back = got.efficiencies->by_precision.at(0);
  EXPECT_EQ(back.precision, e.precision);
  std::vector<double> written, seen;
  const auto numbers_into = [](std::vector<double>& list) {
    return [&list](const auto& member, const Description&) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>) list.push_back(member);
    };
  };
  describe(e, numbers_into(written));
  describe(back, numbers_into(seen));
  EXPECT_EQ(written, seen);
  EXPECT_EQ(got.efficiencies->ceilings.bf16_flops, got.ceilings.bf16_flops);
}

TEST_F(DeviceInAFile, WhatIsWrongInAnEfficiencyIsNamed) {
  EXPECT_EQ(refusal_of_efficiency(R"("product": 1.5)"), "");
  const auto says = [&](const char* fields, const char* words) {
    EXPECT_NE(refusal_of_efficiency(fields).find(words), std::string::npos) << refusal_of_efficiency(fields);
  };
  says(R"("prodct": 1.5)", "of its efficiencies, there is no key 'prodct'");
  says(R"("prodct": 1.5)", "did you mean 'product'?");
  says(R"("product": -1)", "of its efficiencies, product is -1, it must be a number from 0.01 to 10000");
  says(R"("attention_128_backward": 0)", "of its efficiencies, attention_128_backward is 0, it must be a number from 0.01 to 10000");
  EXPECT_EQ(refusal_of_efficiency(R"("forward_op_ms": 0, "backward_op_ms": 0, "link": 0)"), "") << "nothing is added";
  says(R"("within": 0.5)", "within is 0.5, it must be a number from 1 to 10000");
  says(R"("within": "1")", "within is \"1\"");
  EXPECT_NE(
      refusal(R"({"name": "X", "units": 2, "memory_mib": 1024, "efficiencies": [{"precision": "bf61"}]})").find("did you mean 'bf16'?"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"name": "X", "units": 2, "memory_mib": 1024, "efficiencies": {}})").find("efficiencies is {}, it must be a list"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"name": "X", "units": 2, "memory_mib": 1024, "efficiencies": [7]})").find("of its efficiencies, it holds no object"),
      std::string::npos);
}

TEST(Device, IsFoundAsPeopleTypeIt) {
  const auto key = [](const char* typed) { return device_described(typed).key; };
  for (const char* typed : {"rtx4090", "RTX 4090", "4090", "rtx-4090", "NVIDIA GeForce RTX 4090"})
    EXPECT_EQ(key(typed), "rtx4090") << typed;
  EXPECT_EQ(key("H100"), "h100");
  EXPECT_EQ(key("A6000"), "a6000");
  EXPECT_EQ(key("A100-40GB"), "a100-40");
  EXPECT_EQ(key("A100-80GB"), "a100");
  EXPECT_EQ(key("v100-32"), "v100");
  EXPECT_EQ(key("Tesla T4"), "t4");
  for (const char* typed : {"", "gb", "nvidia", "rtx", "40900", "h100x"}) EXPECT_THROW(device_described(typed), Error) << typed;
  for (const Device& d : known_devices())
    for (const std::string& name : {d.key, d.name}) EXPECT_EQ(known_device(name)->key, d.key) << name;
}

TEST(Device, SeveralOfThemAreANumberOfGpus) {
  for (const char* typed : {"8xh100", "8xH100", "8 x H100", "h100x8", "H100 X8"}) {
    try {
      (void)device_described(typed);
      ADD_FAILURE() << typed;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("; 8 of them are --device h100 --gpus 8"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(device_described("rtxpro6000").key, "rtxpro6000") << "an x of its own";
}

TEST(Device, IsFoundAsItsDriverNamesIt) {
  EXPECT_EQ(known_as("NVIDIA H100 80GB HBM3")->key, "h100");
  EXPECT_EQ(known_as("NVIDIA H200")->key, "h200");
  EXPECT_EQ(known_as("NVIDIA H1000"), nullptr);
  EXPECT_EQ(name_by_driver(device_described("a100-40")), "NVIDIA A100-SXM4-40GB");
  for (const auto& [typed, key] : {std::pair{"NVIDIA A100-SXM4-80GB", "a100"},
                                   {"a100-sxm4-40gb", "a100-40"},
                                   {"NVIDIA H100 80GB HBM3", "h100"},
                                   {"Tesla T4", "t4"},
                                   {"Tesla V100-SXM2-32GB", "v100"}}) {
    ASSERT_NE(known_device(typed), nullptr) << typed;
    EXPECT_EQ(known_device(typed)->key, key) << typed;
  }
  EXPECT_EQ(name_by_driver(cpu_device()), cpu_device().name);
  for (const Device& d : known_devices())
    for (const std::string& name : {name_by_driver(d), d.name}) EXPECT_EQ(known_as(name)->key, d.key) << name;
}

}  // namespace
}  // namespace headroom
