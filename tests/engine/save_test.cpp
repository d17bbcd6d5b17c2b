#include "engine/files/save.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "engine/files/safetensors.h"
#include "engine/recipe/schedule.h"
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
        std::pair{"bf16", Gradients::half}, std::pair{"fp16", Gradients::half}, std::pair{"fp8", Gradients::whole}}) {
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
    EXPECT_EQ(second.moments(1), through.moments(1)) << precision << ", gradients " << name_of(gradients);
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
    EXPECT_EQ(second.moments(1), through.moments(1));
    load_weights(whole.training, *newest_checkpoint(folder.path));
    EXPECT_EQ(whole.weights(), first.weights());
  }
}

TEST(Save, WhatTheDiskRefusesIsCalledByItsName) {
  const Folder folder;
  fs::create_directories(folder.path);
  const std::string file = folder.path + "/model.safetensors";
  fs::create_symlink("/dev/full", file);
  try {
    errno = ENOENT;  // an earlier call's
    write_safetensors(file, {}, {});
    FAIL() << "it was never on a disk";
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("No space left on device"), std::string::npos) << e.what(); }
}

TEST(Save, AFailedSaveLeavesNothingBehind) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  save(w.training, {1, 0, "{}"}, folder.path);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &most);
    try {
      save(w.training, {2, 0, "{}"}, folder.path);
    } catch (const Error&) { _exit(7); }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1) << "no part of the second";
  EXPECT_NO_THROW(load(w.training, *newest_checkpoint(folder.path)));
}

TEST(Save, FilesOfTheUsersStay) {
  const Folder folder;
  fs::create_directories(folder.path);
  const auto put = [&](const std::string& name) { std::ofstream(folder.path + "/" + name) << "mine"; };
  const std::vector<std::string> mine{"step-00000002-keep.safetensors", "step-best.safetensors", "step-2.safetensors",
                                      "step-000000002.safetensors",     "step-.safetensors",     "step-00000003.safetensors"};
  for (const auto& name : mine) put(name);
  Workshop w({tiny(), 1, 4, {}});
  for (int step : {4, 5, 6, 7}) save(w.training, {step, 0, "{}"}, folder.path);
  for (const auto& name : mine) EXPECT_TRUE(fs::exists(folder.path + "/" + name)) << name;
  EXPECT_FALSE(fs::exists(folder.path + "/step-00000004.safetensors"));
  EXPECT_EQ(fs::path(*newest_checkpoint(folder.path)).filename(), "step-00000007.safetensors") << "not step-best";
}

TEST(Save, TheNewestIsTheOneOfMostSteps) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  for (const std::int64_t step : {99999998ll, 99999999ll, 100000000ll}) save(w.training, {step, 0, "{}"}, folder.path);
  EXPECT_EQ(fs::path(*newest_checkpoint(folder.path)).filename(), "step-100000000.safetensors");
  EXPECT_FALSE(fs::exists(folder.path + "/step-99999998.safetensors"));
}

// A text in the header of a checkpoint, replaced by another of the same length.
void change_header(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto at = bytes.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  ASSERT_EQ(from.size(), to.size());
  bytes.replace(at, to.size(), to);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(Save, MetadataIsInsideTheChecksum) {
  const std::pair<const char*, const char*> changes[] = {
      {R"("step":"4")", R"("step":"6")"}, {R"("seed":"7")", R"("seed":"8")"}, {R"(\"lr\":1)", R"(\"lr\":2)"},
      {"checkpoint 2", "checkpoint 1"},   {R"("checksum")", R"("checksun")"}, {R"("header_checksum")", R"("header_checksun")"},
  };
  for (const auto& [from, to] : changes) {
    const Folder folder;
    Workshop w({tiny(), 1, 4, {}});
    save(w.training, {4, 7, R"({"lr":1})"}, folder.path);
    const std::string path = *newest_checkpoint(folder.path);
    EXPECT_NO_THROW(describe_checkpoint(path));
    change_header(path, from, to);
    for (const bool whole : {false, true}) try {
        whole ? load(w.training, path) : void(describe_checkpoint(path));
        ADD_FAILURE() << from << " may become " << to;
      } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("is damaged"), std::string::npos) << e.what(); }
  }
}

// As they were before the header had a checksum.
TEST(Save, OlderCheckpointsAreReadWhereTheyAgreeWithTheirName) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  save(w.training, {4, 7, "{}"}, folder.path);
  const std::string path = *newest_checkpoint(folder.path);
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto at = bytes.find(R"("header_checksum":)");
  ASSERT_NE(at, std::string::npos);
  const auto end = bytes.find(',', at);
  ASSERT_LT(end, bytes.find('}', at)) << "a key follows, as model does";
  const std::string key = bytes.substr(at, end + 1 - at);
  bytes.erase(at, key.size());
  bytes.insert(bytes.find("}}") + 2, std::string(key.size(), ' '));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  EXPECT_THROW(describe_checkpoint(path), Error) << "one of today without its checksum";
  change_header(path, "checkpoint 2", "checkpoint 1");
  EXPECT_EQ(describe_checkpoint(path).position.step, 4);
  EXPECT_NO_THROW(load(w.training, path));
  change_header(path, R"("step":"4")", R"("step":"6")");
  try {
    describe_checkpoint(path);
    ADD_FAILURE() << "its name says 4";
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("it says that it is of step 6"), std::string::npos) << e.what(); }
}

void write_file(const std::string& path, const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&length), 8) << header << data;
}

TEST(Safetensors, TensorsThatOverlapLeaveGapsOrShareANameAreRefused) {
  const Folder folder;
  fs::create_directories(folder.path);
  const std::string path = folder.path + "/x.safetensors";
  const auto tensor = [](const char* name, int from, int to) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, to - from, from, to);
  };
  const auto refusal = [&](const std::string& inside) -> std::string {
    write_file(path, "{" + inside + "}", "01234567");
    try {
      read_safetensors_header(path);
    } catch (const Error& e) { return e.what(); }
    return "";
  };
  const auto says = [&](const std::string& inside, const char* what) {
    const std::string said = refusal(inside);
    EXPECT_NE(said.find(what), std::string::npos) << inside << ": " << said;
  };
  EXPECT_EQ(refusal(tensor("a", 0, 4) + "," + tensor("b", 4, 8)), "");
  EXPECT_EQ(refusal(tensor("b", 0, 4) + "," + tensor("a", 4, 8)), "") << "in any order";
  EXPECT_EQ(refusal(tensor("z", 4, 4) + "," + tensor("a", 0, 4) + "," + tensor("b", 4, 8)), "") << "one of no bytes";
  says(tensor("a", 0, 5) + "," + tensor("b", 4, 8), "b overlaps another tensor");
  says(tensor("a", 0, 8) + "," + tensor("b", 0, 8), "b overlaps another tensor");
  says(tensor("a", 0, 3) + "," + tensor("b", 4, 8), "1 bytes before b belong to no tensor");
  says(tensor("a", 0, 4), "4 bytes at its end belong to no tensor");
  says(tensor("a", 0, 4) + "," + tensor("a", 4, 8), "names 'a' twice");
  says(R"("a":)" + std::string(100'000, '[') + std::string(100'000, ']'), "nested deeper");
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(read_safetensors_header(path), Error) << "it waits for nobody";
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
  change_sizes(other.model, [](PlainModel& m) { m.ffn += 1; });
  Workshop stranger(other);
  save(stranger.training, {3, 0, "{}"}, folder.path);
  EXPECT_THROW(load(w.training, *newest_checkpoint(folder.path)), Error);
  const std::string strange = folder.path + "/step-00000099.safetensors";
  write_safetensors(strange, {}, {});
  EXPECT_THROW(describe_checkpoint(strange), Error);
}

TEST(Save, AFolderBelongsToOneTrainingAtATime) {
  const Folder folder;
  {
    const Descriptor mine = claim_folder(folder.path);
    EXPECT_TRUE(bool(mine));
    EXPECT_THROW((void)claim_folder(folder.path), Error);
  }
  EXPECT_NO_THROW((void)claim_folder(folder.path)) << "until its training ends, in whatever way";
  EXPECT_TRUE(fs::is_empty(folder.path));
}

TEST(Save, ACopyUnderAnotherNameIsNotTheNewestAndIsNeverReplaced) {
  const Folder folder;
  Workshop w({tiny(), 1, 4, {}});
  save(w.training, {3, 0, "{}"}, folder.path);
  const std::string own = *newest_checkpoint(folder.path), copy = folder.path + "/step-99999999.safetensors",
                    theirs = folder.path + "/step-00000050.safetensors";
  fs::copy_file(own, copy);
  write_safetensors(theirs, {}, {{"format", "pt"}});
  EXPECT_EQ(*newest_checkpoint(folder.path), own);
  EXPECT_NO_THROW(check_free(folder.path, 3, 49));
  EXPECT_NO_THROW(check_free(folder.path, 50, 99999998));
  EXPECT_THROW(check_free(folder.path, 49, 50), Error);
  EXPECT_THROW(check_free(folder.path, 50, 99999999), Error);
  for (int step : {4, 5, 6}) save(w.training, {step, 0, "{}"}, folder.path);
  EXPECT_TRUE(fs::exists(copy) && fs::exists(theirs));
  EXPECT_FALSE(fs::exists(own));
  // One that cannot be read may be the newest of ours: it is reported, not passed over.
  std::ofstream(folder.path + "/step-00000060.safetensors") << "cut short";
  EXPECT_EQ(fs::path(*newest_checkpoint(folder.path)).filename(), "step-00000060.safetensors");
  fs::remove(folder.path + "/step-00000060.safetensors");
  fs::remove(folder.path + "/step-00000006.safetensors");
  fs::remove(folder.path + "/step-00000005.safetensors");
  EXPECT_EQ(newest_checkpoint(folder.path), std::nullopt);
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
