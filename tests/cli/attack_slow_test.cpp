// Every option with every bad value, every file that is none, full disks, closed descriptors, failing system calls and signals. Not what
// the answer is: that there is one, in one line and one of four codes, that nobody's file is touched and nothing stays behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "base/device.h"
#include "store/results.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

using Words = std::vector<std::string>;

// A command, and options that make it small: an attack on one of them leaves its own value out.
struct Attacked {
  Words command;
  std::vector<std::pair<std::string, std::string>> small;
};

const std::vector<std::pair<std::string, std::string>> small_model = {{"--layers", "1"}, {"--width", "32"}, {"--heads", "2"},
                                                                      {"--vocab", "64"}, {"--len", "8"},    {"--batch", "1"}};

std::vector<std::pair<std::string, std::string>> with(std::vector<std::pair<std::string, std::string>> all,
                                                      const std::vector<std::pair<std::string, std::string>>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Attacked> all_commands() {
  const std::vector<std::pair<std::string, std::string>> cpu = {{"--device", "cpu"}}, once = {{"--steps", "1"}, {"--warmup", "0"}};
  const std::vector<std::pair<std::string, std::string>> attention = {
      {"--variant", "flash"}, {"--batch", "1"}, {"--dim", "8"}, {"--len", "8"}, {"--device", "cpu"}};
  return {
      {{"attention"}, with(attention, once)},
      {{"memory", "attention"}, {{"--dim", "8"}, {"--len", "8"}, {"--device", "cpu"}}},
      {{"memory", "model"}, with(small_model, cpu)},
      {{"plan"}, with(small_model, {{"--device", "h200"}})},
      {{"step"}, with(with(small_model, cpu), once)},
      {{"profile", "step"}, with(with(small_model, cpu), once)},
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
    keep_ceilings(at("somewhere/s.db"));
    mine_ = bytes_below(folder_ / "mine");
  }

  // As headroom device does: else every profile measures them first, for seconds.
  static void keep_ceilings(const std::string& store) {
    Results r(store, Results::Access::write);
    const auto run = r.start_run("device", "{}", cpu_device().name);
    r.add_row(run, {"copy", R"({"what": "copy", "dtype": "bytes", "size": 1, "copy_bytes_per_s": 1e10})", "{}"});
    for (const std::string dtype : {"fp32", "bf16"})
      r.add_row(run, {dtype, R"({"what": "matmul", "dtype": ")" + dtype + R"(", "size": 1, "flops_per_s": 1e10})", "{}"});
    r.finish_run(run);
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
                            rest.starts_with("P%");
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
      ASSERT_GE(options.size(), 5u) << "its help is not understood";
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
    keep_ceilings(at("somewhere/s.db"));
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

// Ranks that cannot meet: every place that is none, every number that is no rank's, what a launcher says and does not mean.
TEST_F(Attack, RanksThatCannotMeet) {
  const std::string port = std::to_string(11000 + getpid() % 9000);
  for (const std::string command : {"step", "train", "comm"}) {
    const auto refused = [&](const Words& more, const Words& environment = {}) {
      Words words = spelled(named({command}), "--ranks");
      words.insert(words.end(), more.begin(), more.end());
      std::string what = command;
      for (const auto& w : more) what += " " + w;
      for (const auto& w : environment) what += " " + w;
      const Ended e = attack(words, [&] {
        for (const auto& w : environment) setenv(w.substr(0, w.find('=')).c_str(), w.substr(w.find('=') + 1).c_str(), 1);
      });
      expect_order(e, what);
      EXPECT_NE(e.code, 0) << what;
      EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << what << ": " << e.err;
    };
    for (const char* where : {":", "localhost", "localhost:", "localhost:0", "localhost:-1", "localhost:65536", "localhost:99999999999",
                              "localhost:1e3", "[::1", "local:", ":80", "a\nb:", "\x1b[2J", "x:\x07"})
      refused({"--ranks", "2", "--rank", "0", "--rendezvous", where});
    refused({"--ranks", "2", "--rank", "0", "--rendezvous", "local:" + std::string(200, 'x')});
    refused({"--ranks", "2", "--rank", "0"});
    refused({"--ranks", "2", "--rank", "2", "--rendezvous", "localhost:" + port});
    refused({"--rank", "0"});
    refused({"--rank", "1", "--ranks", "1"});
    refused({"--ranks", "2", "--rendezvous", "localhost:" + port});
    refused({"--gpus", "2", "--ranks", "3"});
    for (const Words& said : std::vector<Words>{{"RANK=x", "WORLD_SIZE=2"},
                                                {"RANK=-1", "WORLD_SIZE=2"},
                                                {"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1"},
                                                {"RANK=0", "WORLD_SIZE=99999999999"},
                                                {"RANK=0", "WORLD_SIZE=2"},
                                                {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=99999"},
                                                {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=\x1b"},
                                                {"PMI_RANK=0", "PMI_SIZE=\xff"},
                                                {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"},
                                                {"HEADROOM_RANK=1", "HEADROOM_RANKS=2", "HEADROOM_FD=77"},
                                                {"HEADROOM_RANK=5", "HEADROOM_RANKS=2", "HEADROOM_FD=77"}})
      refused({}, said);
    if (command != "comm")
      for (const char* word : {"ZeRO", "none,optimizer", "\n", "1"}) refused({"--ranks", "2", "--shard", word});
  }
  expect_untouched("ranks");
}

// What connects to a rendezvous and is no rank: silence, noise, half a message. The ranks come and go on.
TEST_F(Attack, StrangersAtARendezvous) {
  const int port = 21000 + getpid() % 9000;
  const std::string place = "localhost:" + std::to_string(port);
  const auto rank = [&](int r) {
    Words words = spelled(named({"comm"}), "--ranks");
    for (const auto& w :
         {std::string("--ranks"), std::string("2"), std::string("--rank"), std::to_string(r), std::string("--rendezvous"), place})
      words.push_back(w);
    return words;
  };
  std::atomic<int> connected{0};
  std::thread strangers([&] {
    const std::string noise(300, '\x7f');
    std::string half(24, '\0');
    half.replace(0, 4, "MDRH");  // as a hello begins
    half[16] = 10;
    std::vector<int> open;
    for (int k = 0; k < 400 && connected < 6; ++k) {
      sockaddr_in at{};
      at.sin_family = AF_INET, at.sin_port = htons(std::uint16_t(port)), at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const int s = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(s, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
        const std::string& said = connected % 3 == 0 ? std::string() : connected % 3 == 1 ? noise : half;
        if (!said.empty()) send(s, said.data(), said.size(), MSG_NOSIGNAL);
        ++connected;
      }
      open.push_back(s);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (const int s : open) close(s);
  });
  std::thread other([&] {
    while (connected < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::string line = fmt::format(
        "cd {}; exec {}/headroom comm --device cpu --ranks 2 --bytes 1KiB --call exchange --steps 1 "
        "--warmup 0 --threads 1 --rank 1 --rendezvous {} > other.out 2> other.err",
        at("somewhere"), HEADROOM_BINARY_DIR, place);
    EXPECT_EQ(std::system(line.c_str()), 0) << text_of(folder_ / "somewhere" / "other.err");
  });
  const Ended e = attack(rank(0));
  strangers.join();
  other.join();
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_GE(connected, 3);
}

// Two of everything at once, on one store, one output, one folder of checkpoints.
TEST_F(Attack, TwoAtOnce) {
  for (const Words& words : writers()) {
    start_afresh();
    const auto begin = [&] {
      std::string line = "cd " + at("somewhere") + "; exec " + std::string(HEADROOM_BINARY_DIR) + "/headroom";
      for (const auto& w : words) line += " '" + w + "'";
      return line + " > second.out 2> second.err";
    };
    int second = -1;
    std::thread beside([&] { second = std::system(begin().c_str()); });
    const Ended first = attack(words);
    beside.join();
    const std::string what = "two of " + words[0];
    expect_order(first, what);
    const std::string said = text_of(folder_ / "somewhere" / "second.err");
    EXPECT_TRUE(first.code == 0 || second == 0) << what << ": " << first.err << said;
    const bool shares = words[0] == "train";  // one of two that save to one folder is refused, or finds the other's checkpoints
    EXPECT_TRUE(shares || (first.code == 0 && second == 0)) << what << ": " << first.err << said;
    expect_whole(what);
  }
}

TEST_F(Attack, ClosedDescriptors) {
  for (const Words& words : writers())
    for (int closed = 1; closed < 8; ++closed) {
      start_afresh();
      const Ended e = attack(words, [closed] {
        for (int fd : {0, 1, 2})
          if (closed & 1 << fd) close(fd);
      });
      const std::string what = fmt::format("{} with descriptors {:03b} closed", words[0], closed);
      EXPECT_TRUE(e.code == 0) << what << ": " << e.code << " " << e.err;
      expect_whole(what);
    }
}

TEST_F(Attack, FilesThatMayNotGrow) {
  for (const Words& words : writers())
    for (const rlim_t most : {0, 1, 512, 4096, 8192, 16384, 40960, 100'000}) {
      start_afresh();
      const Ended e = attack(words, [most] {
        const rlimit limit{most, most};
        setrlimit(RLIMIT_FSIZE, &limit);
      });
      const std::string what = fmt::format("{} with files of at most {} bytes", words[0], most);
      EXPECT_TRUE(e.code == 0 || e.code == 1) << what << ": " << e.code << " " << e.err;
      expect_whole(what);
    }
}

TEST_F(Attack, FewDescriptors) {
  for (const Words& words : writers())
    for (const rlim_t most : {3, 4, 5, 6, 8, 12}) {
      start_afresh();
      const Ended e = attack(words, [most] {
        const rlimit limit{most, most};
        setrlimit(RLIMIT_NOFILE, &limit);
      });
      const std::string what = fmt::format("{} with {} descriptors", words[0], most);
      if (e.code == 127) continue;  // the libraries themselves could not be opened
      expect_order(e, what);
      expect_whole(what);
    }
}

// Each write, each settling, each renaming and each deletion fails once, and once it is the last thing that happens.
TEST_F(Attack, SystemCallsThatFailOrAreTheLast) {
  if (attack({}, [] {}, {"strace", "-f", "-o", "/dev/null", "-e", "trace=rename"}).err.find("strace") != std::string::npos ||
      std::system("strace -f -o /dev/null -e trace=rename true > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no strace here, or it may not trace";
  const std::pair<const char*, std::vector<const char*>> faults[] = {{"pwrite64", {"error=ENOSPC", "error=EIO", "signal=KILL"}},
                                                                     {"fsync,fdatasync", {"error=EIO", "signal=KILL"}},
                                                                     {"rename", {"error=EACCES", "signal=KILL"}},
                                                                     {"unlink", {"error=EACCES", "signal=KILL"}}};
  const auto all = writers();
  int struck = 0;
  for (const std::size_t which : {0u, 3u})  // a store and an output; checkpoints
    for (const auto& [calls, ways] : faults)
      for (const char* way : ways)
        for (int nth = 1; nth <= 6; ++nth) {
          start_afresh();
          const bool killed = std::string(way) == "signal=KILL";
          const Ended e = attack(all[which], [] {},
                                 {"strace", "-f", "-o", "/dev/null", "-e", fmt::format("trace={}", calls), "-e",
                                  fmt::format("inject={}:{}:when={}", calls, way, nth)});
          const std::string what = fmt::format("{} where {} number {} has {}", all[which][0], calls, nth, way);
          struck += e.code != 0;
          if (!killed) expect_order(e, what);
          expect_whole(what, killed);
        }
  EXPECT_GT(struck, 20) << "the faults do not arrive";
}

TEST_F(Attack, SignalsAtAnyMoment) {
  const std::vector<Words> commands = {
      {"attention", "--dim", "16", "--len", "16,32,64,128,256", "--steps", "200", "--db", at("somewhere/s.db"), "--out",
       at("somewhere/a.json")},
      {"train", "--text",  at("text.txt"), "--layers", "1",  "--width",  "32",     "--heads",          "2", "--len", "8", "--batch",
       "1",     "--steps", "100000",       "--every",  "50", "--resume", "--save", at("somewhere/run")},
      {"step", "--device", "cpu", "--layers", "2", "--width", "64", "--heads", "2", "--vocab", "64", "--len", "16,32,64", "--steps", "500",
       "--db", at("somewhere/s.db")},
      {"precision", "norm"},
      {"memory", "model", "--layers", "2000", "--device", "h200"},
      {"plan", "--layers", "500", "--device", "h200"},
      {"device", "--db", at("somewhere/s.db")},
      {"profile", "step", "--device", "cpu", "--model", "small", "--len", "64", "--batch", "1", "--steps", "100", "--db",
       at("somewhere/s.db")}};
  for (const Words& words : commands)
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
      for (const int after_ms : {20, 150, 400, 900}) {
        start_afresh();
        const auto parent = getpid();
        std::thread sender;
        const auto begun = std::chrono::steady_clock::now();
        const Ended e = [&] {
          int ends[2];
          EXPECT_EQ(pipe(ends), 0);
          sender = std::thread([&] {
            pid_t child = 0;
            if (read(ends[0], &child, sizeof child) != sizeof child) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
            kill(child, signal);
          });
          const Ended ended = attack(words, [&] {
            const pid_t me = getpid();
            if (me == parent || write(ends[1], &me, sizeof me) != sizeof me) _exit(126);
            close(ends[1]);
          });
          close(ends[1]);
          sender.join();
          close(ends[0]);
          return ended;
        }();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        const std::string what = fmt::format("{} {} with signal {} after {} ms", words[0], words[1], signal, after_ms);
        if (e.code != -signal || after_ms > 400) expect_order(e, what);  // before it listens a signal ends it as any program
        EXPECT_LT(seconds, 30) << what;
        expect_whole(what, e.code == -signal);
      }
}

}  // namespace
}  // namespace headroom
