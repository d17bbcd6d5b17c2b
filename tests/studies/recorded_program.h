// The story of a program that ran dry, read from the record that a test writes.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "studies/forecast/forecast.h"
#include "tests/studies/dry_record.h"

namespace headroom::studies {

constexpr std::int64_t mebibyte = 1 << 20;

class RecordedProgram : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("headroom_forecast_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  ProcessStory story(const dry::ProgramRecord& w) const {
    const std::string file = (folder_ / "1.dry").string();
    w.save(file);
    return story_of(dry::Process(file));
  }
  std::filesystem::path folder_;
};

}  // namespace headroom::studies
