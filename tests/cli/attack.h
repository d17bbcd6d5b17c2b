// Attack — runs the program on what it should refuse. Not what the answer is: that there is one, in one line and one of four codes, that
// no other file is touched and nothing stays behind.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <set>

#include "base/device.h"
#include "store/results.h"
#include "tests/cli/program.h"

namespace headroom {

using Words = std::vector<std::string>;

// A command, and options that make it small: an attack on one of them leaves its own value out.
struct Attacked {
  Words command;
  std::vector<std::pair<std::string, std::string>> small;
};

inline const std::vector<std::pair<std::string, std::string>> tiny_model = {{"--layers", "1"}, {"--width", "32"}, {"--heads", "2"},
                                                                            {"--vocab", "64"}, {"--len", "8"},    {"--batch", "1"}};

inline std::vector<std::pair<std::string, std::string>> with(std::vector<std::pair<std::string, std::string>> all,
                                                             const std::vector<std::pair<std::string, std::string>>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline std::vector<Attacked> all_commands() {
  const std::vector<std::pair<std::string, std::string>> cpu = {{"--device", "cpu"}}, once = {{"--steps", "1"}, {"--warmup", "0"}};
  const std::vector<std::pair<std::string, std::string>> attention = {
      {"--variant", "flash"}, {"--batch", "1"}, {"--dim", "8"}, {"--len", "8"}, {"--device", "cpu"}};
  return {
      {{"attention"}, with(attention, once)},
      {{"memory", "attention"}, {{"--dim", "8"}, {"--len", "8"}, {"--device", "cpu"}}},
      {{"memory", "model"}, with(tiny_model, cpu)},
      {{"plan"}, with(tiny_model, {{"--device", "h200"}})},
      {{"step"}, with(with(tiny_model, cpu), once)},
      {{"profile", "step"}, with(with(tiny_model, cpu), once)},
      {{"profile", "attention"}, with(attention, once)},
      {{"train"},
       {{"--text", "text.txt"},
        {"--layers", "1"},
        {"--width", "32"},
        {"--heads", "2"},
        {"--len", "8"},
        {"--batch", "1"},
        {"--steps", "2"},
        {"--device", "cpu"}}},
      {{"comm"},
       {{"--ranks", "2"},
        {"--bytes", "1KiB"},
        {"--call", "exchange"},
        {"--steps", "1"},
        {"--warmup", "0"},
        {"--threads", "1"},
        {"--device", "cpu"}}},
      {{"precision", "accumulate"}, {{"--count", "10"}, {"--device", "cpu"}}},
      {{"precision", "autocast"}, {}},
      {{"precision", "norm"}, {{"--width", "8"}, {"--rows", "2"}, {"--magnitude", "1"}, {"--device", "cpu"}}},
      {{"precision", "formats"}, {{"--values", "100"}, {"--device", "cpu"}}},
      {{"device", "--no-measure"}, cpu},
      {{"kernels"}, cpu},
      {{"results"}, {}},
      {{"compare", "1", "1"}, {}},
      {{"report", "1"}, {}},
  };
}

class Attack : public Program {
 protected:
  static Attacked named(const Words& command) {
    const auto all = all_commands();
    return *std::find_if(all.begin(), all.end(), [&](const Attacked& a) { return a.command == command; });
  }

  void SetUp() override {
    Program::SetUp();
    for (const char* folder : {"mine", "tmp", "somewhere"}) fs::create_directories(folder_ / folder);
    db_ = at("mine/results.db");
    {
      Results r(db_, Results::Access::write);
      const auto run = r.start_run("attention", R"({"len": [16]})", "m");
      r.add_row(run, {"k1", R"({"variant": "flash", "fwd_ms": 1.5, "status": "ok"})", "{}"});
      r.finish_run(run);
    }
    std::string text;
    for (int i = 0; i < 400; ++i) text += "some text " + std::to_string(i * i);
    put("text.txt", text);
    put("mine/empty", "");
    put("mine/deep.json", std::string(100'000, '[') + std::string(100'000, ']'));
    put("mine/twice.json", R"({"layers": 1, "layers": 2})");
    put("mine/words.json", R"({"rows": [{"variant": "\u001b[31mred\u0000", "fwd_ms": 1e308, "status": "<script>"}]})");
    put("mine/cut.json", R"({"rows": [{"a": 1},)");
    std::string noise(5000, ' ');
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = char(i * i * 31 + i / 7);
    put("mine/noise.bin", noise);
    put("mine/noise.csv", noise);
    fs::create_directories(folder_ / "mine" / "run");
    for (const char* name : {"mine/run/step-best.safetensors", "mine/run/step-00000001-keep.safetensors", "mine/run/notes.txt"})
      put(name, "mine");
    mkfifo(at("somewhere/pipe").c_str(), 0600);
    keep_device(at("somewhere/s.db"), 1e10);  // else every profile measures ceilings first, for seconds
    mine_ = bytes_below(folder_ / "mine");
  }

  static std::map<std::string, std::string> bytes_below(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& e : fs::recursive_directory_iterator(folder))
      if (e.is_regular_file()) all[fs::relative(e.path(), folder).string()] = text_of(e.path());
    return all;
  }

  // Two minutes at most, on a machine that others use: a command that is asked for little and is still there then hangs. `around`: words before the program's own.
  Ended attack(
      const Words& words, const std::function<void()>& prepare = [] {}, const Words& around = {}) const {
    Words all = around;
    all.push_back(std::string(HEADROOM_BINARY_DIR) + "/headroom");
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (auto& w : all) argv.push_back(w.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) std::signal(signal, SIG_DFL);
      if (chdir(at("somewhere").c_str()) != 0) _exit(126);
      setenv("TMPDIR", at("tmp").c_str(), 1);
      dup2(open("/dev/null", O_RDONLY), 0);
      dup2(open(at("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(at("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      prepare();
      alarm(150);
      execvp(argv[0], argv.data());
      _exit(126);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text_of(folder_ / "out"), text_of(folder_ / "err")};
  }

  void expect_order(const Ended& e, const std::string& what) const {
    SCOPED_TRACE(what);
    EXPECT_TRUE(e.code >= 0 && e.code <= 3) << "code " << e.code << ": " << e.err.substr(0, 500);
    const auto bad = std::find_if(e.err.begin(), e.err.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; });
    EXPECT_EQ(bad, e.err.end()) << "a terminal would obey " << int(*bad);
    for (const char* library : {"[json.", "std::", "terminate", "what()", "basic_string", "filesystem error", "Sanitizer", "CLI::"})
      EXPECT_EQ(e.err.find(library), std::string::npos) << e.err.substr(0, 500);
    if (e.code == 2) {
      EXPECT_TRUE(e.err.starts_with("headroom")) << e.err.substr(0, 500);
      EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << e.err.substr(0, 500);
      EXPECT_TRUE(e.out.empty()) << e.out.substr(0, 500);
    }
    if (e.code == 1) { EXPECT_FALSE(e.err.empty()) << "it failed and says nothing"; }
  }

  void expect_untouched(const std::string& what) {
    SCOPED_TRACE(what);
    const auto now = bytes_below(folder_ / "mine");
    for (const auto& [name, bytes] : mine_) EXPECT_TRUE(now.contains(name) && now.at(name) == bytes) << name << " is another or gone";
    for (const auto& [name, bytes] : now) EXPECT_TRUE(mine_.contains(name)) << name << " was left there";
    EXPECT_TRUE(fs::is_empty(folder_ / "tmp")) << "in the folder for temporary files";
    for (const auto& e : fs::recursive_directory_iterator(folder_ / "somewhere"))
      EXPECT_EQ(e.path().filename().string().find("headroom-part"), std::string::npos) << e.path();
    if (HasFailure()) mine_ = now;
  }

  // The long options of a command's own help, and whether they take words (else numbers).
  std::map<std::string, bool> options_of(const Attacked& a) const {
    Words words = a.command;
    std::erase_if(words, [](const std::string& w) { return w == "1" || w.starts_with("--"); });
    words.push_back("--help");
    std::map<std::string, bool> all;
    for (const Words& asked : {words, Words{words[0], "--help"}}) {
      std::istringstream help(attack(asked).out);
      for (std::string line; std::getline(help, line);) {
        const auto begin = line.find("--");
        if (begin == std::string::npos || begin > 6 || line.find_first_not_of(" -,h") < begin) continue;
        const auto end = line.find_first_of(" ,=", begin);
        const std::string name = line.substr(begin, end - begin), rest = end == std::string::npos ? "" : line.substr(end + 1, 4);
        const bool number = rest.starts_with("N ") || rest.starts_with("N,N") || rest.starts_with("X ") || rest.starts_with("GiB") ||
                            rest.starts_with("B,B") || rest.starts_with("P%");
        if (name.size() > 2 && name != "--help") all.emplace(name, !number);
      }
    }
    return all;
  }

  Words spelled(const Attacked& a, const std::string& but) const {
    Words words = a.command;
    for (const auto& [option, value] : a.small)
      if (option != but && !(but == "--counts" && option == "--ranks"))
        words.push_back(option), words.push_back(value == "text.txt" ? at(value) : value);
    if (but != "--db")
      words.push_back("--db"),
          words.push_back(a.command[0] == "results" || a.command[0] == "compare" || a.command[0] == "report" ? db_ : at("somewhere/s.db"));
    return words;
  }

  // Where the answer is rightly yes: a file or a folder that is asked to be written.
  bool is_a_wish(const std::string& command, const std::string& option, const std::string& value) const {
    const bool reads_only = command == "results" || command == "compare" || command == "report";
    const bool store = value == db_ || value == db_ + "-journal";
    if (option == "--out" || option == "--trace") return value.starts_with(at("mine/")) && !store;
    const bool fresh = !value.empty() && value.find('/') == std::string::npos;  // a profile would measure the ceilings for each
    if (option == "--db") return (!reads_only && (store || value == at("mine/empty"))) || (command == "profile" && fresh);
    return (option == "--save" || option == "--save-hf") && (value == "/" || value == "../.." || value.starts_with(at("mine")));
  }

  // Of all pairs of an option and a value, each command tries this share; HEADROOM_ATTACK=all: every one.
  static int share() {
    const char* asked = std::getenv("HEADROOM_ATTACK");
    return asked && std::string(asked) == "all" ? 1 : 5;
  }

  void attack_options(const std::string& command) {
    const std::vector<std::string> numbers = {
        "-1", "0",  "1e999", "nan", "inf", "99999999999999999999", "9223372036854775807", "1,2,,3", "1.5", "0x10", "1e-320",
        "+1", " 1", "٣",     "1,1", "-0"};
    const std::vector<std::string> texts = {"",
                                            " ",
                                            ",",
                                            "a\nb",
                                            "\x1b[2J\x07",
                                            "\xff\xfe",
                                            std::string(100'000, 'x'),
                                            "--",
                                            "-",
                                            "../..",
                                            "/",
                                            "/dev/null",
                                            "/dev/full",
                                            "/dev/zero",
                                            "/proc/self/mem",
                                            "no/such/file",
                                            at("mine"),
                                            at("mine/empty"),
                                            at("mine/deep.json"),
                                            at("mine/twice.json"),
                                            at("mine/words.json"),
                                            at("mine/cut.json"),
                                            at("mine/noise.bin"),
                                            at("mine/noise.csv"),
                                            at("mine/run"),
                                            at("mine/results.db"),
                                            at("mine/results.db-journal"),
                                            at("somewhere/pipe"),
                                            "%s%n",
                                            "{}",
                                            "$(reboot)",
                                            "*"};
    int tried = 0, turn = 0;
    for (const Attacked& a : all_commands()) {
      if (a.command[0] != command) continue;
      const auto options = options_of(a);
      ASSERT_GE(options.size(), 3u) << "its help is not understood";  // --format, --out and --db are in all of them
      const std::set<std::string> of_ranks = {"step", "train", "comm"};
      if (of_ranks.contains(a.command[0])) {
        for (const char* option : {"--gpus", "--ranks", "--rank", "--rendezvous"}) EXPECT_TRUE(options.contains(option)) << option;
      }
      for (const auto& [option, takes_words] : options) {
        auto values = numbers;
        if (takes_words) values.insert(values.end(), texts.begin(), texts.end());
        for (const std::string& value : values) {
          if (++turn % share() != 0 || is_a_wish(command, option, value)) continue;
          Words words = spelled(a, option);
          words.push_back(option), words.push_back(value);
          const std::string what = command + " " + option + " '" + value.substr(0, 60) + "'";
          expect_order(attack(words), what);
          if (++tried % 16 == 0) expect_untouched("up to " + what);
        }
      }
      for (const std::string& value : texts) {  // where no option is
        Words words = spelled(a, "");
        words.push_back(value);
        expect_order(attack(words), command + " '" + value.substr(0, 60) + "'");
      }
      expect_untouched(command);
    }
    EXPECT_GT(tried, 50 / share());
  }

  // Commands that write: a store, checkpoints, an output.
  std::vector<Words> writers() const {
    const auto tiny = [&](const Words& command, const Words& more) {
      Words words = spelled(named(command), "");
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    return {tiny({"attention"}, {"--out", at("somewhere/a.json")}), tiny({"step"}, {"--out", at("somewhere/s.html")}),
            tiny({"profile", "step"}, {"--trace", at("somewhere/t.json.gz"), "--out", at("somewhere/p.md")}),
            tiny({"train"}, {"--save", at("somewhere/run"), "--every", "1", "--out", at("somewhere/t.csv")}),
            tiny({"kernels"}, {"--out", at("somewhere/k.json")})};
  }
  void start_afresh() const {
    for (const char* name : {"a.json", "s.html", "t.json.gz", "p.md", "t.csv", "k.json", "s.db", "s.db-journal", "run"})
      fs::remove_all(folder_ / "somewhere" / name);
    Results r(at("somewhere/s.db"), Results::Access::write);
    const auto run = r.start_run("attention", "{}", "before");
    r.add_row(run, {"k", R"({"variant": "flash"})", "{}"});
    r.finish_run(run);
    keep_device(at("somewhere/s.db"), 1e10);
    for (const char* name : {"a.json", "k.json"}) put(std::string("somewhere/") + name, "{\"old\": 1}");
  }
  // Whatever happened: rows that were there are there, an output is the old one or whole, and no part of anything stays.
  void expect_whole(const std::string& what, bool killed = false) {
    SCOPED_TRACE(what);
    expect_order(attack({"results", "--db", at("somewhere/s.db")}), "results");
    const Results r(at("somewhere/s.db"), Results::Access::read);
    EXPECT_EQ(r.rows(1).size(), 1u);
    for (const char* name : {"a.json", "k.json"}) EXPECT_TRUE(Json::accept(text_of(folder_ / "somewhere" / name))) << name;
    std::error_code none;
    for (const auto& e : fs::directory_iterator(folder_ / "somewhere" / "run", none))
      if (e.path().extension() == ".safetensors") {
        const Ended told =
            attack({"train", "--text", at("text.txt"), "--init", at("somewhere/run"), "--steps", "0", "--len", "8", "--batch", "1"});
        EXPECT_EQ(told.code, 0) << "a checkpoint that is there is whole: " << told.err;
        break;
      }
    if (!killed) expect_untouched("after it");
  }

  std::map<std::string, std::string> mine_;
};

}  // namespace headroom
