// step_time — what forward, forward + backward and a whole step of a language model take, beside what was forecast. A size that
// does not fit is a row too, known from the forecast without trying.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/forecast.h"
#include "instruments/bench/bench.h"
#include "report/record.h"

namespace headroom {

struct StepTime {
  std::vector<engine::ModelConfig> models;
  std::int64_t batch = 4;
  std::vector<std::int64_t> lens{128};
  std::vector<Precision> precisions{{}};
  engine::Keep keep = engine::Keep::everything;
  std::string attention = "flash";
  engine::Holding holding{};
  std::vector<std::string> phases{"forward", "forward+backward", "train"};
  int steps = 10;
  double seconds = 0;                    // > 0: a row that counts longer than this stops as soon as it has three
  std::vector<std::int64_t> warmups{5};  // steps before those that count; a row for each
  std::uint64_t seed = 0;
  std::uint64_t memory_bytes = 0;  // that a step may take
  double matmul_flops = 0;         // the CPU's measured ceiling that MFU is counted against; 0: measured here by one large matmul
  std::function<void(const Table&)> row_added{};  // called when a row is done: the table's last
};

Record step_time(const StepTime&, const Device&, int threads, const std::function<bool()>& stop);

}  // namespace headroom
