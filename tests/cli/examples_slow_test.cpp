// Every command that a --help, README or a page of docs shows is one that the program takes: those that only count run to their end, for every
// known card; those that measure run for a moment and are then stopped as with Ctrl-C.
#include <regex>
#include <set>

#include "tests/cli/program.h"

namespace headroom {
namespace {

const fs::path source = HEADROOM_SOURCE_DIR;

// "headroom plan --len 8 \<newline> --gpus 2      a remark" → "plan --len 8 --gpus 2"
std::string arguments_of(std::string example) {
  example = std::regex_replace(example, std::regex(R"( *\\\n\s*)"), " ");
  example = std::regex_replace(example, std::regex(R"(( {3,}| +#).*)"), "");
  return example.substr(std::string("headroom ").size());
}

std::vector<std::string> matches(const std::string& text, const std::regex& what) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), what), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

// Whole lines, indented or in a block of code, with their continuations; and pieces of code in a sentence that say more than a name.
std::vector<std::string> examples_in(const std::string& text) {
  static const std::regex line(R"((?:^|\n) *(headroom [a-z]+(?: [^\n]*\\\n[^\n]*| [^\n]*)?)(?=\n|$))");
  static const std::regex piece(R"(`(headroom [^`\n]* --[a-z-]+ [^-`\n][^`\n]*)`)");
  std::vector<std::string> all;
  for (const auto& regex : {line, piece})
    for (const std::string& example : matches(text, regex))
      if (example.find("…") == std::string::npos) all.push_back(arguments_of(example));
  return all;
}

bool counts_only(const std::string& arguments) {
  static const std::regex counted("^(memory|plan|kernels)( .*)?$"), measured(" --measure| --device cuda");
  return std::regex_match(arguments, counted) && !std::regex_search(arguments, measured);
}

// Our kernels run from sm_80 on: of older cards, only what PyTorch and servers take there is counted.
bool asks_for_our_step_before_ampere(const std::string& arguments) {
  static const std::regex ours("^(memory model|plan)( .*)?$"), theirs(" --as pytorch| --phase inference"),
      older(" --device (t4|v100|mi300x)");
  return std::regex_match(arguments, ours) && !std::regex_search(arguments, theirs) && std::regex_search(arguments, older);
}

class Examples : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    put("config.json", R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000,
      "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "hidden_act": "silu"})");
    put("mine.json", R"({"name": "mine", "sm": 90, "units": 132, "memory_mib": 81559, "copy_tb_s": 3.35, "bf16_tflops": 700})");
    const std::string text = text_of(source / "examples/lighthouse.txt");
    put("book.txt", text);
    put("stories.jsonl", "{\"text\": \"One story, long enough to be cut.\"}\n{\"text\": \"Another one.\"}\n");
    fs::create_directories(folder_ / "examples");
    fs::create_directories(folder_ / "bench/cards");
    put("examples/lighthouse.txt", text);
  }

  std::set<std::string> of_help() const {
    std::set<std::string> all;
    for (const std::string& command : matches(run("--help").out, std::regex(R"(\n  ([a-z]+) )")))
      for (const std::string part : {"", " model", " attention", " step"})
        if (const Ended e = run(command + part + " --help"); e.code == 0)
          for (const std::string& one : examples_in(e.out)) all.insert(one);
    return all;
  }
  static std::set<std::string> of_pages() {
    std::set<std::string> all;
    const auto read = [&](const fs::path& page) {
      for (const std::string& one : examples_in(text_of(page))) all.insert(one);
    };
    read(source / "README.md");
    for (const auto& e : fs::directory_iterator(source / "docs"))
      if (e.path().extension() == ".md") read(e.path());
    return all;
  }
  std::set<std::string> all() const {
    std::set<std::string> both = of_help();
    both.merge(of_pages());
    return both;
  }

  // What a page leaves to its reader.
  std::string with_files(std::string arguments) const {
    arguments = std::regex_replace(arguments, std::regex("DIR/config.json|DIR\\b"), at("config.json"));
    return std::regex_replace(arguments, std::regex("--model MODEL"), "--model small");
  }

  Ended example(const std::string& arguments, const std::string& most_seconds) const {
    return shell("exec timeout --preserve-status -s INT -k 120 " + most_seconds + " $H " + with_files(arguments));
  }

  // 1: it was stopped, or what it asks for is not in this machine. 2 only where the page leaves a file or a run to its reader.
  void taken(const std::string& arguments) const {
    SCOPED_TRACE("headroom " + arguments);
    const Ended e = example(arguments, "1");
    const bool fails_here =
        std::regex_search(e.err, std::regex("stopped by (Ctrl-C|a signal to another process)|no GPU here|no GPU kernels|CUDA|GPUs on "
                                            "one machine|there is nothing|there is no '|neither a file|cannot be found|"
                                            "no problem in common|not a model's folder|libheadroom_inject"));
    const bool runs_another_program = arguments.find(" -- ") != std::string::npos;  // which is not here
    EXPECT_TRUE(e.code == 0 || e.code == 3 || ((e.code == 1 || e.code == 2) && (fails_here || runs_another_program)))
        << e.code << ": " << e.err;
    EXPECT_EQ(e.err.find("Run with --help"), std::string::npos) << e.err;
  }
};

TEST_F(Examples, OfHelpAndPagesAreTaken) {
  const auto examples = all();
  EXPECT_GT(examples.size(), 60u);
  for (const std::string& one : examples)
    if (!counts_only(one)) taken(one);
}

// The first known card of each architecture: what is counted differs by architecture, and among its cards by their sizes only.
std::vector<std::string> one_card_of_each_architecture() {
  std::set<int> seen;
  std::vector<std::string> keys;
  for (const Device& card : known_devices())
    if (seen.insert(card.sm).second) keys.push_back(card.key);
  return keys;
}

// An example is asked about its own card, about a card of each architecture, and about one more card in turn; an example of plan, whose search
// takes seconds, about one card in turn. HEADROOM_CARDS=own asks each about its own card only: the build with CUDA asks the rest.
constexpr int parts = 3;  // run at the same time, where there are cores
class ExamplesThatOnlyCount : public Examples, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(, ExamplesThatOnlyCount, testing::Range(0, parts));

TEST_P(ExamplesThatOnlyCount, ServeEveryKnownCard) {
  const auto& cards = known_devices();
  const auto architectures = one_card_of_each_architecture();
  const char* which = std::getenv("HEADROOM_CARDS");
  const bool every_card = !which || std::string_view(which) != "own";
  std::size_t counted = 0, others = 0, plans = 0;
  int examples = 0;
  const auto about = [](const std::string& one, const std::string& card) {
    return std::regex_replace(one, std::regex(" --device [^ ]+"), " ") + " --device " + card;
  };
  std::set<std::string> asked;  // with the card as the last words
  const auto is_answered = [&](const std::string& arguments) {
    std::smatch card;
    if (std::regex_search(arguments, card, std::regex(" --device ([^ ]+)")) && !asked.insert(about(arguments, card[1])).second) return;
    const Ended e = example(arguments, "60");
    const bool says_where_to_ask = e.code == 2 && e.err.find("sm_80 or newer. What PyTorch takes there: --as pytorch") != e.err.npos;
    const bool answers = e.code == 0 || e.code == 3;
    EXPECT_TRUE(asks_for_our_step_before_ampere(arguments) ? says_where_to_ask : answers)
        << "headroom " << arguments << ": " << e.code << ": " << e.err;
    ++counted;
  };
  std::string a_plan;
  for (const std::string& one : all()) {
    if (!counts_only(one)) continue;
    const bool plan = one.starts_with("plan");
    if (plan && (a_plan.empty() || one.size() < a_plan.size())) a_plan = one;
    const std::string in_turn = about(one, cards[(plan ? plans : others)++ % cards.size()].key);
    if (examples++ % parts != GetParam()) continue;
    is_answered(one);
    if (!every_card) continue;
    if (!plan)
      for (const std::string& card : architectures) is_answered(about(one, card));
    is_answered(in_turn);
  }
  EXPECT_GT(counted, (every_card ? 100u : 20u) / parts);
  if (!every_card) return;
  EXPECT_GE(others, cards.size());
  ASSERT_FALSE(a_plan.empty());
  for (; plans < cards.size(); ++plans)
    if (int(plans) % parts == GetParam()) is_answered(about(a_plan, cards[plans].key));
}

TEST(ExamplesInAText, AreWholeCommandsWithoutTheirRemarks) {
  const std::string text =
      "See `headroom step` and `headroom plan --len 8`, not `headroom plan --keep …`.\n\n```\nheadroom train --len 8 \\\n   --steps 3   # "
      "short\n"
      "    headroom comm --gpus 2      two GPUs\n```\n";
  EXPECT_EQ(examples_in(text), (std::vector<std::string>{"train --len 8 --steps 3", "comm --gpus 2", "plan --len 8"}));
  EXPECT_TRUE(counts_only("plan --len 8"));
  EXPECT_FALSE(counts_only("memory model --measure --device cuda"));
}

}  // namespace
}  // namespace headroom
