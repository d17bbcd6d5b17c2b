// tools/configure, with programs in place of cmake, nvidia-smi and clang++: what a first `make run` builds, what every other target builds, and which
// compiler builds for the sanitizers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

class Configure : public testing::Test {
 protected:
  Configure()
      : folder_(fs::temp_directory_path() / ("headroom_configure_" + std::to_string(std::rand()) + "_" + std::to_string(::getpid()))) {
    program("cmake", "for word in \"$@\"; do printf '%s ' \"$word\"; done >>asked");
    program("nvidia-smi", "exit 9");
  }
  ~Configure() override { fs::remove_all(folder_); }

  void program(const std::string& name, const std::string& body) {
    fs::create_directories(folder_ / "bin");
    std::ofstream(folder_ / "bin" / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(folder_ / "bin" / name, fs::perms::owner_all);
  }
  std::string asked_of_cmake(const std::string& words, const std::string& kernels = "", const std::string& compiler = "") {
    fs::remove(folder_ / "asked");
    const std::string environment = "CC= CXX=" + compiler + " KERNELS=" + kernels + " PATH=\"" + (folder_ / "bin").string() + ":$PATH\" ";
    const std::string command =
        "cd '" + folder_.string() + "' && " + environment + "sh '" HEADROOM_SOURCE_DIR "/tools/configure' " + words + " >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    std::ostringstream text;
    if (std::ifstream file(folder_ / "asked"); file) text << file.rdbuf();
    return text.str();
  }
  fs::path folder_;
};

const std::string every_card = "-D HEADROOM_CUDA_ARCHITECTURES=80-virtual;90-real ";

TEST_F(Configure, a_first_run_without_a_card_builds_neither_kernels_nor_tests) {
  const auto asked = asked_of_cmake("program");
  EXPECT_NE(asked.find("-D HEADROOM_TESTS=OFF -D HEADROOM_CUDA=OFF "), std::string::npos) << asked;
}

TEST_F(Configure, a_first_run_beside_cards_builds_their_kernels_alone) {
  program("nvidia-smi", "printf '9.0\\n8.9\\n9.0\\n'");
  const auto asked = asked_of_cmake("program");
  EXPECT_NE(asked.find("-D HEADROOM_TESTS=OFF -D HEADROOM_CUDA=AUTO -D HEADROOM_CUDA_ARCHITECTURES=89-real;90-real "), std::string::npos)
      << asked;
}

TEST_F(Configure, a_run_leaves_what_is_configured_as_it_is) {
  fs::create_directories(folder_ / "build/release");
  std::ofstream(folder_ / "build/release/build.ninja") << "";
  EXPECT_EQ(asked_of_cmake("program"), "");
  EXPECT_NE(asked_of_cmake("program", "OFF").find("-D HEADROOM_CUDA=OFF "), std::string::npos);
}

TEST_F(Configure, kernels_can_be_asked_for_or_left_out) {
  const auto with = asked_of_cmake("program", "ON"), without = asked_of_cmake("", "OFF");
  EXPECT_NE(with.find("-D HEADROOM_CUDA=ON " + every_card), std::string::npos) << with;
  EXPECT_NE(without.find("-D HEADROOM_TESTS=ON -D HEADROOM_CUDA=OFF "), std::string::npos) << without;
}

TEST_F(Configure, every_other_target_builds_everything) {
  program("nvidia-smi", "echo 8.9");
  const auto asked = asked_of_cmake("");
  EXPECT_NE(asked.find("-D HEADROOM_TESTS=ON -D HEADROOM_CUDA=AUTO " + every_card), std::string::npos) << asked;
}

TEST_F(Configure, the_sanitizers_are_built_by_clang_where_what_it_builds_runs) {
  program("cmake", "printf '%s' \"$CXX $*\" >>asked");
  const std::string builds = "while [ $# -gt 1 ] && [ \"$1\" != -o ]; do shift; done; ";
  program("clang++", builds + "printf '#!/bin/sh\\nexit 0\\n' >\"$2\" && chmod +x \"$2\"");
  EXPECT_EQ(asked_of_cmake("asan").rfind("clang++ --preset asan", 0), 0u);
  EXPECT_EQ(asked_of_cmake("asan", "", "g++").rfind("g++ --preset asan", 0), 0u) << "who asks for a compiler gets it";
  program("clang++", builds + "printf '#!/bin/sh\\nexit 1\\n' >\"$2\" && chmod +x \"$2\"");
  EXPECT_EQ(asked_of_cmake("asan").rfind(" --preset asan", 0), 0u) << "a program that ends in an error";
  program("clang++", "exit 1");
  EXPECT_EQ(asked_of_cmake("asan").rfind(" --preset asan", 0), 0u) << "no library of the sanitizers";
}

}  // namespace
