// Words as people type them: options of other programs, two names of one option, sizes in place of models.
#include <fmt/format.h>

#include "tests/cli/model_program.h"

namespace headroom {
namespace {

TEST_F(ModelProgram, ARefusalNamesTheOptionAsItWasTyped) {
  refused("memory model --gpus 100000", 2, "headroom memory: --gpus: '100000' is not a whole number");
  refused("memory model --ranks=100000", 2, "headroom memory: --ranks: '100000' is not a whole number");
  refused("memory model --gpus 2 --gpus 3", 2, "headroom memory: --gpus is given more than once");
  refused("memory model --gpus 2 --ranks 3", 2, "headroom memory: --gpus is --ranks here, which is given too");
  refused("memory model --recompute foo", 2, "headroom memory: --recompute: there is no 'foo'");
  refused("step --zero foo", 2, "headroom step: --zero: there is no 'foo'");
  refused("step --max-seq-length 0", 2, "headroom step: --max-seq-length: '0' is not a whole number");
  refused("step --len 0", 2, "headroom step: --len: '0' is not a whole number");
}

TEST_F(ModelProgram, ASizeAloneNamesTheModelsOfThatSize) {
  refused("plan --model 70B", 2, "give all of it, as llama-3.1-70b, ");
  refused("memory model --model 405b", 2, "give all of it, as llama-3.1-405b, ");
  refused("plan --model no-such", 2, "there is no 'no-such'");
}

TEST_F(ModelProgram, TwoNamesOfOneOptionAreCalledByTheirNames) {
  refused("memory model --phase inference --batch 16 --concurrency 16", 2, "--concurrency is --batch here, which is given too");
  refused("memory model --len 16 --len 32", 2, "--len is given more than once");
}

// What other programs call a choice is taken; what is not there is answered with what is.
TEST_F(ModelProgram, WordsOfOtherProgramsAreTakenOrAnswered) {
  const auto same = [&](const std::string& theirs, const std::string& ours) {
    EXPECT_EQ(answer(theirs)["rows"], answer(ours)["rows"]) << theirs;
  };
  const std::string two = "memory model --model small --len 64 --batch 2 --device h100 --gpus 2 ", as = two + "--as pytorch ";
  same(two + "--shard zero1", two + "--shard optimizer");
  same(as + "--attention sdpa", as + "--attention flash");
  same(as + "--attention flash_attention_2", as + "--attention flash");
  same(as + "--attention eager", as + "--attention plain");
  same(two + "--zero 1", two + "--shard optimizer");
  same(as + "--zero 3", as + "--shard full_shard");
  same(two + "--shard zero2", two + "--shard gradients");
  same(two + "--shard zero3", two + "--shard everything");
  same(as + "--shard fsdp", as + "--shard everything");
  same(as + "--shard ddp", as + "--shard none");
  const std::string one = "memory model --model small --len 64 --device h100 ";
  same(one + "--as torch --adam adamw_torch_fused", one + "--as pytorch --adam fused");
  same(one + "--as PyTorch --optim paged_adamw_8bit", one + "--as pytorch --adam paged-8bit");
  same(one + "--phase serve", one + "--phase inference");
  same(as + "--shard ZeRO-3", as + "--shard everything");
  same(one + "--as pytorch --precision bf16 --lora 8 --base NF4", one + "--as pytorch --precision bf16 --lora 8 --base 4bit");
  refused("plan --as pytorch --model small --device h100 --precision fp8", 1, "headroom plan: --as pytorch: torch.autocast has no fp8");
  refused("plan llama-3.1-8b", 2, "a model is named by --model");
  refused(one + "--gradient_checkpointing", 2, "--keep input is a checkpoint of each block");
  EXPECT_NE(answer("plan --as pytorch --model llama-3.1-8b --batch 4 --len 1024 --device 4090 --gpus 2 --most 1")["answer"]
                .get<std::string>()
                .find(", with LoRA of rank 16 (--parameters half --lora 16"),
            std::string::npos);
  EXPECT_EQ(answer("plan --as pytorch --model llama-3.1-8b --batch 2 --len 1024 --device 4090 --most 1")["fits"], true);
  const Json large = answer("plan --as pytorch --model llama-3.1-70b --batch 2 --len 1024 --device 4090 --gpus 2 --most 1", 3);
  EXPECT_NE(
      large["answer"].get<std::string>().find("QLoRA of rank 16, the least of the ways below; 4 such GPUs hold it with a sequence each"),
      std::string::npos)
      << large["answer"];
  refused("memory model --model small --device h100 --len 2k", 2, "'2k' is 2000 to some and 2048 to others");
  refused(one + "--keep full", 2, "full checkpointing keeps the input of each block: input; what keeps all: everything");
  same(one + "--as pytorch --adam Lion_32bit", one + "--as pytorch --adam lion");
  refused(one + "--as pytorch --gpus 2 --shard everything --adam Muon", 2, "torch.optim.Muon reads whole matrices");
  const Json gemma = answer("plan --as pytorch --model gemma-3-1b --batch 2 --len 1024 --device h100 --most 1");
  EXPECT_EQ(gemma["fits"], true);
  EXPECT_GE(gemma["ways"].size(), 6u);
  refused(as + "--lora 8 --shard everything", 2, "FSDP2 gathers parameters of one type; add --parameters half");
  refused("plan --as pytorch --model deepseek-v3 --device h100", 1, "of such models Mixtral, Qwen3-MoE and gpt-oss are known");
  for (const char* model : {"mixtral-8x7b", "gpt-oss-20b"}) {
    const Json plan = answer(fmt::format("plan --as pytorch --model {} --batch 8 --len 512 --gpus 8 --device h200 --most 1", model));
    EXPECT_EQ(plan["fits"], true) << model;
    EXPECT_EQ(plan["ways"].size(), 4u) << model << ": none that packs experts, and no optimizer in backward on several GPUs";
  }
  refused("plan --model small --shard zero2", 2, "plan tries what it can be");
  for (const char* command : {"plan", "step", "kernels", "results", "compare", "forecast", "memory model"})
    refused(std::string(command) + " --json", 2, "--format json prints JSON");
  refused("step --page", 2, "--out FILE.html writes a page");
  refused(one + "--page", 2, "A page to read is written by --out FILE.html");
  EXPECT_NE(answer("plan --as pytorch --model 8B --batch 16 --len 512 --gpus 8 --device h100 --most 1")["notes"].dump().find(
                "QLoRA with DDP where each GPU has room for all weights, else with FSDP2"),
            std::string::npos);
  for (const std::string command : {"plan --as pytorch --most 1", "memory model --as pytorch --precision bf16 --lora 8", "memory model"}) {
    const std::string asked = command + " --batch 1 --len 512 --device h200 --model ";
    EXPECT_NE(answer(asked + "8B")["notes"].dump().find("8B is a preset of this library: 34 layers of width 4096"), std::string::npos)
        << command;
    EXPECT_EQ(answer(asked + "llama-3.1-8b")["notes"].dump().find("preset"), std::string::npos) << command;
  }
}

TEST_F(ModelProgram, AnAmountOfMemoryIsTakenAsPeopleWriteIt) {
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

// Words of other programs, and this one's own of before.
TEST_F(ModelProgram, OtherProgramsWordsFindTheirWay) {
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
TEST_F(ModelProgram, PlanTakesATrainersBatchOfEachGpu) {
  const auto plan = [&](const std::string& words) {
    return Json::parse(run("plan --model small --len 64 --device h100 --gpus 2 --most 1 --format json " + words).out)["notes"][0];
  };
  EXPECT_EQ(plan("--per_device_train_batch_size 2 --gradient_accumulation_steps=4"), plan("--batch 16"));
  EXPECT_EQ(plan("--micro-batch-size 2"), plan("--batch 4"));
  EXPECT_NE(plan("--batch 16"), plan("--batch 4"));
  refused("plan --batch 2 --per-device-train-batch-size 2", 2, "--batch");
  refused("plan --gradient-accumulation-steps 2", 2, "--per-device-train-batch-size");
}

}  // namespace
}  // namespace headroom
