#include "base/text.h"

#include <gtest/gtest.h>

#include "base/device.h"
#include "base/error.h"

namespace headroom {
namespace {

std::string refusal_of_text(auto&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::bad_argument);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line, please";
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Text, BytesExactlyAndInWords) {
  EXPECT_EQ(bytes_exactly(1610612736), "1610612736 bytes (1.50 GiB)");
  EXPECT_EQ(bytes_exactly(1000), "1000 bytes");
}

TEST(Text, BytesAndTimesReadAsPeopleSayThem) {
  EXPECT_EQ(bytes_in_words(0), "0 B");
  EXPECT_EQ(bytes_in_words(1023), "1023 B");
  EXPECT_EQ(bytes_in_words(1.5 * 0x1p30), "1.50 GiB");
  EXPECT_EQ(bytes_in_words(-2048), "-2.00 KiB");
  EXPECT_EQ(time_in_words(0.183), "183 µs");
  EXPECT_EQ(time_in_words(245'000), "4 min 5 s");
  EXPECT_EQ(time_in_words(3'660'000), "1 h 1 min");
  EXPECT_EQ(columns_of("µs …"), 4);
}

TEST(Text, AShortenedTextKeepsBothEnds) {
  EXPECT_EQ(shortened("0123456789", 10), "0123456789");
  EXPECT_EQ(shortened("0123456789A", 10), "01234…789A");
  EXPECT_EQ(shortened("µµµµµµµµµµµ", 5), "µµ…µµ");
}

TEST(Text, ListsRefuseEmptyItems) {
  EXPECT_EQ(parse_list("256,1024", "--len"), (std::vector<std::string>{"256", "1024"}));
  for (auto bad : {"256,", ",256", "256,,1024", ""})
    EXPECT_NE(refusal_of_text([&] { parse_list(bad, "--len"); }).find("--len"), std::string::npos);
}

TEST(Text, NumbersSayTheirRange) {
  EXPECT_EQ(parse_integer("42", "--n"), 42);
  EXPECT_NE(refusal_of_text([] { parse_integer("-5", "--len"); }).find("at least 0"), std::string::npos);
  EXPECT_NE(refusal_of_text([] { parse_integer("0", "--dim", {1, 256}); }).find("from 1 to 256"), std::string::npos);
  EXPECT_EQ(refusal_of_text([] { parse_integer("18446744073709551615", "--seed"); }),
            "--seed: '18446744073709551615' is not a whole number from 0 to 9223372036854775807");
  for (auto bad : {"", "12x", "1e3", " 4", "99999999999999999999"}) refusal_of_text([&] { parse_integer(bad, "--n"); });
  EXPECT_DOUBLE_EQ(parse_fraction("0.5%", "--until"), 0.005);
  EXPECT_DOUBLE_EQ(parse_fraction("0.005", "--until"), 0.005);
  for (auto bad : {"0", "-1%", "100%", "2", "x%", "nan"}) refusal_of_text([&] { parse_fraction(bad, "--until"); });
}

TEST(Text, BytesAreReadAsPeopleWriteThem) {
  for (auto gib : {"24", "24GiB", "24 GiB", "24gib", " 24 GIB ", "24Gi", "24.0 gib"})
    EXPECT_EQ(parse_bytes(gib, "--memory"), 24ull << 30) << gib;
  for (auto gb : {"80GB", "80 GB", "80gb", "80 Gb", "80000MB", "0.08tb"}) EXPECT_EQ(parse_bytes(gb, "--memory"), 80'000'000'000ull) << gb;
  EXPECT_EQ(parse_bytes("512MiB", "--memory"), 512ull << 20);
  EXPECT_EQ(parse_bytes("4096 b", "--memory"), 4096u);
  EXPECT_EQ(parse_bytes("4096", "--bytes", "B"), 4096u);
  EXPECT_EQ(parse_bytes("4 kib", "--bytes", "B"), 4096u);
  for (auto bad : {"0", "-1", "lots", "1e30", "5 GiB more", "inf", "nan", "", "GiB", "5 G iB", "0.5B", "-1G"})
    EXPECT_NE(refusal_of_text([&] { parse_bytes(bad, "--memory"); }).find("is not an amount of memory"), std::string::npos) << bad;
  EXPECT_EQ(refusal_of_text([] { parse_bytes("24G", "--memory"); }),
            "--memory: '24G' is 24 GiB to some and 24 GB to others; write the one that is meant");
  EXPECT_EQ(refusal_of_text([] { parse_bytes("1.5 m", "--bytes"); }),
            "--bytes: '1.5 m' is 1.5 MiB to some and 1.5 MB to others; write the one that is meant");
}

TEST(Text, ACommandIsShownAsAShellTakesIt) {
  EXPECT_EQ(as_typed_in_a_shell(std::vector<std::string>{"python3", "my dir/it's.py", "--batch", "{batch}", "{1,2}", ""}),
            "python3 'my dir/it'\\''s.py' --batch {batch} '{1,2}' ''");
}

TEST(Text, ASlipOfTheFingerIsUnderstood) {
  EXPECT_EQ(closest("flsah", {"plain", "flash"}), "flash");
  EXPECT_EQ(closest("attenton", {"attention", "device"}), "attention");
  EXPECT_EQ(closest("zebra", {"plain", "flash"}), "");
}

TEST(Device, KnownOnesAreWholeAndSayWhereTheirNumbersComeFrom) {
  ASSERT_GE(known_devices().size(), 7u);
  for (const Device& d : known_devices()) {
    EXPECT_EQ(device_described(d.key).name, d.name);
    EXPECT_GT(d.memory_bytes, 14ull << 30) << d.name;
    EXPECT_GT(d.ceilings.fp16_flops, d.ceilings.fp32_flops) << d.name;
    if (d.sm >= 80) { EXPECT_GT(d.ceilings.bf16_flops, d.ceilings.fp32_flops) << d.name; }
    EXPECT_GT(d.ceilings.copy_bytes_per_s, 2.5e11) << d.name;
    EXPECT_FALSE(d.ceilings.source.empty()) << d.name;
  }
  EXPECT_EQ(device_described("h200").ceilings.source.substr(0, 8), "measured");
  EXPECT_NE(refusal_of_text([] { device_described("h2000"); }).find("did you mean 'h200'"), std::string::npos);
}

TEST(Device, ThisMachineHasMemoryAndCores) {
  const Device d = cpu_device();
  EXPECT_GE(d.units, 1);
  EXPECT_GT(d.memory_bytes, 1ull << 26);
  EXPECT_FALSE(d.name.empty());
}

TEST(Text, AnEstimateHasTheDigitsThatItsIntervalLetsBeKnown) {
  EXPECT_EQ(estimate_in_words(962.3, 581.2, 1893), "960 (580 to 1900)");
  EXPECT_EQ(estimate_in_words(26846, 26100, 27400), "26800 (26100 to 27400)");
  EXPECT_EQ(estimate_in_words(1099000, 843000, 1.34e6), "1100000 (840000 to 1300000)");
  EXPECT_EQ(estimate_in_words(0.0321, 0.02, 0.05), "0.032 (0.02 to 0.05)");
}

}  // namespace
}  // namespace headroom
