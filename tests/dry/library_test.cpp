// libheadroom_dry.so against a small program that calls CUDA's public functions: what it answers, and what it records.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "dry/cuda_types.h"
#include "dry/launch.h"
#include "dry/read.h"

namespace {

using namespace headroom;
namespace fs = std::filesystem;
using Numbers = std::vector<long long>;

class DryLibrary : public testing::Test {
 protected:
  DryLibrary() {
    std::string name = (fs::temp_directory_path() / "headroom-dry-test-XXXXXX").string();
    folder = mkdtemp(name.data());
    settings.card.memory_bytes = 1024 << 20;
    settings.card.context_bytes = 24 << 20;
    settings.card.name = "a card of the test";
    settings.card.units = 20;
    settings.card.sm = 89;
    settings.card.shared_bytes = 101376;
  }
  ~DryLibrary() override { fs::remove_all(folder); }

  // What the program prints under the library, a number a line; its exit status is kept.
  Numbers run(const std::string& word, const std::vector<std::string>& more = {}) {
    std::string line = "env";
    for (const auto& [name, value] : dry::environment(settings, HEADROOM_DRY_LIBRARY, folder)) line += " '" + name + "=" + value + "'";
    for (const std::string& m : more) line += " '" + m + "'";
    line += " '" + program + "' " + word;
    std::FILE* const pipe = popen(line.c_str(), "r");
    Numbers out;
    for (long long value; std::fscanf(pipe, "%lld", &value) == 1;) out.push_back(value);
    status = pclose(pipe);
    return out;
  }

  template <class Payload>
  std::vector<Payload> recorded() const {
    std::vector<Payload> out;
    for (const dry::Process& p : dry::read_record(folder))
      p.each([&](const dry::Head&, const Payload& payload) { out.push_back(payload); });
    return out;
  }
  std::set<std::string> noted(dry::Said said) const {
    std::set<std::string> out;
    for (const dry::Process& p : dry::read_record(folder))
      p.each([&](const dry::Head&, const dry::Note& n) {
        if (n.said == said) out.emplace(p.name(n.name));
      });
    return out;
  }

  std::string folder, program = HEADROOM_DRY_PROGRAM;
  dry::Dry settings;
  int status = -1;
};

TEST_F(DryLibrary, MemoryEndsWhereTheCardEnds) {
  EXPECT_EQ(run("memory"), (Numbers{1000, 936, 934, 1, 2, 0, 0, 0, 1000, 1, 1}));
  EXPECT_EQ(status, 0);
  const auto changes = recorded<dry::Driver>();
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].used, 64u << 20);
  EXPECT_EQ(changes.back().used, 0u);
  EXPECT_EQ(noted(dry::Said::full), std::set<std::string>{"cudaMalloc"});
}

TEST_F(DryLibrary, ARuntimeThatIsLoadedByItsNameIsAnsweredToo) {
  EXPECT_EQ(run("named", {std::string("NAMED_LIBRARY=") + HEADROOM_DRY_NAMED}),
            (Numbers{0, 7, 500, 1, 0, 7, 500, 1, 0, 7, 500, 1, 1000 - 3 * 64, 1}));
  EXPECT_EQ(status, 0);
}

TEST_F(DryLibrary, ARuntimeWithinALibraryIsNamedButWithinTheCompilerOrSharedWithAll) {
  for (const char* name : {"libnvrtc.so.13", "libcudart.so.13"}) {
    const fs::path library = fs::path(folder) / name;
    fs::copy_file(HEADROOM_DRY_NAMED, library);
    run("begins", {"NAMED_LIBRARY=" + library.string()});
    EXPECT_EQ(noted(dry::Said::static_runtime), std::set<std::string>{}) << name;
  }
  run("begins", {std::string("NAMED_LIBRARY=") + HEADROOM_DRY_NAMED});
  EXPECT_EQ(noted(dry::Said::static_runtime), std::set<std::string>{HEADROOM_DRY_NAMED});
  EXPECT_EQ(noted(dry::Said::refused), std::set<std::string>{}) << "NVIDIA's libraries ask for what a driver need not have";
}

TEST_F(DryLibrary, FreeNeighboursInAPoolAreOne) { EXPECT_EQ(run("pool"), (Numbers{32, 1, 32, 96, 65, 0})); }

TEST_F(DryLibrary, OtherProgramsTakeTheirShare) {
  settings.card.others_bytes = 900 << 20;
  EXPECT_EQ(run("memory")[0], 100);
}

TEST_F(DryLibrary, ValuesThatWereSentComeBack) {
  const long long half = 0x00000000ffffffff;
  EXPECT_EQ(run("values"), (Numbers{42, 42, half, 0, 7, 0, 42, 0, 0x0203020302030203, 3, 0}));
  const auto reads = recorded<dry::Read>();
  ASSERT_EQ(reads.size(), 11u);
  const std::vector<std::uint32_t> known = {1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0};
  for (std::size_t i = 0; i < reads.size(); ++i) EXPECT_EQ(reads[i].known, known[i]) << i;
}

TEST_F(DryLibrary, AnEventIsDoneWhenItsStreamIsByThePace) {
  EXPECT_EQ(run("streams"), (Numbers{1, 0, 600, 0, 0, 0, 1, 0}));
  EXPECT_EQ(recorded<dry::Copy>().size(), 1000u);
  EXPECT_EQ(recorded<dry::EventEntry>().size(), 3u);
  EXPECT_EQ(recorded<dry::Wait>().size(), 2u);
}

TEST_F(DryLibrary, AProgramThatAsksAgainAndAgainGoesOn) {
  const long long asked = run("asked_again")[0];
  EXPECT_GT(asked, 1000);
  EXPECT_LT(asked, 1000000);
}

// PyTorch's allocator is libc10_cuda.so; a program's own questions are answered by the pace.
TEST_F(DryLibrary, TheAllocatorIsToldLateWhatOnlyTheCardsSpeedDecides) {
  const std::string allocator = folder + "/libc10_cuda";
  fs::create_symlink(HEADROOM_DRY_PROGRAM, allocator);
  const auto marked = [this] {
    long long count = 0;
    for (const dry::Process& p : dry::read_record(folder))
      p.each([&](const dry::Head&, const dry::Mark& m) { count += p.name(m.what) == "events"; });
    return count;
  };
  EXPECT_EQ(run("order", {"HEADROOM_DRY_EVENTS=late"}), (Numbers{0, 600, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(marked(), 0);
  program = allocator;
  EXPECT_EQ(run("order", {"HEADROOM_DRY_EVENTS=late"}), (Numbers{0, 600, 600, 0, 600, 0, 1, 0}));
  EXPECT_EQ(run("order", {"HEADROOM_DRY_EVENTS=at once"}), (Numbers{0, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(run("order"), (Numbers{0, 600, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(marked(), 3);
}

// Looks so far, and whether the last one found the collective done. By this host's clock it would look every 100 ms.
TEST_F(DryLibrary, TheThreadBesideNcclLooksByThePaceOfTheProgram) {
  EXPECT_EQ(run("watchdog"), (Numbers{0, 0, 1, 1, 1, 1, 2, 0, 3, 1, 4, 0, 1}));
  EXPECT_EQ(run("watchdog", {"HEADROOM_DRY_EVENTS=late"}), (Numbers{0, 0, 0, 0, 1, 1, 1, 1, 2, 1, 2, 1, 1}))
      << "108 ms after a large sum no look comes; it is held for 200";
  long long marked = 0;
  for (const dry::Process& p : dry::read_record(folder))
    p.each([&](const dry::Head&, const dry::Mark& m) { marked += p.name(m.what) == "events"; });
  EXPECT_EQ(marked, 2) << "it let go of large sums: who gives their memory back later cannot be seen";
}

TEST_F(DryLibrary, TheThreadBesideNcclLooksWhereTheProgramWaitsForIt) { EXPECT_EQ(run("watchdog_is_waited_for"), (Numbers{1, 1})); }

TEST_F(DryLibrary, ACaptureReachesTheStreamsThatWaitForIt) {
  EXPECT_EQ(run("graphs"), (Numbers{1, 1, 0, 0}));
  const auto launches = recorded<dry::Launch>();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].graph, 1u);
  EXPECT_EQ(launches[1].graph, 1u);
  EXPECT_EQ(recorded<dry::Graph>().size(), 4u);
}

TEST_F(DryLibrary, PropertiesHaveTheLayoutOfEachVersion) {
  const Numbers one = {0, 1024, 8, 20, 101376, 1};
  Numbers both = one;
  both.insert(both.end(), one.begin(), one.end());
  both.insert(both.end(), {0, 20, 101});
  EXPECT_EQ(run("properties"), both);
}

TEST_F(DryLibrary, TheDriverCountsPagesAndNoAddresses) {
  EXPECT_EQ(run("driver"), (Numbers{0, 0, 1, 500, 0, 20, 0, 20, 0, 0, 0, 0, 1}));
  EXPECT_EQ(noted(dry::Said::static_runtime).size(), 1u);  // it asked for a private table
  EXPECT_EQ(noted(dry::Said::refused), std::set<std::string>{"cuNobodyHasThis"});
}

TEST_F(DryLibrary, WhatIsOnlyAcceptedIsNamed) {
  EXPECT_EQ(run("libraries"), (Numbers{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 801, 15}));
  EXPECT_EQ(noted(dry::Said::accepted), std::set<std::string>{"cudnnPoolingForward"});
  EXPECT_EQ(noted(dry::Said::no_workspace), std::set<std::string>{"cusolverDnCgeqrf_bufferSize"});
  EXPECT_EQ(noted(dry::Said::refused), std::set<std::string>{"cudaGraphicsUnmapResources"});
  const auto products = recorded<dry::Product>();
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(products[0].m * 1000000 + products[0].n * 1000 + products[0].k, 128256512);
  const auto marks = recorded<dry::Mark>();
  ASSERT_EQ(marks.size(), 2u) << "each workspace once";
  EXPECT_NE(marks[0].value, marks[1].value);
}

TEST_F(DryLibrary, AKnownPartThatIsCutInManyPlacesTakesNoMoreMemory) { EXPECT_EQ(run("pieces"), (Numbers{1, 1, 0})); }

TEST_F(DryLibrary, FactorsOfMatricesNeedWhatTheirRulesSay) {
  EXPECT_EQ(run("solver"), (Numbers{0, 831488, 2112, 68, 272640, 1245251, 4194432, 384, 9962136, 1524388, 0}));
  EXPECT_EQ(noted(dry::Said::no_workspace), std::set<std::string>{"cusolverDnXgeqrf_bufferSize"}) << "complex numbers have no rule";
}

// Without cuDNN's own answer a card may take more for any convolution.
TEST_F(DryLibrary, WorkspacesThatOnlyACardKnowsAreTold) {
  const Numbers printed = run("convolutions");
  ASSERT_EQ(printed.size(), 5u);
  const auto products = recorded<dry::Product>();
  ASSERT_EQ(products.size(), 4u);
  EXPECT_EQ(products.front().type_a, dry::cuda_type::single);
  EXPECT_EQ(products.back().type_a, dry::cuda_type::twice);
  const auto marks = recorded<dry::Mark>();
  ASSERT_EQ(marks.size(), 3u) << "one of the four has no workspace";
  const auto reserved = recorded<dry::Driver>();
  ASSERT_GE(reserved.size(), 2u);
  const auto first = std::int64_t(reserved[reserved.size() - 2].address), second = std::int64_t(reserved.back().address);
  EXPECT_EQ((std::array{marks[0].value, marks[1].value, marks[2].value}), (std::array{first, second, first}));
  EXPECT_EQ(noted(dry::Said::by_another_version), std::set<std::string>{"cuDNN convolutions"});
  EXPECT_TRUE(noted(dry::Said::no_workspace).empty());
}

TEST_F(DryLibrary, RecurrentLayersHaveWeightsInOrderAndScratch) {
  constexpr long long first = 4 * 1024 * (512 + 1024), second = 4 * 1024 * 2048, biases = 2 * 4 * 1024, all = first + second + 2 * biases;
  constexpr long long state = 256 * 16 * 1024;
  EXPECT_EQ(run("recurrent"), (Numbers{all * 4,
                                       169083264,             // what an H100 took
                                       11 * state * 4 + 256,  // and kept for backward
                                       0, 0, 1024 * 512, 4 * 1024 * 512 * 4, 1024 * 1024, (first + second - 1024 * 1024) * 4, 1024 * 1024,
                                       (all - 1024) * 4, 1024}));
  EXPECT_EQ(noted(dry::Said::by_rule), std::set<std::string>{"cuDNN LSTM"});
  // Of each of two layers one product with all inputs, then at each of 256 places one with the state, and a kernel of the cell.
  const auto products = recorded<dry::Product>();
  constexpr std::size_t passes = 2, layers = 2, places = 256, gradients_of_weights = layers;
  ASSERT_EQ(products.size(), passes * layers * (1 + places) + gradients_of_weights);
  EXPECT_EQ(products[0].m, 256 * 16);
  EXPECT_EQ(products[0].k, 512);
  EXPECT_EQ(products[1].m, 16);
  EXPECT_EQ(products[1].k, 1024);
  const auto& first_backward = products[layers * (1 + places) + 1];
  EXPECT_EQ(first_backward.k, 4 * 1024) << "the gates' gradients become the state's";
  EXPECT_EQ(products.back().k, 256 * 16);
  EXPECT_EQ(recorded<dry::Launch>().size(), layers * places * (1 + 2)) << "backward, sums come in pieces that are added";
}

TEST_F(DryLibrary, PinnedMemoryIsTheHosts) {
  settings.pinned_bytes = 64 << 20;
  EXPECT_EQ(run("host"), (Numbers{0, 2, 0, 1, 3, 0, 2, 0, 0}));
  const auto host = recorded<dry::Host>();
  ASSERT_EQ(host.size(), 4u);
  EXPECT_EQ(host[0].used, 8u << 20);
  EXPECT_EQ(host[1].managed, 1u);
  EXPECT_EQ(noted(dry::Said::host_full), std::set<std::string>{"cudaHostAlloc"});
}

TEST_F(DryLibrary, CardsTakeMemoryToMapWhatIsPinned) {
  settings.cards = 2;
  EXPECT_EQ(run("pinned_pages"), (Numbers{0, 6, 1000, 992, 998, 0, 2}));
  const auto changes = recorded<dry::Driver>();
  std::uint64_t most = 0;
  for (const dry::Driver& d : changes) most = std::max(most, d.used);
  EXPECT_EQ(most, 8u << 20) << "the byte's page, and 6 MiB for 3.25 GiB";
}

TEST_F(DryLibrary, HandlesAndStreamsTakeMemoryBesideTheContext) {
  EXPECT_EQ(run("beside"), (Numbers{0, 0, 0, 0, 0, 0})) << "they are in the context's bytes, unless the card says otherwise";
  settings.card.libraries_bytes = 0;
  EXPECT_EQ(run("beside"), (Numbers{64, 130, 226, 324, 332, 402}));
  settings.card.libraries_bytes = 244 << 20;
  EXPECT_EQ(run("beside"), (Numbers{0, 0, 0, 80, 88, 158})) << "a reserve has the rest";
}

TEST_F(DryLibrary, GraphsTakeMemoryUntilTheyAreDestroyed) {
  settings.card.libraries_bytes = 0;
  EXPECT_EQ(run("graph_memory"), (Numbers{0, 4, 10, 4, 0})) << "5 KiB for each of 1000 nodes, in pieces of 2 MiB, and a stream";
}

TEST_F(DryLibrary, VisibleCardsAreCounted) {
  settings.cards = 4;
  EXPECT_EQ(run("count"), (Numbers{0, 4, 4, 0, 1024}));
  EXPECT_EQ(run("count", {"CUDA_VISIBLE_DEVICES=2,0"}), (Numbers{0, 2, 4, 0, 1024}));
  EXPECT_EQ(run("count", {"CUDA_VISIBLE_DEVICES=1,7,2"}), (Numbers{0, 3, 8, 0, 1024})) << "the host of such a program has eight";
  EXPECT_EQ(run("count", {"CUDA_VISIBLE_DEVICES=1,-1,2"}), (Numbers{0, 1, 4, 0, 1024}));
  EXPECT_EQ(run("count", {"CUDA_VISIBLE_DEVICES=5000"}), (Numbers{100, 0, 4, 0, 1024}));
  EXPECT_EQ(run("count", {"CUDA_VISIBLE_DEVICES="}), (Numbers{100, 0, 4, 0, 1024}));
  EXPECT_EQ(run("count", {"LOCAL_WORLD_SIZE=6"}), (Numbers{0, 6, 6, 0, 1024})) << "a script has called the launcher";
}

TEST_F(DryLibrary, AKilledProcessLeavesWhatItDid) {
  EXPECT_TRUE(run("killed").empty());
  EXPECT_NE(status, 0);
  EXPECT_EQ(recorded<dry::Launch>().size(), 1000u);
  EXPECT_EQ(recorded<dry::Driver>().size(), 1u);
}

TEST_F(DryLibrary, AForkedProcessHasARecordOfItsOwn) {
  EXPECT_EQ(run("forked"), Numbers{0});
  const auto processes = dry::read_record(folder);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[1].head().parent, processes[0].head().pid);
  std::vector<std::int64_t> parent, child;
  processes[0].each([&](const dry::Head&, const dry::Driver& d) { parent.push_back(d.bytes >> 20); });
  processes[1].each([&](const dry::Head&, const dry::Driver& d) { child.push_back(d.bytes >> 20); });
  EXPECT_EQ(parent, (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(child, (std::vector<std::int64_t>{4}));
}

TEST_F(DryLibrary, ThreadsDoNotMeet) {
  EXPECT_EQ(run("threads"), Numbers{1000});
  const auto processes = dry::read_record(folder);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_FALSE(processes[0].damaged());
  EXPECT_EQ(recorded<dry::Launch>().size(), 16000u);
  EXPECT_EQ(recorded<dry::Driver>().size(), 32000u);
}

TEST_F(DryLibrary, RanksExchangeSmallValues) {
  settings.cards = 4;
  EXPECT_EQ(run("ranks"), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(recorded<dry::Collective>().size(), 4u * 10);
}

TEST_F(DryLibrary, ABarrierWaitsForTheOtherRank) {
  settings.cards = 2;
  EXPECT_EQ(run("barrier"), (Numbers{0, 0}));
}

TEST_F(DryLibrary, RanksExchangeLargeObjects) {
  settings.cards = 2;
  EXPECT_EQ(run("large_objects"), (Numbers{0, 0}));
}

TEST_F(DryLibrary, RanksThatForgetToTakeACardEachAreRefused) {
  settings.cards = 2;
  EXPECT_EQ(run("ranks_on_one_card"), Numbers{15});
  settings.cards = 1;  // they have no other
  EXPECT_EQ(run("ranks_on_one_card"), Numbers{15});
}

TEST_F(DryLibrary, ProcessesOnOneCardShareIt) {
  EXPECT_EQ(run("shared_card"), (Numbers{1000, 464, 1, 1, 1}));
  std::uint64_t most = 0;  // bytes of the card, by both: 512 and 100 MiB, and a context
  for (const auto& d : recorded<dry::Driver>()) most = std::max(most, d.used + d.others);
  EXPECT_EQ(most, std::uint64_t(700 + 100) << 20) << "and the child's is given back before the parent takes 700";
  std::uint64_t beside = 0;
  for (const auto& d : recorded<dry::Driver>()) beside = std::max(beside, d.others);
  EXPECT_EQ(beside, std::uint64_t(512 + 24) << 20);
}

TEST_F(DryLibrary, AnObserversWordsAreRecorded) {
  EXPECT_EQ(run("marks"), (Numbers{0, 5, 1}));
  const auto marks = recorded<dry::Mark>();
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].value, 3);
  ASSERT_EQ(recorded<dry::Launch>().size(), 1u);
  EXPECT_EQ(recorded<dry::Launch>()[0].scope, 5u);
}

TEST_F(DryLibrary, NvidiaSmiAnswersFromTheDescription) {
  settings.cards = 2;
  dry::environment(settings, HEADROOM_DRY_LIBRARY, folder);
  const auto said = [&](const std::string& words) {
    std::FILE* const pipe = popen(("'" + folder + "/nvidia-smi' " + words).c_str(), "r");
    std::string out(4096, 0);
    out.resize(std::fread(out.data(), 1, out.size(), pipe));
    EXPECT_EQ(pclose(pipe), 0);
    return out;
  };
  EXPECT_EQ(said("--query-gpu=index,name,memory.total --format=csv,noheader,nounits"),
            "0, a card of the test, 1024\n1, a card of the test, 1024\n");
  EXPECT_EQ(said("--query-gpu=memory.total,uuid --format=csv -i 1"), "memory.total [MiB], uuid\n1024 MiB, GPU-headroom-dry-1\n");
  EXPECT_EQ(said("--query-gpu name --format csv,noheader"), "a card of the test\na card of the test\n");
  EXPECT_EQ(said("-L").substr(0, 27), "GPU 0: a card of the test (");
  EXPECT_EQ(said("--query-compute-apps=pid,used_memory --format=csv"), "pid, used_memory [MiB]\n");
  const std::string table = said("");
  EXPECT_NE(table.find("    0MiB /   1024MiB |"), std::string::npos) << table;
  EXPECT_NE(table.find("|   1  a card of the test"), std::string::npos) << table;
  EXPECT_NE(table.find("No running processes found"), std::string::npos) << table;
  std::stringstream lines(table);
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) EXPECT_TRUE(line.empty() || line.size() == 91) << line;
  EXPECT_NE(said("-q -d MEMORY").find("        Total                             : 1024 MiB"), std::string::npos);
  EXPECT_NE(said("-q -x").find("<fb_memory_usage><total>1024 MiB</total>"), std::string::npos);
  EXPECT_EQ(std::system(("'" + folder + "/nvidia-smi' topo -m 2>'" + folder + "/refused'").c_str()), 2 << 8);
  EXPECT_EQ(std::system(("'" + folder + "/nvidia-smi' -i 7 >'" + folder + "/refused'").c_str()), 6 << 8) << "there are two";
}

TEST_F(DryLibrary, NvidiaSmiSaysWhatProcessesTake) {
  settings.cards = 2;
  dry::environment(settings, HEADROOM_DRY_LIBRARY, folder);
  EXPECT_EQ(run("smi"), (Numbers{536, 0, 536, 7, 0, 1, 1, 536}))
      << "MiB of both cards, of the process: 512, and a context of 24; NVML has room for none, then for two";
}

// The limit of a file's size stands for a disk that is full.
TEST_F(DryLibrary, ARecordThatIsCutSaysSo) {
  run("speed", {"sh", "-c", "trap \"\" XFSZ; ulimit -f 16384; exec \"$0\" \"$@\""});  // 8 MiB
  EXPECT_EQ(status, 0) << "the program goes on";
  const auto cut = dry::read_record(folder);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].head().cut, 1u);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  run("marks");
  EXPECT_EQ(dry::read_record(folder)[0].head().cut, 0u);
}

TEST_F(DryLibrary, NothingIsWrittenWithoutAFolder) {
  EXPECT_EQ(run("memory", {"HEADROOM_DRY_FOLDER=/nowhere/at/all"}).size(), 11u);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(dry::read_record(folder).empty());
}

// Every CUDA function that PyTorch's wheels import is answered here, or is one that its own library answers without a card.
TEST(DryNames, EveryImportOfPyTorchIsAnswered) {
  const auto words = [](const std::string& path) {
    std::ifstream in(path);
    std::set<std::string> out;
    for (std::string line; std::getline(in, line);)
      if (!line.empty() && line[0] != '#') out.insert(line.substr(0, line.find(' ')));
    return out;
  };
  const std::string data = std::string(HEADROOM_SOURCE_DIR) + "/tests/data/dry/";
  const std::set<std::string> imports = words(data + "imports.txt"), left = words(data + "left_to_their_libraries.txt");
  EXPECT_GT(imports.size(), 700u);
  std::stringstream symbols;
  {
    std::FILE* const pipe = popen("nm -D --defined-only '" HEADROOM_DRY_LIBRARY "'", "r");
    char part[65536];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) symbols.write(part, std::streamsize(n));
    ASSERT_EQ(pclose(pipe), 0);
  }
  std::set<std::string> answered;
  for (std::string address, kind, name; symbols >> address >> kind >> name;) answered.insert(name);
  ASSERT_GT(answered.size(), 2000u);
  for (const std::string& name : imports)
    EXPECT_TRUE(answered.contains(name) != left.contains(name))
        << name << (left.contains(name) ? " is answered twice" : " is answered by nobody");
}

}  // namespace
