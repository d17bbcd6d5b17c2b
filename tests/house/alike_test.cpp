// tools/alike, with a compiler that only copies: two build folders of one source, whose second takes from the first what is compiled alike.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

class Alike : public testing::Test {
 protected:
  Alike() : folder_(fs::temp_directory_path() / ("headroom_alike_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    // compiler WORD -MF D -o O -c SOURCE: the object is the word, the source and the header; what was compiled is a line of `compiled`
    put("compiler",
        "#!/bin/sh\n{ echo \"$1\"; cat \"$7\" ../header; } >\"$5\"\necho \"$5: $7 ../header\" >\"$3\"\necho \"$PWD\" >>../compiled\n");
    fs::permissions(at("compiler"), fs::perms::owner_all);
    put("header", "header\n");
    put("source", "source\n");
    build_folder("one", "");
    build_folder("two", "sh " HEADROOM_SOURCE_DIR "/tools/alike " + at("one") + " ");
  }
  ~Alike() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(at(name)).rdbuf();
    return text.str();
  }
  void build_folder(const std::string& name, const std::string& launcher, const std::string& word = "-word") const {
    fs::create_directories(at(name));
    put(name + "/generated", "generated\n");
    put(name + "/build.ninja", "rule compile\n depfile = $out.d\n deps = gcc\n command = " + launcher + at("compiler") + " " + word +
                                   " -MF $out.d -o $out -c $in\nbuild own.o: compile " + at("source") + "\nbuild made.o: compile " +
                                   at(name) + "/generated\n");
  }
  int compiled(const std::string& name) const {  // how many objects a build of it compiled itself
    fs::remove(at("compiled"));
    const std::string command = "ninja -j1 -C '" + at(name) + "' >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    const std::string lines = fs::exists(at("compiled")) ? text_of("compiled") : "";
    return int(std::count(lines.begin(), lines.end(), '\n'));
  }
  // The files of a test are written within the clock's grain of each other: what changed later says so.
  void change(const std::string& name, const std::string& text) const {
    put(name, text);
    fs::last_write_time(at(name), fs::file_time_type::clock::now() + std::chrono::seconds(2));
  }
  fs::path folder_;
};

TEST_F(Alike, IsTakenWithWhatItReadAndNotCompiledAgain) {
  EXPECT_EQ(compiled("one"), 2);
  EXPECT_EQ(compiled("two"), 0);
  for (const std::string object : {"/own.o", "/made.o"}) EXPECT_EQ(text_of("two" + object), text_of("one" + object));
  EXPECT_EQ(compiled("two"), 0);
  change("header", "another\n");  // it is known what the objects read
  EXPECT_EQ(compiled("two"), 2);
  EXPECT_EQ(text_of("two/own.o"), "-word\nsource\nanother\n");
}

TEST_F(Alike, AnotherCommandOrChangedSourceIsCompiled) {
  EXPECT_EQ(compiled("two"), 2) << "there is nothing to take yet";
  fs::remove_all(at("two"));
  EXPECT_EQ(compiled("one"), 2);
  build_folder("two", "sh " HEADROOM_SOURCE_DIR "/tools/alike " + at("one") + " ", "-other");
  EXPECT_EQ(compiled("two"), 2);
  EXPECT_EQ(text_of("two/own.o"), "-other\nsource\nheader\n");
  fs::remove_all(at("two"));
  build_folder("two", "sh " HEADROOM_SOURCE_DIR "/tools/alike " + at("one") + " ");
  change("source", "changed\n");
  EXPECT_EQ(compiled("two"), 1);
  EXPECT_EQ(text_of("two/own.o"), "-word\nchanged\nheader\n");
}

TEST_F(Alike, WhatIsGeneratedIsTakenWhereItsTextIsTheSame) {
  EXPECT_EQ(compiled("one"), 2);
  put("two/generated", "in another way\n");
  EXPECT_EQ(compiled("two"), 1);
  EXPECT_EQ(text_of("two/made.o"), "-word\nin another way\nheader\n");
}

TEST_F(Alike, AFailureIsTheCompilersOwn) {
  put("compiler", "#!/bin/sh\nexit 1\n");
  const std::string command = "ninja -C '" + at("two") + "' >/dev/null 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0);
}

}  // namespace
