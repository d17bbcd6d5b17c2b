// What `headroom memory`, plan, step and train refuse of a model and its settings: one line that says what is allowed.
#include "gpu/device.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

TEST_F(ModelProgram, BadInputGetsOneLine) {
  refused("memory model --model nosuch", 2, "small, medium, large, xl, 2.7B, xl-2026, 10B, 8B");
  refused("memory model --width 100", 2, "not a multiple of 12 heads");
  refused("memory model --batch 1000000 --len 1000000", 2, "2^31");
  refused("serve --model llama-3.1-8b", 2, "headroom memory model --phase inference");
  refused("plan --model small --nodes 2", 2, "--gpus counts the GPUs of all hosts");
  refused("memory model --as pytorch --model small --deepspeed 2", 2, "ZeRO-2 gradients");
  refused("train --file x", 2, "--text FILE is what it learns");
  refused("report 1 -o x.html", 2, "--out FILE writes to a file");
  refused("memory model --len 1M", 2, "'1M' is 1000000 to some and 1048576 to others");
  refused("memory model --as pytorch --qlora 16", 2, "QLoRA is --lora RANK --base 4bit");
  refused("plan --as pytorch --model small --zero 1", 2, "plan tries what it can be");
  refused("plan --as pytorch --model small --qlora 16", 2, "plan tries what it can be");
  refused("plan --as pytorch --model gpt-oss-20b --attention sdpa --device h100", 1, "choose --attention plain");
  refused("memory model --keep all", 2, "no-attention-inputs");
  refused("memory model --keep groups:1", 2, "K is 2 or more");
  refused("memory model --keep groups:two", 2, "K is 2 or more");
  refused("memory model --keep groups:3:most", 2, "LEVEL one of everything, no-product");
  refused("memory model --keep host:0", 2, "N is 1 or more");
  refused("memory model --softmax composed --adam fused", 2, "--softmax, --adam: only with --as pytorch");
  refused("memory attention --upstream sum", 2, "--upstream: only with --as pytorch");
  if (cuda_device_count() == 0) {
    const std::string here = answer("memory attention --len 1024 --memory 24")["answer"];
    EXPECT_TRUE(here.starts_with("On a GPU of 24.0 GiB (else as an NVIDIA H200) the largest len is ")) << here;
  }
  for (const std::string serving : {"memory model --phase inference", "plan --phase inference"}) {
    refused(serving + " --keep input --masters halves", 2, "has no backward pass; leave --keep, --masters out");
    refused(serving + " --moments half", 2, "leave --moments out");
    refused(serving + " --logits half", 2, "leave --logits out");
    refused(serving + " --attention plain,flash", 2, "takes one --attention; 2 were given");
  }
  refused("memory model --phase inference --device h200 --gpus 2 --shard optimizer", 2, "by tensor parallelism; leave --shard out");
  refused("plan --phase forward --device h200 --update during", 2, "--phase forward has no such choice; leave --update out");
  refused("memory model --as pytorch --keep no-cheap", 2, "choose from everything, input");
  refused("memory model --as pytorch --keep host:2:input", 2, "choose from everything, input");
  refused("memory model --as pytorch --masters halves", 2, "leave --masters out");
  refused("memory model --as pytorch --gpus 2 --shard optimizer --adam muon", 2, "leave --shard and --optimizer-in-backward out");
  refused("memory model --as pytorch --model mixtral-8x7b --attention flash --lora 8 --base 4bit", 1, "leave --base 4bit out");
  refused("memory model --as pytorch --model gpt-oss-20b --attention flash", 1, "choose --attention plain");
  refused("memory model --as pytorch --shard everything", 2, "name --gpus");
  refused("memory model --as pytorch --gpus 2 --lora 8 --shard everything", 2, "add --parameters half");
  refused("memory model --as pytorch --gpus 2 --shard everything --keep groups:2", 2, "choose --keep everything or input");
  refused("memory model --as pytorch --compile model --attention flash --keep input", 2, "choose --compile blocks");
  refused("memory model --as pytorch --compile blocks --attention plain", 2, "with --attention flash");
  refused("memory model --lora 8", 2, "--lora: only with --as pytorch");
  refused("memory model --as pytorch --device cpu", 2, "name a GPU");
  refused("memory model --device cpu --precision tf32", 2, "name a GPU");
  refused("memory model --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("memory model --precision fp8 --scales rows", 2, "tensor, row, block");
  refused("memory model --device a100 --precision fp8", 1, "sm_80) multiplies no fp8");
  refused("memory model --device h200 --precision fp8 --width 120 --heads 3", 2, "the width is 120; fp8 on a GPU needs a multiple of 16");
  refused("memory model --device h200 --precision fp8 --phase inference", 1, "counted in fp32, tf32, bf16 and fp16");
  refused("plan --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("step --scales row", 2, "only fp8 has scales");
  for (const char* study : {"memory model", "plan", "step"})
    refused(study + std::string(" --precision bf16 --copies made,kept"), 2, "only fp8 has 8-bit copies of weights");
  refused("memory model --precision fp8 --copies keep", 2, "made, kept");
  refused("memory model --device h200 --precision fp8 --ranks 2 --copies kept", 2, "one rank; fp8 on 2 was asked");
  refused("train --text x --precision bf16 --copies kept", 2, "bf16 on 1 was asked");
  refused("train --text x --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("train --text x --precision fp8 --switch-precision", 2, "it is of --resume");
  refused("plan --device cpu --precision fp32,tf32", 2, "name a GPU");
  refused("plan --device cpu --gpus 2", 2, "name a GPU");
  refused("plan --device cpu --keep host", 2, "a CPU's own memory is the host's");
  refused("plan --device b200 --keep host:input", 2, "have nothing to move to the host");
  refused("plan --device h200 --batch 4 --gpus 3", 2, "make it a multiple");
  refused("plan --device h200 --gpus 0", 2, "--gpus");
  refused("plan --memory 0", 2, "GiB");
  refused("plan --device h2000", 2, "h200");
  refused("step --steps 0", 2, "--steps");
  refused("step --device h200", 2, "choose from cpu, cuda");
  refused("train", 2, "--text FILE");
  refused("train --text /no/such/file", 2, "cannot be opened");
  refused("train --text x --lr nan", 2, "--lr");
  refused("train --text x --resume", 2, "--save");
  refused("train --text x --init " + folder_.string(), 2, "no config.json");
  refused("train --tokens x --prompt hello", 2, "--prompt");
  refused("memory model --measure --device h200", 2,
          "there is no h200 in this machine; leave --measure out for the forecast, or name cpu or cuda");
  refused("memory attention --measure --device h200", 2, "there is no NVIDIA H200 in this machine");
  refused("memory model --measure --as pytorch", 2, "leave --as pytorch out");
  refused("memory attention --measure --as pytorch", 2, "leave --as pytorch out");
  refused("memory model --as pytorch --workspace-mib nan", 2, "--workspace-mib");
}

TEST_F(ModelProgram, ACardThatIsNotHereIsForecastNotMeasured) {
  for (const std::string what : {"model --model small", "attention --len 128"})
    refused("memory " + what + " --measure --device h100", 2, "leave --measure out for the forecast, or name cpu or cuda");
}

}  // namespace
}  // namespace headroom
