// Every option with every bad value, and every file that is none where one is read.
#include "tests/cli/attack.h"

namespace headroom {
namespace {

TEST_F(Attack, Attention) { attack_options("attention"); }
TEST_F(Attack, Memory) { attack_options("memory"); }
TEST_F(Attack, Plan) { attack_options("plan"); }
TEST_F(Attack, Step) { attack_options("step"); }
TEST_F(Attack, Profile) { attack_options("profile"); }
TEST_F(Attack, Train) { attack_options("train"); }
TEST_F(Attack, Comm) { attack_options("comm"); }
TEST_F(Attack, Precision) { attack_options("precision"); }
TEST_F(Attack, Device) { attack_options("device"); }
TEST_F(Attack, Kernels) { attack_options("kernels"); }
TEST_F(Attack, Results) { attack_options("results"); }
TEST_F(Attack, Compare) { attack_options("compare"); }
TEST_F(Attack, Report) { attack_options("report"); }

TEST_F(Attack, EveryFileWhereOneIsRead) {
  std::vector<std::string> files = {"/dev/null",          "/dev/zero", "/dev/full",         "/proc/self/mem",
                                    at("somewhere/pipe"), at("mine"),  at("somewhere/loop")};
  fs::create_symlink("loop", folder_ / "somewhere" / "loop");
  for (const auto& [name, bytes] : mine_) files.push_back(at("mine/" + name));
  for (const std::string& file : files)
    for (const Words& words :
         std::vector<Words>{{"report", file},
                            {"compare", file, file},
                            {"memory", "model", "--model", file},
                            {"plan", "--device", file},
                            {"precision", "autocast", "--model", file},
                            {"precision", "autocast", "--policy", file},
                            {"train", "--init", file, "--text", at("text.txt"), "--steps", "1"},
                            {"train", "--tokens", file, "--steps", "1", "--layers", "1", "--width", "32", "--heads", "2", "--len", "8"},
                            {"results", "--db", file},
                            {"attention", "--len", "8", "--steps", "1", "--db", file},
                            {"train", "--resume", "--save", file, "--text", at("text.txt"), "--steps", "1"}}) {
      if (words[0] == "attention" && is_a_wish("attention", "--db", file)) continue;
      if (words[1] == "--resume" && is_a_wish("train", "--save", file)) continue;
      expect_order(attack(words), words[0] + " " + words[1] + " … " + file);
    }
  expect_untouched("every file");
}

}  // namespace
}  // namespace headroom
