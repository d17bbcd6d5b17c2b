// The edges of the command line: what is lost, trusted or left behind when disks are full, names are wrong, descriptors are closed and
// signals come. Each of these was seen to go wrong once.
#include <fmt/format.h>

#include <chrono>
#include <regex>
#include <thread>

#include "base/described_words.h"
#include "base/device.h"
#include "base/text.h"
#include "engine/recipe/levers.h"
#include "store/results.h"
#include "tests/cli/program.h"
#include "tests/sanitizers.h"
#include "tests/store/killed_writer.h"

namespace headroom {
namespace {

class Edges : public Program {
 protected:
  void keep_a_run(const std::string& row = R"({"variant": "flash", "fwd_ms": 1.5, "status": "ok"})",
                  const std::string& machine = "m") const {
    Results r(db_, Results::Access::write);
    const auto run = r.start_run("attention", R"({"len": [16]})", machine);
    r.add_row(run, {"k1", row, "{}"});
    r.finish_run(run);
  }
  void put_text(std::size_t bytes = 4000) const { put("text.txt", std::string(bytes / 2, 'a') + std::string(bytes / 2, 'b')); }
  static constexpr const char* train = "$H train --device cpu --text text.txt --layers 1 --width 32 --heads 2 --len 32 --batch 2 ";
};

TEST_F(Edges, AnEmptyFileBecomesAStore) {
  const std::string empty = db_ + ".empty";
  std::fclose(std::fopen(empty.c_str(), "w"));
  const Ended e = run("attention --device cpu --len 16 --batch 1 --dim 16 --warmup 0 --steps 1 --db " + empty);
  EXPECT_EQ(e.code, 0) << e.err;
}

TEST_F(Edges, AnEmptyValueIsAnUnsetVariableAndRefused) {
  put_text();
  for (const char* option : {"--save", "--init", "--text", "--out", "--db", "--device", "--model", "--lr", "--prompt"}) {
    refused(fmt::format("train --text x {} ''", option), 2, fmt::format("{} is empty", option));
    refused(fmt::format("train --text x {}=", option), 2, fmt::format("{} is empty", option));
  }
  refused("attention --device ''", 2, "--device is empty");
  refused("results ''", 2, "an argument is empty");
  refused("report 1 '' --out x.html", 2, "an argument is empty");
}

TEST_F(Edges, AnAmountOfMemoryIsTakenAsPeopleWriteIt) {
  const std::string plan = "plan --model small --device h100 --most 1 --format json ";
  const auto bytes = [&](const std::string& said) {
    const Ended e = run(plan + said);
    return e.code == 0 ? Json::parse(e.out)["memory_bytes"].get<std::uint64_t>() : 0;
  };
  for (const char* said : {"--memory 24 GiB", "--memory '24 GiB'", "--memory 24gib", "--memory=24 gib", "--memory 24Gi --len 512"})
    EXPECT_EQ(bytes(said), 24ull << 30) << said;
  EXPECT_EQ(bytes("--memory 24 gb"), 24'000'000'000u);
  refused(plan + "--memory 24G", 2, "'24G' is 24 GiB to some and 24 GB to others");
  refused(plan + "--gpus 3 GiB", 2, "'GiB' is not the value of any option");
  refused("memory model --memory 1 pound", 2, "'pound'");
  const Ended model = run("memory model --model small --device h100 --batch 1 --len 128 --memory 24 gb --format json");
  EXPECT_EQ(model.code, 0) << model.err;
  refused("forecast --memory 24 GiB -- ./no_such_program", 2, "'./no_such_program' cannot be started");
  put("tell.sh", "echo said: $*; exit 3\n");
  const Ended e = shell("$H forecast --memory 24 GiB -- sh tell.sh --memory 24 GiB");
  EXPECT_NE(e.err.find("said: --memory 24 GiB"), std::string::npos) << "a program's own words stay as they are: " << e.err;
}

TEST_F(Edges, NoOutputReplacesTheStore) {
  keep_a_run();
  const std::string store = text_of(db_);
  fs::create_symlink("results.db", folder_ / "link.json");
  fs::create_hard_link(db_, folder_ / "hard.json");
  const std::string db = " --db " + db_;
  for (const std::string name : {"results.db", "link.json"}) refused("results --out " + at(name) + db, 2, at(name) + "' is");
  refused("results --out " + at("hard.json") + db, 2, "is");
  refused("results --out " + at("results.db-journal") + db, 2, "or its journal");
  refused("report 1 --format html --out " + db_, 2, "is a database");
  refused("profile step --device cpu --trace " + db_ + db, 2, "--trace: ");
  fs::create_directories(folder_ / "headroom");
  fs::copy_file(db_, folder_ / "headroom" / "results.db");
  refused("results --format json --out " + at("headroom/results.db"), 2, "headroom/results.db' is");
  refused("attention --len 16 --format json --out " + at("new.db") + " --db " + at("new.db"), 2, "is where results are kept");
  const Ended once = run("results --out " + db_ + db);
  EXPECT_EQ(once.err.find("choose another place"), std::string::npos) << "one remedy is enough: " << once.err;
  EXPECT_EQ(text_of(db_), store);
  EXPECT_EQ(text_of(folder_ / "headroom" / "results.db"), store);
}

TEST_F(Edges, TwoOutputsOfOneNameAndAnOutputOverAnInputAreRefused) {
  refused("profile step --device cpu --trace " + at("x.json") + " --out " + at("x.json"), 2, "both name");
  put("rows.json", R"({"rows": [{"variant": "flash", "fwd_ms": 1}]})");
  const std::string rows = text_of(folder_ / "rows.json");
  refused("report " + at("rows.json") + " --out " + at("rows.json"), 2, "is what RUN reads");
  refused("compare " + at("rows.json") + " " + at("rows.json") + " --out " + at("./rows.json"), 2, "is what A reads");
  EXPECT_EQ(text_of(folder_ / "rows.json"), rows);
  put("book.txt", std::string(1000, 'x'));
  refused("train --text " + at("book.txt") + " --out " + at("book.txt"), 2, "is what --text reads");
  EXPECT_EQ(text_of(folder_ / "book.txt").size(), 1000u);
}

TEST_F(Edges, TheEndOfOutNamesTheFormatOrIsRefused) {
  refused("precision formats --out " + at("x.xyz"), 2, "ending of '.xyz' is not a known format");
  refused("precision formats --out " + at("x.tar.gz"), 2, "ending of '.gz' is not a known format");
  EXPECT_EQ(run("precision formats --values 100 --out " + at("x.xyz") + " --format csv").code, 0);
  EXPECT_EQ(text_of(folder_ / "x.xyz").substr(0, 7), "format,");
  EXPECT_EQ(run("precision formats --values 100 --out " + at("X.JSON")).code, 0);
  EXPECT_TRUE(Json::parse(text_of(folder_ / "X.JSON")).is_object());
  for (const char* name : {"plain", "x.txt", "x.TXT"}) {
    EXPECT_EQ(run("precision formats --values 100 --out " + at(name)).code, 0);
    EXPECT_EQ(text_of(folder_ / name).substr(0, 14), "Number formats") << name;
  }
}

TEST_F(Edges, AFullDiskKeepsTheOldFileAndPrintsTheAnswer) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer writes a file of its own before main, and the limit ends the program there";
  keep_a_run();
  put("page.json", "{\"old\": \"page\"}");
  const auto before = names();
  const Ended e = shell("{ (ulimit -f 0; $H results --db results.db --out page.json; echo code $?) | cat; } 2>&1 | cat");
  EXPECT_NE(e.out.find("\"runs\": ["), std::string::npos) << "printed instead: " << e.out;
  EXPECT_NE(e.out.find("it is printed here instead\n"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("code 1\n"), std::string::npos) << e.out;
  EXPECT_EQ(text_of(folder_ / "page.json"), "{\"old\": \"page\"}");
  EXPECT_EQ(names(), before) << "nothing stays beside it";
}

TEST_F(Edges, APageThatAFullDiskRefusesIsALineOrText) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer writes a file of its own before main, and the limit ends the program there";
  keep_a_run();
  const auto full = [&](const std::string& words) {
    return shell("{ (ulimit -f 0; $H " + words + " --out page.html; echo code $?) | cat; } 2>&1 | cat").out;
  };
  for (const char* words : {"report --db results.db", "results --db results.db", "results 1 --db results.db"}) {
    const std::string said = full(words);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    for (const char* one : {"the runs are kept: name another place\n", "code 1\n"}) EXPECT_NE(said.find(one), std::string::npos) << said;
  }
  const std::string counted = full("precision formats --values 100");
  EXPECT_EQ(counted.find("<html"), std::string::npos) << counted;
  EXPECT_NE(counted.find("Number formats"), std::string::npos) << "what was counted is not lost: " << counted;
  for (const char* said : {"it is printed here as text instead\n", "code 1\n"}) EXPECT_NE(counted.find(said), std::string::npos) << counted;
  EXPECT_FALSE(fs::exists(folder_ / "page.html"));
}

TEST_F(Edges, ALimitOnFilesEndsNoCommandBySignal) {
  put_text();
  shell_refused("ulimit -f 1; $H attention --batch 1 --dim 16 --len 16 --steps 2 --warmup 0 --db new.db", 1,
                "no room is left for 'new.db'");
  const Ended e = shell(std::string("ulimit -f 100; ") + train + "--steps 3 --save run");
  EXPECT_EQ(e.code, 1) << e.err;
  EXPECT_NE(e.err.find("may not grow any larger here"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("; its losses are run 1 in "), std::string::npos) << "a long training's curve is not lost: " << e.err;
  EXPECT_TRUE(fs::is_empty(folder_ / "run")) << "no part of a checkpoint";
}

TEST_F(Edges, ClosedDescriptorsAreNobodysFiles) {
  for (const std::string closed : {"2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-", "1>&- 2>&-"}) {
    EXPECT_EQ(shell("$H kernels --device cpu --out x.json " + closed).code, 0) << closed;
    EXPECT_TRUE(Json::accept(text_of(folder_ / "x.json"))) << closed << ": " << text_of(folder_ / "x.json");
    EXPECT_EQ(shell("$H attention --batch 1 --dim 16 --len 16 --steps 2 --warmup 0 --db s.db --out x.json " + closed).code, 0) << closed;
    EXPECT_TRUE(Json::accept(text_of(folder_ / "x.json"))) << closed;
  }
  EXPECT_EQ(shell("$H results --db s.db --format csv").code, 0) << "the store is whole";
}

TEST_F(Edges, WordsThatReachNobodyAreAFailure) {
  for (const char* words : {"--help", "--version", "help", "attention --help", "memory model --help", "precision formats --values 100"})
    for (const char* nowhere : {"> /dev/full", ">&-"})
      shell_refused(fmt::format("$H {} {}", words, nowhere), 1, "standard output cannot be written to");
  const Ended e = shell("{ $H --help; echo $? > code; } | true; cat code");
  EXPECT_EQ(e.out, "1\n") << "who reads is gone: " << e.err;
  EXPECT_EQ(e.err, "") << "and has what it asked for";
}

TEST_F(Edges, AWordInTheWrongPlaceIsToldItsOwn) {
  refused("memory model llama-3.1-8b", 2, "'llama-3.1-8b' is not the value of any option; a model is named by --model");
  refused("memory small", 2, "there is no 'small'; choose from attention, model");
  refused("forecast --batch 8 -- true", 2, "there is no option --batch; a program and its own options come after --");
  refused("forecast python3 train.py --epochs 8", 2, "there is no option --epochs; a program and its own options come after --");
  refused("plan --epochs 8", 2, "there is no option --epochs (see");
  refused("--device h100 plan", 2, "--device comes before a command; options come after it");
  refused("--verison", 2, "Alone there are --help and --version; did you mean '--version'?");
  keep_a_run();
  refused("results rows.json --db " + db_, 2, "'rows.json' is no run's number; headroom results lists the runs");
}

TEST_F(Edges, HelpOfACommandIsItsHelp) {
  EXPECT_EQ(run("help plan").out, run("plan --help").out);
  EXPECT_EQ(run("help memory model").out, run("memory model --help").out);
  EXPECT_EQ(run("help").out, run("--help").out);
  refused("help plann", 2, "did you mean 'plan'");
}

TEST_F(Edges, HelpIsNoWiderThanAHundredColumns) {
  const std::string overview = run("--help").out;
  std::vector<std::string> all{""};
  std::istringstream commands(overview.substr(overview.find("Commands:"), overview.find("'headroom help") - overview.find("Commands:")));
  for (std::string line; std::getline(commands, line);)
    if (line.starts_with("  ")) all.push_back(line.substr(2, line.find(' ', 2) - 2));
  for (const char* topic : {"memory model", "memory attention", "profile step", "profile attention", "precision fp8"})
    all.emplace_back(topic);
  EXPECT_GT(all.size(), 18u);
  for (const std::string& command : all) {
    std::istringstream lines(run(command + " --help").out);
    std::string before;
    for (std::string line; std::getline(lines, line); before = line) {
      EXPECT_LE(columns_of(line), 100) << command << ": " << line;
      EXPECT_FALSE(line.empty() && before.empty()) << command << ": two empty lines";
      const bool goes_on =
          !before.empty() && !line.empty() && before[0] != ' ' && line[0] != ' ' && before.find_last_of(".:") + 1 != before.size();
      const auto with_next_word = columns_of(before) + 1 + columns_of(line.substr(0, line.find(' ')));
      EXPECT_TRUE(!goes_on || line.starts_with("Usage:") || with_next_word > 100) << command << ": folded twice: " << before;
    }
  }
  const std::string train = run("train --help").out;
  EXPECT_NE(train.find("A flat file of token numbers; not with --text"), std::string::npos) << train;
  for (const char* title : {"\nData:", "\nModel:", "\nPrecision and memory:", "\nGPUs and processes:", "\nSaving and going on:"})
    EXPECT_NE(train.find(title), std::string::npos) << title;
  const std::string memory =
      train.substr(train.find("\nPrecision and memory:"), train.find("\nGPUs and processes:") - train.find("\nPrecision"));
  engine::Levers levers;
  describe(levers, [&](auto&, const Description& d) { EXPECT_NE(memory.find("  " + first_option_of(d)), std::string::npos) << d.name; });
}

// Words of other programs, and this one's own of before.
TEST_F(Edges, OtherProgramsWordsFindTheirWay) {
  const auto row = [&](const std::string& words) { return Json::parse(run(words + " --format json --db " + db_).out)["rows"][0]; };
  const Json ours = row("memory model --model small --batch 2 --len 64 --precision bf16 --attention flash --device h100 --gpus 2"),
             theirs =
                 row("memory model --model small --batch-size 2 --seq-len=64 --dtype bfloat16 --variant flash --device H100 --num-gpus 2");
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(ours,
            row("memory model --model_name small --batch_size=2 --max_seq_length 64 --dtype bf16 --variant flash --device h100 --gpus 2"));
  EXPECT_EQ(ours, row("memory model --model small --per_device_train_batch_size 2 --len 64 --dtype bf16 --attention flash --device h100 "
                      "--nproc_per_node 2"));
  const std::string attention = "attention --device cpu --batch 1 --dim 16 --len 16 --steps 1 --warmup 0";
  EXPECT_EQ(row(attention + " --dtype bf16 --variant plain")["dtype"], "bf16");
  EXPECT_EQ(row(attention + " --precision bf16 --attention plain")["variant"], "plain");
  refused("memory model --sequences 3", 2, "there is no option --sequences");
  refused("plan --device 4900", 2, "did you mean 'rtx4090'?");
  refused("plan --device GB200", 2, "did you mean 'b200'?");
}

// A trainer's batch is of one GPU, plan's of all.
TEST_F(Edges, PlanTakesATrainersBatchOfEachGpu) {
  const auto plan = [&](const std::string& words) {
    return Json::parse(run("plan --model small --len 64 --device h100 --gpus 2 --most 1 --format json " + words).out)["notes"][0];
  };
  EXPECT_EQ(plan("--per_device_train_batch_size 2 --gradient_accumulation_steps=4"), plan("--batch 16"));
  EXPECT_EQ(plan("--micro-batch-size 2"), plan("--batch 4"));
  EXPECT_NE(plan("--batch 16"), plan("--batch 4"));
  refused("plan --batch 2 --per-device-train-batch-size 2", 2, "--batch");
  refused("plan --gradient-accumulation-steps 2", 2, "--per-device-train-batch-size");
}

// Everything that outlives the terminal says what made it.
TEST_F(Edges, FilesSayWhatMadeThem) {
  const std::string words = "plan --model small --batch 1 --len 64 --device h100 --most 1 --out ";
  for (const char* file : {"plan.json", "plan.md", "plan.html"}) {
    ASSERT_EQ(run(words + at(file)).code, 0);
    const std::string text = text_of(at(file));
    EXPECT_NE(text.find("headroom plan --model small"), std::string::npos) << file;
    EXPECT_NE(text.find(cpu_device().name), std::string::npos) << file;
  }
  const Json made = Json::parse(text_of(at("plan.json")))["made_by"];
  for (const char* key : {"command", "date", "machine", "version", "commit"}) EXPECT_TRUE(made.contains(key)) << key;
  EXPECT_EQ(run("report " + at("plan.json") + " --format md").code, 0) << "and is read again";
}

TEST_F(Edges, ATrainingOutlivesItsStore) {
  put_text();
  const std::string words = std::string(train) + "--steps 60 --log-every 1 --db small.db ";
  const Ended full = shell("ulimit -f 60; " + words + "--format json");
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(Json::parse(full.out)["rows"].size(), 60u) << "what was measured is printed";
  EXPECT_NE(full.err.find("no room is left for 'small.db'"), std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("The run goes on"), full.err.rfind("The run goes on")) << "warned once: " << full.err;
  EXPECT_NE(full.err.find("run 1 in small.db is not complete"), std::string::npos) << full.err;

  sqlite3* other = nullptr;  // a program that holds the store while the training begins, and lets go of it before its end
  ASSERT_EQ(sqlite3_open(at("held.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::seconds(12));
    sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
    sqlite3_close(other);
  });
  const Ended held = shell(std::string(train) + "--steps 3 --log-every 1 --db held.db");
  later.join();
  EXPECT_EQ(held.code, 0) << held.err;
  EXPECT_NE(held.err.find("is held by another program"), std::string::npos) << held.err;
  EXPECT_EQ(Results(at("held.db"), Results::Access::read).rows(1).size(), 3u) << held.err;
}

TEST_F(Edges, RanksThatDifferAreNamedAndADefaultIsItself) {
  const std::string step = "$H step --device cpu --width 32 --layers 1 --heads 2 --vocab 100 --batch 1 --steps 1 ";
  const auto both = [&](const std::string& of_first, const std::string& of_second) {
    const std::string meet = fmt::format("--ranks 2 --rendezvous local:edges-{} ", getpid());
    return shell(step + meet + "--rank 1 " + of_second + " 2> second & " + step + meet + "--rank 0 --db r.db " + of_first +
                 "; code=$?; wait; cat second >&2; exit $code");
  };
  const Ended same = both("--len 16 --warmup 5", "--len 16");
  EXPECT_EQ(same.code, 0) << same.err;
  const Ended other = both("--len 16", "");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("rank 1 was given other settings than rank 0: --len is "), std::string::npos) << other.err;
  EXPECT_NE(other.err.find(" there, and 16 on rank 0"), std::string::npos) << other.err;
}

TEST_F(Edges, AStoreThatCannotBeOpenedIsSaidBeforeAnythingIsMeasured) {
  put("a-file", "x");
  const auto start = std::chrono::steady_clock::now();
  refused("profile step --model small --len 1024 --batch 4 --device cpu --db " + at("a-file/results.db"), 1, "cannot be made");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(Edges, DeepJsonIsASentenceWhereverJsonIsRead) {
  put("deep.json", std::string(100'000, '[') + std::string(100'000, ']'));
  put("deeper.json", [] {
    std::string s;
    for (int i = 0; i < 100'000; ++i) s += "{\"rows\":";
    return s + "1" + std::string(100'000, '}');
  }());
  keep_a_run("{\"variant\": \"flash\", \"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  for (const std::string& file : {at("deep.json"), at("deeper.json")}) {
    const std::pair<const char*, int> commands[] = {{"memory model --model ", 2},
                                                    {"plan --device h200 --model ", 2},
                                                    {"precision autocast --model ", 2},
                                                    {"precision autocast --policy ", 2},
                                                    {"report ", 2},
                                                    {"plan --device ", 2},
                                                    {"memory attention --device ", 2}};
    for (const auto& [command, code] : commands) refused(command + file, code, "nested deeper than 100 levels");
    refused("compare " + file + " " + file, 2, "nested deeper than 100 levels");
  }
  for (const char* command : {"results 1", "report 1", "compare 1 1"}) refused(std::string(command) + " --db " + db_, 1, "row 1 of");
}

TEST_F(Edges, APipeThatNobodyWritesToHoldsNobody) {
  for (const char* name : {"pipe.safetensors", "pipe"}) ASSERT_EQ(mkfifo(at(name).c_str(), 0600), 0);
  refused("train --text " + at("pipe"), 2, "a pipe without a writer");
  for (const char* command : {"memory model --model ", "plan --device h200 --model ", "plan --device ", "precision autocast --model ",
                              "precision autocast --policy ", "report "})
    refused(command + at("pipe"), 2, "pipe' is a pipe, not a regular file");
  refused("compare " + at("pipe") + " 1", 2, "pipe' is a pipe, not a regular file");
  refused("results --db " + at("pipe"), 2, "no file that keeps");
  fs::create_directories(folder_ / "hf");
  put("hf/config.json", R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 64})");
  ASSERT_EQ(mkfifo(at("hf/model.safetensors").c_str(), 0600), 0);
  put_text();
  refused("train --text " + at("text.txt") + " --init " + at("hf") + " --len 16 --steps 1", 2,
          "model.safetensors' is a pipe, not a regular file");
  fs::remove(at("hf/config.json"));
  ASSERT_EQ(mkfifo(at("hf/config.json").c_str(), 0600), 0);
  for (const std::string& words : {"train --text " + at("text.txt") + " --init " + at("hf"), "memory model --model " + at("hf")})
    refused(words, 2, "config.json' is a pipe, not a regular file");
  const Ended read = shell(
      std::string("cat text.txt | $H train --text /dev/stdin --layers 1 --width 32 --heads 2 --len 16 --batch 2 --steps 1 --format json"));
  EXPECT_EQ(read.code, 0) << "one that somebody writes to is read: " << read.err;
}

TEST_F(Edges, TextShowsWhatATerminalWouldObeyAndMarkdownNoTags) {
  keep_a_run(R"row({"variant": "fl\u001b[31mash\u0000x", "note": "<script>alert(1)</script> [a](javascript:b)", "fwd_ms": 1.5})row",
             "m\x1b]0;t\x07");
  for (const std::string command : {"results 1", "results", "report 1", "compare 1 1"})
    for (const char* format : {"text", "md"}) {
      const Ended e = run(fmt::format("{} --format {} --db {}", command, format, db_));
      EXPECT_EQ(e.code, 0) << e.err;
      for (const char bad : {'\x1b', '\x07', '\0'}) EXPECT_EQ(e.out.find(bad), std::string::npos) << command << " " << int(bad);
      EXPECT_EQ(std::string(format) == "md" ? e.out.find("<script>") : std::string::npos, std::string::npos) << command;
      EXPECT_EQ(std::string(format) == "md" ? e.out.find("](javascript") : std::string::npos, std::string::npos) << command;
    }
  EXPECT_NE(run("results 1 --db " + db_).out.find("fl\\x1b[31mash\\x00x"), std::string::npos);
}

TEST_F(Edges, ASampleWithZeroBytesCutsNothingShort) {
  put("zeros.bin", std::string(4000, '\0'));
  const Ended e =
      shell("$H train --text zeros.bin --layers 1 --width 32 --heads 2 --len 16 --batch 2 --steps 20 --lr 0.01 --sample 8 --format text");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("\\x00"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("grad_norm"), std::string::npos) << "the table of losses follows: " << e.out;
}

TEST_F(Edges, ThatCheckpointsHaveNoPlaceIsSaidBeforeTraining) {
  put_text();
  put("notes.txt", "mine");
  refused("train --text " + at("text.txt") + " --steps 1000000 --save " + at("notes.txt"), 2, "is no folder");
  refused("train --text " + at("text.txt") + " --steps 1000000 --save " + at("notes.txt/run"), 2, "notes.txt/run' cannot be made");
  EXPECT_EQ(text_of(folder_ / "notes.txt"), "mine");
}

TEST_F(Edges, ADiskThatWillBeFullIsSaidBeforeTraining) {
  if (shell("unshare -rm true").code != 0) GTEST_SKIP() << "this machine lends no mount namespace, in which a small disk is made";
  put_text();
  const auto on_disk = [&](const std::string& size, const std::string& words) {
    return shell("mkdir -p disk; unshare -rm sh -c 'mount -t tmpfs -o size=" + size + " none disk && " +
                 std::string(train).replace(0, 2, HEADROOM_BINARY_DIR "/headroom") + words + "'");
  };
  const std::string endless = "--every 1 --steps 1000000 --save disk/run";
  const Ended none = on_disk("64k", endless);
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_EQ(none.err.find("headroom train: 'disk/run' has no room for 3 checkpoints of "), 0u) << none.err;
  EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
  EXPECT_EQ(on_disk("64k", "--every 1 --steps 1 --save disk/run").err.find("headroom train: 'disk/run' has no room for 1 checkpoint of "),
            0u);
  EXPECT_EQ(on_disk("32k", "--steps 1000000 --save-hf disk/hf").err.find("headroom train: 'disk/hf' has no room for the weights in FP32: "),
            0u);
  EXPECT_EQ(on_disk("16m", "--every 1 --steps 3 --save disk/run --save-hf disk/hf").code, 0);
}

TEST_F(Edges, CopiesOfCheckpointsNeitherStopATrainingNorAreReplaced) {
  put_text();
  const std::string run = std::string(train) + "--every 2 --save run --steps ";
  ASSERT_EQ(shell(run + "4").code, 0);
  fs::copy_file(at("run/step-00000004.safetensors"), at("run/step-99999999.safetensors"));
  const Ended on = shell(run + "4 --resume");
  EXPECT_EQ(on.code, 0) << on.err;
  fs::rename(at("run/step-00000002.safetensors"), at("run/step-00000003.safetensors"));
  fs::remove(at("run/step-00000004.safetensors"));
  const std::string bytes = text_of(at("run/step-00000003.safetensors"));
  shell_refused(run + "4 --resume", 2, "step-00000003.safetensors' is not a checkpoint of this program, or was renamed");
  EXPECT_EQ(text_of(at("run/step-00000003.safetensors")), bytes);
  fs::remove(at("run/step-00000003.safetensors"));
  EXPECT_EQ(shell(run + "4").code, 0) << "nothing of this program is there: a new training";
  EXPECT_TRUE(fs::exists(at("run/step-99999999.safetensors")));
  put("run/step-00000009.safetensors", "cut short");
  shell_refused(run + "4 --resume", 1, "move it away to go on from an earlier one");
}

TEST_F(Edges, TooLittleTextIsNotANumber) {
  put_text(200);
  const Ended e = shell(std::string(train) + "--steps 1");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out.find("nan"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("held-out part of the data is shorter than one batch"), std::string::npos) << e.out;
}

TEST_F(Edges, EveryRefusalIsOneLineOfOurWords) {
  shell_refused("$H attention --variant \"fl\n\033[31mash\"", 2, "fl\\n\\x1b[31mash");
  shell_refused("$H train --text \"a\nb\"", 2, "a\\nb");
  refused("results --db ':memory:'", 2, "is not a file; name a file for the results");
  refused("attention --len 16 --db :memory:", 2, "is not a file; name a file for the results");
  refused("attention --len 16 --steps 1 --db /dev/null", 2, "no file that keeps");
  refused("report --db /no/such/store.db", 1, "there is no '/no/such/store.db' yet");
  put("empty.db", "");
  for (const char* command : {"report", "results", "report 1", "compare 1 1"})
    refused(fmt::format("{} --db {}", command, at("empty.db")), 1, "there is nothing in '" + at("empty.db") + "' yet");
  {
    Results r(db_, Results::Access::write);
    const auto run = r.start_run("device", "{}", cpu_device().name);
    r.add_row(run, {"k", R"({"what": 5, "dtype": "fp32"})", "{}"});
    r.finish_run(run);
  }
  refused("plan --device cpu --layers 1 --width 32 --heads 2 --len 16 --db " + db_, 1, "damaged; headroom device measures them again");
  put("garbled.db", std::string("SQLite format 3\0", 16) + std::string(8000, 'x'));
  refused("results --db " + at("garbled.db"), 1, "is damaged; it was left as it is");
  put("rows.json", "{}" + std::string(8000, ' '));
  refused("results --db " + at("rows.json"), 1, "is damaged, or was never a file of results; it was left as it is");
  put("model.json", "{\"width\": ");
  refused("plan --model " + at("model.json"), 2, "model: '" + at("model.json") + "' is not JSON");
}

TEST_F(Edges, HelpSaysTheWordsThatAreTaken) {
  for (const char* command : {"train", "step", "memory model", "plan"}) {
    const std::string help = run(std::string(command) + " --help").out;
    EXPECT_NE(help.find("--gradients"), std::string::npos) << command;
    EXPECT_EQ(help.find("full is FP32"), std::string::npos) << "the word is whole: " << command;
  }
  EXPECT_NE(run("train --help").out.find("whole: FP32"), std::string::npos);
}

TEST_F(Edges, AMachinesFileIsBelievedOnlyWhole) {
  const auto says = [&](const char* text, const char* said) {
    put("card.json", text);
    refused("plan --device " + at("card.json"), 2, said);
  };
  says(R"({"name": "X"})", "its memory_mib is missing");
  says(R"({"name": "X", "memory_mib": 0})", "its memory_mib is missing");
  says(R"({"memory_mib": 8192})", "its name is missing");
  says(R"({"name": "X", "memory_mib": 8192, "units": -4})", "units is -4");
  says(R"({"name": "X", "memory_mib": 8192, "units": 1.5})", "units is 1.5");
  says(R"({"name": "X", "memory_mib": 1e300})", "memory_mib is 1e+300, it must be a number from 0 (not known) to 1e9");
  says(R"({"name": "X", "memory_mib": 8192, "units": 9999999})", "a whole number from 0 (not known) to 1000000");
  says(R"({"name": "X", "memory_mib": 8192, "sm": 90})", "its units (multiprocessors) are missing or 0");
  says(R"({"name": "X", "memory_mib": 8192, "units": 10})", "its file does not say its architecture, by which kernels are chosen");
  says(R"({"name": "X", "memory_mib": "8192"})", "memory_mib is \"8192\"");
  says(R"({"name": "X", "memory_mb": 8192})", "did you mean 'memory_mib'?");
  says(R"({"name": "X", "memory_mib": 8192, "kind": "tpu"})", "kind is 'tpu'");
}

TEST_F(Edges, AStoreWhoseWriterWasKilledIsReadByEveryCommand) {
  for (const char* command : {"results", "results 1", "report 1", "compare 1 1"}) {
    fs::remove(db_);
    ASSERT_TRUE(killed_inside_write(db_, 4));
    EXPECT_EQ(run(std::string(command) + " --db " + db_).code, 0) << command;
  }
  fs::remove(db_);
  ASSERT_TRUE(killed_inside_write(db_, 1));
  refused("results --db " + db_, 1, "measure something first");
}

TEST_F(Edges, WhatWasMeasuredAndNotDeliveredIsNotMeasuredAgain) {
  const std::string sweep =
      "$H attention --variant flash --batch 1 --dim 16 --len 16,32 --warmup 0 --steps 2 --format json --db results.db";
  EXPECT_EQ(shell(sweep + " > /dev/full").code, 1) << "as if it was killed between its last row and the output";
  const Ended again = shell(sweep + " --resume");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("starting afresh"), std::string::npos) << again.err;
  const Results r(db_, Results::Access::read);
  EXPECT_EQ(r.runs().size(), 1u);
  EXPECT_FALSE(r.runs()[0].finished.empty());
  EXPECT_EQ(Json::parse(again.out)["rows"].size(), 2u);
}

TEST_F(Edges, SchedulersSignalsSaveTheTraining) {
  put_text();
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string save = at("run" + std::to_string(signal));
    const pid_t child = start({"train",   "--device", "cpu",   "--text", at("text.txt"),  "--layers", "1",       "--width", "32",
                               "--heads", "2",        "--len", "32",     "--batch",       "2",        "--steps", "1000000", "--every",
                               "1000000", "--save",   save,    "--out",  at("train.json")});
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    for (int twin = 0; twin < 2; ++twin) kill(child, signal);  // as timeout(1) sends it
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    const Json j = Json::parse(text_of(folder_ / "train.json"), nullptr, false);
    ASSERT_TRUE(j.is_object()) << "it leaves a word";
    EXPECT_EQ(j["stopped"], true);
    EXPECT_GT(j["step"], 0);
    EXPECT_TRUE(fs::exists(fs::path(save) / fmt::format("step-{:08}.safetensors", j["step"].get<std::int64_t>())));
  }
}

// Thousands of forecasts: a search that is stopped shows what it knows, and does not say that nothing fits.
TEST_F(Edges, ASearchThatIsStoppedKeepsWhatItKnows) {
  std::string said;
  for (int ms = 500; ms <= 16000; ms *= 2) {  // a busy machine has forecast nothing by then
    const pid_t child = start({"plan", "--model", "llama-3.1-8b", "--gpus", "8", "--batch", "512", "--device", "h200", "--format", "json",
                               "--out", at("plan.json")},
                              true);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    kill(child, SIGINT);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    said = text_of(at("err"));
    if (said.find("before a setting was forecast") == std::string::npos) break;
  }
  EXPECT_TRUE(std::regex_search(said, std::regex("headroom plan: stopped by Ctrl-C after [0-9]+ of [0-9]+ settings"))) << said;
  const Json j = Json::parse(text_of(folder_ / "plan.json"), nullptr, false);
  ASSERT_TRUE(j.is_object()) << said;
  EXPECT_EQ(j.dump().find("Does not fit"), std::string::npos) << j.dump().substr(0, 400);
  EXPECT_NE(j.dump().find("topped after "), std::string::npos) << j.dump().substr(0, 400);
}

TEST_F(Edges, TheFirstRequestToStopIsHeardByEveryCommand) {
  constexpr std::chrono::seconds patience(thread_sanitizer ? 120
                                                           : 20);  // 4000 layers are walked to the end: 49 s under it on two busy cores
  put_text();
  const std::vector<std::vector<std::string>> commands = {
      // each takes minutes
      {"precision", "norm", "--width", "100000", "--rows", "1000"},
      {"precision", "formats", "--values", "100000000"},
      {"precision", "accumulate", "--count", "100000000", "--value", "1e-30,1e-31,1e-32,1e-33"},
      {"memory", "model", "--model", "small", "--layers", "4000", "--device", "h200", "--len", "128,256,512,1024,2048,4096"},
      {"plan", "--model", "small", "--layers", "4000", "--device", "h200"},
      {"device", "--db", db_},
      {"attention", "--len", "512,1024", "--steps", "1000000", "--db", db_},
      {"step", "--device", "cpu", "--model", "small", "--len", "64", "--steps", "1000", "--db", db_},
  };
  for (const auto& words : commands)
    for (const int signal : {SIGINT, SIGTERM}) {
      const pid_t child = start(words, true);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      kill(child, signal);
      int status = 0;
      const auto asked = std::chrono::steady_clock::now();
      while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() - asked > patience) {
          ADD_FAILURE() << words[0] << " " << words[1] << " goes on after signal " << signal;
          kill(child, SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_TRUE(WIFEXITED(status)) << words[0] << " " << words[1] << " was ended by signal " << WTERMSIG(status);
      EXPECT_EQ(WEXITSTATUS(status), 1) << words[0] << " " << words[1];
      const std::string said = text_of(at("err")), by = signal == SIGINT ? "stopped by Ctrl-C" : "stopped by SIGTERM";
      EXPECT_TRUE(said.starts_with("headroom " + words[0] + ": " + by)) << said;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    }
}

}  // namespace
}  // namespace headroom
