// headroom forecast --try: what is tried of a program, in which order it is shown, and the code that is to be written.
#include "studies/forecast/tries.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, LeversAreRunAndRankedWithTheCodeToWrite) {
  const Json j = json("--try --device rtx4090", "batch=96 levers", 3);
  const Json& rows = j["tries"];
  ASSERT_GE(rows.size(), 8u);
  EXPECT_EQ(rows[0]["change"], "expandable_segments:True + activation checkpointing");
  EXPECT_EQ(rows[0]["peak_allocated_bytes"], 64 * mib + 96 * 96 * mib);
  EXPECT_EQ(rows[1]["change"], "activation checkpointing");
  EXPECT_EQ(rows[1]["saves_bytes"], 96 * 128 * mib);
  EXPECT_EQ(rows[2]["change"], "expandable_segments:True");
  EXPECT_EQ(rows[2]["code"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(rows[2]["fits"], true);
  for (const Json& row : rows)
    if (row["change"] == "fused AdamW" || row["change"] == "exact attention without N² (sdpa)") {
      EXPECT_EQ(row["status"], "refused") << row.dump();
      EXPECT_FALSE(row["why"].get<std::string>().empty());
    }
  const Ended e = run(line("--try --device rtx4090", "batch=96 levers"));
  EXPECT_EQ(e.code, 3) << e.err;
  EXPECT_NE(e.out.find("It fits with expandable_segments:True: write PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), std::string::npos)
      << e.out;
  EXPECT_NE(e.out.find("activation checkpointing: model.gradient_checkpointing_enable()"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("there is no attention)"), std::string::npos) << "of a reason of several lines the first: " << e.out;
}

// The observer adds what is tried to the settings that a program, or its user, has; a variable of ours would take their place.
TEST_F(Forecast, ASettingThatIsTriedLeavesTheUsersOwn) {
  using Words = std::vector<std::string>;
  const auto with = [](const char* variable) {
    setenv(variable, "garbage_collection_threshold:0.5", 1);
    const Words words = studies::with_allocator("max_split_size_mb:64");
    unsetenv(variable);
    return words;
  };
  EXPECT_EQ(with("PYTORCH_ALLOC_CONF"), Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64"});
  EXPECT_EQ(with("PYTORCH_CUDA_ALLOC_CONF"), Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64"});
  EXPECT_EQ(studies::with_allocator("max_split_size_mb:64"),
            (Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"}));
}

TEST_F(Forecast, WhatWasTriedIsNoLongerAdvised) {
  const std::string advice = "--try shows which allocator setting avoids it";
  const Ended without = run(line("--device h100", "batch=1 spare")), with = run(line("--try --device h100", "batch=1 spare"));
  EXPECT_NE(without.out.find(advice), std::string::npos) << without.out;
  EXPECT_NE(with.out.find("Fragmentation: the reserved peak is "), std::string::npos) << with.out;
  EXPECT_EQ(with.out.find(advice), std::string::npos) << with.out;
}

TEST_F(Forecast, HalfTheBatchIsALeverWhereTheCommandNamesBoth) {
  const auto last = [](const std::vector<std::string>& program) { return studies::levers_for(program).back(); };
  const studies::Lever half = last({"python3", "train.py", "--batch", "8", "--accumulate", "2"});
  EXPECT_EQ(half.program, (std::vector<std::string>{"python3", "train.py", "--batch", "4", "--accumulate", "4"}));
  EXPECT_EQ(half.code, "--batch 4 --accumulate 4");
  EXPECT_EQ(last({"train", "--batch_size=6", "--grad_accum", "1"}).code, "--batch_size=3 --grad_accum 2");
  for (const char* batch : {"7", "1", "eight"})
    EXPECT_TRUE(last({"train", "--batch", batch, "--accumulate", "2"}).program.empty()) << batch;
  EXPECT_TRUE(last({"python3", "train.py", "--batch", "8"}).program.empty());
}

}  // namespace
}  // namespace headroom
#endif
