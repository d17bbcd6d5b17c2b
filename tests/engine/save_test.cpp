#include "engine/save.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "engine/safetensors.h"
#include "engine/schedule.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string path = (fs::temp_directory_path() / fmt::format("headroom-save-{}", ::getpid())).string();
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

void train(Workshop& w, int from, int to) {
  adamw::Hyper h;
  h.lr = 0.01, h.dynamic_scale = w.training.recipe().precision.dtype == DType::f16;
  for (int s = from; s < to; ++s) {
    w.fill(std::uint64_t(s));
    w.training.backward();
    w.training.update(h);
  }
}

TEST(Save, AResumedRunIsTheRunThatNeverStopped) {
  for (const auto& [precision, gradients] :
       {std::pair{"fp32", Gradients::whole}, std::pair{"bf16", Gradients::whole}, std::pair{"fp16", Gradients::whole},
        std::pair{"bf16", Gradients::half}, std::pair{"fp16", Gradients::half}}) {
    const Folder folder;
    Recipe r{tiny(), 2, 8, *precision_named(precision)};
    r.holding.gradients = gradients;
    Workshop through(r), first(r), second(r);
    train(through, 0, 9);
    train(first, 0, 4);
    save(first.training, {4, 7, "{}"}, folder.path);
    second.training.initialise(12345);  // whatever was there before
    load(second.training, *newest_checkpoint(folder.path));
    EXPECT_EQ(describe_checkpoint(*newest_checkpoint(folder.path)).position.step, 4);
    train(second, 4, 9);
    EXPECT_EQ(second.weights(), through.weights()) << precision << ", gradients " << name_of(gradients);
    EXPECT_EQ(second.gather(&Param::v), through.gather(&Param::v)) << precision << ", gradients " << name_of(gradients);
  }
}

// A checkpoint says nothing about how weights were held: FP32 in the file, wherever their halves lay.
TEST(Save, MastersInHalvesAreSavedWholeAndComeBackToTheBit) {
  for (Gradients gradients : {Gradients::half, Gradients::none}) {
    const Folder folder;
    Recipe r{tiny(), 2, 8, *precision_named("bf16")};
    Workshop whole(r);
    r.holding = {Masters::halves, Updating::during, gradients};
    Workshop through(r), first(r), second(r);
    const auto train = [](Workshop& w, int from, int to) {
      for (int s = from; s < to; ++s) w.fill(std::uint64_t(s)), w.training.step({.lr = 0.01, .clip = 0});
    };
    train(through, 0, 9);
    train(first, 0, 4);
    save(first.training, {4, 7, "{}"}, folder.path);
    second.training.initialise(12345);
    load(second.training, *newest_checkpoint(folder.path));
    EXPECT_EQ(second.weights(), first.weights());
    train(second, 4, 9);
    EXPECT_EQ(second.weights(), through.weights());
    EXPECT_EQ(second.gather(&Param::v), through.gather(&Param::v));
    load_weights(whole.training, *newest_checkpoint(folder.path));
    EXPECT_EQ(whole.weights(), first.weights());
  }
}

TEST(Save, WhatTheDiskRefusesIsCalledByItsName) {
  const Folder folder;
  fs::create_directories(folder.path);
  const std::string file = folder.path + "/model.safetensors";
  fs::create_symlink("/dev/null", file + ".part");  // takes every byte and cannot be settled
  try {
    errno = ENOENT;  // of some call before
    write_safetensors(file, {}, {});
    FAIL() << "it was never on a disk";
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("Invalid argument"), std::string::npos) << e.what(); }
}

TEST(Save, KeepsTheTwoNewest) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  for (int step : {1, 2, 10, 11}) save(w.training, {step, 0, "{}"}, folder.path);
  EXPECT_EQ(fs::path(*newest_checkpoint(folder.path)).filename(), "step-00000011.safetensors");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 2);
}

TEST(Save, ADamagedFileIsRefusedAndChangesNothing) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  save(w.training, {3, 0, "{}"}, folder.path);
  const std::string path = *newest_checkpoint(folder.path);
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  train(w, 0, 1);
  const auto before = w.weights();
  const auto refused = [&](const std::string& bytes, const char* how) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(load(w.training, path), Error) << how;
    EXPECT_EQ(w.weights(), before) << how;
  };
  for (std::size_t cut : {std::size_t(0), std::size_t(5), std::size_t(100), good.size() / 2, good.size() - 1})
    refused(good.substr(0, cut), "cut short");
  for (std::size_t at : {std::size_t(0), std::size_t(9), good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 0x41);
    refused(bad, "one byte changed");
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  EXPECT_NO_THROW(load(w.training, path));
  EXPECT_NE(w.weights(), before);
}

TEST(Save, AForeignCheckpointIsRefused) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  Recipe other{tiny(), 1, 4, {}};
  other.model.ffn += 1;
  Workshop stranger(other);
  save(stranger.training, {3, 0, "{}"}, folder.path);
  EXPECT_THROW(load(w.training, *newest_checkpoint(folder.path)), Error);
  write_safetensors(folder.path + "/step-00000099.safetensors", {}, {});
  EXPECT_THROW(describe_checkpoint(*newest_checkpoint(folder.path)), Error);
}

TEST(Schedule, WarmsUpThenFalls) {
  const Schedule s{1.0, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(9), 1.0);
  EXPECT_DOUBLE_EQ(s.at(10), 1.0);
  EXPECT_NEAR(s.at(60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  for (int i = 11; i < 110; ++i) EXPECT_LT(s.at(i), s.at(i - 1));
}

}  // namespace
}  // namespace headroom::engine
