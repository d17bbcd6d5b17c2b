// The record: what was written is read back, cut off anywhere, damaged anywhere.
#include "dry/read.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "dry/card.h"

namespace {

using namespace headroom;
namespace fs = std::filesystem;

class Bytes {
 public:
  Bytes() {
    dry::FileHead head{};
    std::memcpy(head.magic, dry::record_magic, sizeof head.magic);
    head.version = dry::record_version;
    head.bytes = sizeof head;
    head.pid = 42;
    put(head);
  }
  template <class P>
  Bytes& entry(const P& payload, std::string tail = "") {
    tail.resize((tail.size() + 7) / 8 * 8);
    put(dry::Head{P::kind, std::uint16_t((sizeof(dry::Head) + sizeof payload + tail.size()) / 8), 7, 1000});
    put(payload);
    bytes += tail;
    return *this;
  }
  template <class T>
  void put(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string bytes;
};

Bytes usual() {
  Bytes b;
  b.entry(dry::Name{.id = 1, .length = 7}, "model.a");
  const dry::Frame frame{.file = 1, .function = 1, .line = 12, .reserved = 0};
  b.entry(dry::Stack{.id = 3, .count = 1}, {reinterpret_cast<const char*>(&frame), sizeof frame});
  b.entry(dry::BlockChange{.address = 512, .bytes = 1024, .allocated = 1024, .reserved = 2048, .device = 0, .stream = 0, .place = {3, 0}});
  dry::Launch launch{};
  launch.grid[0] = 4;
  b.entry(launch);
  return b;
}

class Folder {
 public:
  Folder() {
    path = fs::temp_directory_path() / ("headroom-read-test-" + std::to_string(getpid()));
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
  fs::path path;
};

TEST(DryRecord, GivesWhatWasWritten) {
  const Folder folder;
  const dry::Process p(folder.write("42.dry", usual().bytes));
  EXPECT_EQ(p.head().pid, 42);
  EXPECT_EQ(p.entries(), 4u);
  EXPECT_FALSE(p.damaged());
  EXPECT_EQ(p.name(1), "model.a");
  EXPECT_EQ(p.name(9), "");
  ASSERT_EQ(p.stack(3).size(), 1u);
  EXPECT_EQ(p.stack(3)[0].line, 12u);
  EXPECT_TRUE(p.stack(4).empty());
  int blocks = 0, launches = 0;
  const auto visit = [&](const dry::Head& head, const auto& payload) requires requires { payload.allocated; }
  {
    ++blocks;
    EXPECT_EQ(head.thread, 7u);
    EXPECT_EQ(payload.bytes, 1024);
  };
  p.each(visit);
  p.each([&](const dry::Head&, const dry::Launch& launch) { launches += launch.grid[0] == 4; });
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(launches, 1);
}

TEST(DryRecord, WhatIsOnDiskIsReadableWhereverTheProcessWasKilled) {
  const Folder folder;
  const std::string whole = usual().bytes;
  for (std::size_t n = sizeof(dry::FileHead); n <= whole.size(); n += 4) {
    const dry::Process cut(folder.write("1.dry", whole.substr(0, n)));
    EXPECT_LE(cut.entries(), 4u);
    const dry::Process zeros(folder.write("2.dry", whole.substr(0, n) + std::string(whole.size() - n + 64, 0)));
    EXPECT_LE(zeros.entries(), 4u);
  }
}

TEST(DryRecord, AnyDamagedByteIsNoReadOutside) {  // the address sanitizer looks on
  const Folder folder;
  const std::string whole = usual().bytes;
  for (std::size_t i = sizeof(dry::FileHead); i < whole.size(); ++i)
    for (const char to : {char(0xff), char(0x7f), char(1)}) {
      std::string bytes = whole;
      bytes[i] = to;
      const dry::Process p(folder.write("3.dry", bytes));
      std::size_t seen = 0;
      p.each([&](const dry::Head&, const dry::Name& n) { seen += p.name(n.id).size(); });
      p.each([&](const dry::Head&, const dry::Stack& s) { seen += p.stack(s.id).size(); });
      EXPECT_LE(seen, whole.size());
    }
}

TEST(DryRecord, AnotherFileIsRefusedByName) {
  const Folder folder;
  EXPECT_THROW(dry::Process(folder.write("a.dry", "short")), Error);
  EXPECT_THROW(dry::Process(folder.write("b.dry", std::string(4096, 'x'))), Error);
  std::string newer = usual().bytes;
  newer[8] = 99;
  EXPECT_THROW(dry::Process(folder.write("c.dry", newer)), Error);
  folder.write("42.dry", usual().bytes);
  EXPECT_EQ(dry::read_record(folder.path).size(), 1u);
}

TEST(DryCard, TextAndBack) {
  dry::Card card;
  card.name = "a card; of ours";
  card.memory_bytes = 25769803776;
  card.half_flops = 1.25e14;
  dry::Card back;
  EXPECT_TRUE(dry::read_card(dry::card_text(card), back));
  EXPECT_EQ(back.name, "a card, of ours");
  EXPECT_EQ(back.memory_bytes, card.memory_bytes);
  EXPECT_EQ(back.half_flops, card.half_flops);
  EXPECT_EQ(back.units, card.units);
  EXPECT_FALSE(dry::read_card("memory=many", back));
  EXPECT_FALSE(dry::read_card("colour=1", back));
  EXPECT_TRUE(dry::read_card("", back));
}

}  // namespace
