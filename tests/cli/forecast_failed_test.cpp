// headroom forecast without an answer: what is no program, fails of itself, uses no card or leaves no record, and what each is told.
#include "gpu/device.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, WrongUseIsOneLine) {
  refused("forecast --device h100", 2, "give -- and the program");
  refused("forecast --device h100 -- /no/such/program", 2, "cannot be started");
  refused("forecast --device cpu -- true", 2, "for a GPU");
  refused("forecast --device h999 -- true", 2, "h999");
  refused("forecast --largest batch=1..8 -- true --batch 3", 2, "the command has no {batch}");
  refused("forecast --largest batch=8..1 -- true {batch}", 2, "the smaller number comes first");
  refused("forecast --sweep len -- true {len}", 2, "no name with values");
  if (cuda_device_count() == 0) refused("forecast --check --device h100 -- true", 1, "there is none in this machine");
  refused("forecast --sweep b=1 --largest b=1..2 -- true {b}", 2, "both vary b");
}

TEST_F(Forecast, WhatIsNoProgramIsSaidWithWhatToWrite) {
  put("train.py", "import torch\n");
  put("run.sh", "true\n");
  put("tool", "true\n");
  put("gone", "#!/no/such/interpreter\n");
  fs::permissions(folder_ / "gone", fs::perms::owner_all);
  put("my notebook.ipynb", "{\"cells\": [], \"metadata\": null}");
  const auto said = [&](const std::string& program, const std::string& words) {
    shell_refused("$H forecast --device h100 -- " + program, 2, "' cannot be started: " + words);
  };
  put("unread.py", "import torch\n");  // it may be executed, and does not say by what
  fs::permissions(folder_ / "unread.py", fs::perms::owner_all);
  said("./unread.py --batch 8", "it is a Python file; write -- python3 ./unread.py --batch 8");
  said("./run.sh", "it is a script of a shell; write -- sh ./run.sh");
  said("./tool", "it may not be executed; chmod +x ./tool allows that");
  said("./gone", "what its first line names to run it is not there");
  said("'python3 train.py --batch 8'", "it is one word, with blanks in it; leave the quotes out: -- python3 train.py --batch 8");
  said("CUDA_VISIBLE_DEVICES=0 python3 train.py", "it sets a variable; write -- env CUDA_VISIBLE_DEVICES=0 python3 train.py");
  said("no_such_launcher train.py", "no folder of PATH has it; activate the environment that has it, or give its path");
  said("trian.py --batch 8", "there is no such file here; give its path");
  said("/no/such/program", "there is no such file");
  said("/usr", "it is a folder; name a program in it");
  const std::string convert =
      "jupyter nbconvert --to script 'my notebook.ipynb' writes 'my notebook.py', and then -- python3 'my notebook.py'";
  said("'my notebook.ipynb'", "it is a notebook; " + convert);
  const Ended notebook = shell("$H forecast --device h100 -- python3 'my notebook.ipynb'");
  EXPECT_EQ(notebook.code, 2) << notebook.err;
  EXPECT_NE(notebook.err.find("Python cannot run 'my notebook.ipynb': it is a notebook; " + convert), std::string::npos) << notebook.err;
}

TEST_F(Forecast, APythonFileAloneIsRunByPython) {
  put("train.py", "import sys\nprint('words', sys.argv[1:])\nsys.exit(5)\n");
  for (const std::string program : {"train.py", "./train.py"}) {
    const Ended e = shell("$H forecast --device h100 -- " + program + " --batch 8");
    EXPECT_EQ(e.code, 1) << e.err;
    EXPECT_NE(e.err.find("words ['--batch', '8']"), std::string::npos) << e.err;
    EXPECT_NE(e.err.find("exit code 5"), std::string::npos) << e.err;
  }
}

TEST_F(Forecast, AProgramThatFailsOfItselfIsNamedWithItsCode) {
  const Ended e = run(line("--device h100", "batch=2 fails"));
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.out.find("exit code 7"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("the program's own mistake"), std::string::npos) << e.out;
  EXPECT_NE(e.err.find("the program's own mistake"), std::string::npos) << e.err;
  const Ended killed = run(line("--device h100", "batch=2 killed"));
  EXPECT_EQ(killed.code, 1);
  EXPECT_NE(killed.out.find("Killed"), std::string::npos) << killed.out;
  EXPECT_NE(killed.out.find("NVIDIA H100"), std::string::npos) << "what is known until then is kept";
}

TEST_F(Forecast, ARulerIsNoReason) {
  put("rule.sh", "echo 'what is wrong'; echo -----; exit 4\n");
  const Ended e = shell("$H forecast --device h100 -- sh rule.sh");
  EXPECT_NE(e.err.find("'rule.sh' ended before it used a card, with exit code 4: what is wrong\n"), std::string::npos) << e.err;
}

TEST_F(Forecast, AProgramWithoutACardIsSaid) {
  const Ended e = run("forecast --device h100 --db " + db_ + " -- true");
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.err.find("allocated nothing on a card"), std::string::npos) << e.err;
  const Ended early = run("forecast --device h100 --db " + db_ + " -- sh -c 'echo no such file >&2; exit 5'");
  EXPECT_EQ(early.code, 1);
  EXPECT_NE(early.err.find("exit code 5: no such file"), std::string::npos) << early.err;
  put("train.sh", "echo \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n");
  const Ended none = run("forecast --device h100 --db " + db_ + " -- sh " + (folder_ / "train.sh").string());
  EXPECT_NE(none.err.find("name the Python that has PyTorch"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("train.sh' ended before it used a card"), std::string::npos) << none.err;
}

TEST_F(Forecast, NoCardInsideIsExplained) {
  put("none.sh", "echo 'RuntimeError: No CUDA GPUs are available'; exit 1\n");
  const Ended e = shell("$H forecast --device h100 -- sh none.sh");
  EXPECT_NE(e.err.find("No CUDA GPUs are available; something sets CUDA_VISIBLE_DEVICES for it, so that it sees no card"),
            std::string::npos)
      << e.err;
}

TEST_F(Forecast, AProgramThatHidesItsCardsIsToldSo) {
  const Ended e = run(line("--device h100", "hides"));
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.err.find("sets CUDA_VISIBLE_DEVICES itself, so that it sees no card"), std::string::npos) << e.err;
}

TEST_F(Forecast, APyTorchWithoutCudaIsToldWhatToInstall) {
  if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  fs::create_directories(folder_ / "torch");
  put("torch/__init__.py", "from . import version\n__version__ = '2.9.0+cpu'\n");
  put("torch/version.py", "cuda = None\n");
  put("train.py", "import torch\nprint('trains for hours on the CPU')\n");
  const Ended e = shell("PYTHONPATH=" + folder_.string() + " $H forecast --device h100 --db " + db_ + " -- python3 train.py");
  EXPECT_EQ(e.code, 1);
  EXPECT_TRUE(e.out.empty()) << e.out;
  EXPECT_NE(e.err.find("its PyTorch 2.9.0+cpu is a build without CUDA"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("pip install torch --index-url https://download.pytorch.org/whl/cu"), std::string::npos) << e.err;
  EXPECT_EQ(e.err.find("trains for hours"), std::string::npos) << e.err;
  put("train.sh", "export PYTHONPATH=" + folder_.string() + "\nexec python3 train.py\n");  // the observer is there all the same
  EXPECT_NE(shell("$H forecast --device h100 --db " + db_ + " -- sh train.sh").err.find("its PyTorch 2.9.0+cpu is a build without CUDA"),
            std::string::npos);
}

TEST_F(Forecast, AFolderForTemporaryFilesThatIsNoneIsNamed) {
  const auto with = [&](const std::string& tmp) {
    return shell("TMPDIR=" + tmp + " $H forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " batch=1");
  };
  put("file", "");
  for (const std::string& tmp : {std::string("/no/such/folder"), (folder_ / "file").string()}) {
    const Ended e = with(tmp);
    EXPECT_EQ(e.code, 1);
    EXPECT_NE(e.err.find("TMPDIR is '" + tmp + "', which is no folder"), std::string::npos) << e.err;
  }
  EXPECT_NE(with("/proc").err.find("no folder can be made in '/proc'"), std::string::npos);
}

// The limit of a file's size stands for a disk that is full.
TEST_F(Forecast, ARecordThatHadNoRoomIsNoAnswer) {
  const Ended e =
      run("forecast --device h100 --db " + db_ + " -- sh -c 'trap \"\" XFSZ; ulimit -f 100; exec " HEADROOM_LIKE_TORCH " batch=1'");
  EXPECT_EQ(e.code, 1) << e.out;
  EXPECT_NE(e.err.find("the record of the run needs more room than there is in"), std::string::npos) << e.err;
}

TEST_F(Forecast, ASettingWithoutAnAnswerHasNoBytes) {
  const std::string sweep = "forecast --db " + db_ + " --sweep n=0,1 -- sh -c 'exit {n}'";
  const Ended e = run(sweep), j = run("forecast --format json --db " + db_ + " --sweep n=0,1 -- sh -c 'exit {n}'");
  EXPECT_EQ(e.code, 1) << e.out;
  EXPECT_TRUE(e.out.starts_with("0 of 2 settings fit on NVIDIA H200; 2 gave no answer.")) << e.out;
  EXPECT_EQ(e.out.find("0 B"), std::string::npos) << e.out;
  for (const Json& rows : {Json::parse(j.out)["rows"], Json::parse(run("results 1 --format json --db " + db_).out)["rows"]}) {
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_TRUE(rows[0]["needed_bytes"].is_null() && rows[1]["peak_allocated_bytes"].is_null()) << rows;
  }
  EXPECT_EQ(run("report 1 --db " + db_).code, 0);
}

}  // namespace
}  // namespace headroom
#endif
