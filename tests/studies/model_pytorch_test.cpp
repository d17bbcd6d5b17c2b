// `memory model --as pytorch`: what its rows say, its intervals, and peaks that others published.
#include "studies/memory/model_pytorch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/device.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "report/render.h"
#include "studies/memory/model.h"
#include "tests/pytorch/csv_rows.h"

namespace headroom::studies::as_pytorch {
namespace {

using namespace pytorch;

TEST(MemoryModelAsPyTorch, RowsCarryWhatTheSpecificationNames) {
  ModelMemory asked;
  asked.whose = Whose::pytorch;
  asked.lens = {32, 64};
  asked.device = device_described("h200");
  asked.memory_bytes = 4ull << 30;
  asked.model =
      engine::decoder_of({.name = "tiny", .vocab = 10000, .width = 64, .layers = 2, .heads = 2, .kv_heads = 2, .head_dim = 32, .ffn = 128});
  const auto json = nlohmann::json::parse(render_json(memory_model(asked).record));
  ASSERT_EQ(json.at("rows").size(), 2u);
  for (const auto& row : json.at("rows"))
    for (auto key : {"model", "batch", "len", "precision", "keep", "params", "forward_peak_bytes", "forward_backward_peak_bytes",
                     "train_peak_bytes", "components"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(json["rows"][0]["params"], 10000 * 64 * 2 + 64 + 2 * (2 * 64 + 4 * 64 * 64 + 3 * 64 * 128));
  EXPECT_GT(json["rows"][1]["train_peak_bytes"], json["rows"][0]["train_peak_bytes"]);
}

// Unchanged LlamaForCausalLM of transformers 5.23 under headroom forecast, an H100, SDPA, AdamW: 8 layers of width 512, 16 000 words, batch
// 2 x 1024, parameters in bf16: 1028.5 MiB at its peak, with 2 key heads 988.0 MiB. Its loss copies the logits to FP32, which a description does
// not say: without room for that copy the interval ended at 978.9 and 960.3 MiB.
TEST(MemoryModelAsPyTorch, AnIntervalOfParametersIn16BitsHasRoomForLogitsInFp32) {
  ModelMemory asked;
  asked.whose = Whose::pytorch;
  asked.device = device_described("h100");
  asked.batches = {2}, asked.lens = {1024}, asked.levers.precision = {{DType::bf16}}, asked.levers.attention = {"flash"};
  asked.as_pytorch.parameters = Parameters::half;
  engine::PlainModel llama{.name = "llama", .vocab = 16000, .width = 512, .layers = 8, .heads = 8, .head_dim = 64, .ffn = 1536};
  for (const auto& [kv_heads, program_mib] : {std::pair{8, 1028.5}, std::pair{2, 988.0}}) {
    llama.kv_heads = kv_heads;
    asked.model = decoder_of(llama);
    const auto row = nlohmann::json::parse(render_json(memory_model(asked).record)).at("rows")[0];
    EXPECT_LT(row["train_peak_bytes"].get<double>(), program_mib * (1 << 20));
    EXPECT_GT(row["at_most_bytes"].get<double>(), program_mib * (1 << 20));
  }
}

// Peaks that others published with their commands. Nothing was fitted to them; docs/memory-as-pytorch-checks.md shows each beside ours.
TEST(MemoryModelAsPyTorch, PublishedPeaksOfFineTuning) {
  const auto rows = rows_of("published_fine_tuning.csv");
  ASSERT_EQ(rows.size(), 12u);
  std::ifstream page(HEADROOM_SOURCE_DIR "/docs/memory-as-pytorch-checks.md");
  const std::string docs(std::istreambuf_iterator<char>(page), {});
  std::size_t at = docs.find("| published | GiB | ours |");
  for (const Row& row : rows) {
    ModelMemory asked;
    asked.model = engine::model_described(row.at("model"));
    asked.levers.attention = {"flash"};
    LanguageModel m = language_model_of(asked);
    const auto number = [&](const char* name) { return std::stoll(row.at(name)); };
    m.precision = {DType::bf16}, m.batch = number("batch"), m.len = number("len"), m.lora = number("lora"), m.gpus = number("gpus");
    m.parameters = value_named<Parameters>(row.at("parameters"), "parameters"), m.base = value_named<Base>(row.at("base"), "base");
    m.adam = value_named<Adam>(row.at("adam"), "adam"), m.in_backward = number("in_backward") == 1;
    m.loss = value_named<Loss>(row.at("loss"), "loss"), m.selective = value_named<Selective>(row.at("selective"), "selective");
    m.keep = *WordsOf<engine::Keeping>::named(row.at("keep")), m.compile = value_named<Compile>(row.at("compile"), "compile");
    m.shard = value_named<engine::Sharding>(row.at("shard"), "shard"), m.offload_inputs = number("offload") == 1;
    const auto a = account(m, pytorch::workspace_bytes(device_described(row.at("device")).sm));
    const double ours = double(row.at("of") == "reserved" ? a.reserved_bytes : a.train_peak_bytes) / double(1 << 30);
    const double published = std::stod(row.at("published_gib"));
    std::printf("%-50s published %.1f GiB, ours %.1f GiB, %+.1f %%: %s\n", row.at("source").c_str(), published, ours,
                100 * (ours / published - 1), options_of(m).c_str());
    EXPECT_NEAR(ours, published, std::stod(row.at("within")) * published) << row.at("source");
    const std::string& dry = row.at("run_dry_gib");
    const std::string said =
        fmt::format("| {:.1f} | {:.1f} | {:+.1f} % | {} |", published, ours, 100 * (ours / published - 1), dry.empty() ? "–" : dry);
    at = docs.find(said, at);  // the rows of the page are in this order
    ASSERT_NE(at, std::string::npos) << "docs/memory-as-pytorch-checks.md is stale: " << row.at("source") << " " << said;
  }
}

}  // namespace
}  // namespace headroom::studies::as_pytorch
