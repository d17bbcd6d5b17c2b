// The attention sweep: variants × dtypes × masks × dims × lengths, each measured, accounted for and held against FP64.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "instruments/bench/bench.h"
#include "studies/attention_case.h"
#include "studies/attention_row.h"

namespace headroom::studies {

struct AttentionSweep {                                    // the settings
  std::vector<std::string> variants = {"plain", "flash"};  // names, families, or "all"
  std::vector<Precision> dtypes = {Precision{}};
  std::vector<attention::Mask> masks = {attention::Mask::full()};
  std::int64_t batch = 8, heads = 1, kv_heads = 0;  // kv_heads 0: heads
  std::vector<std::int64_t> dims = {64}, lens = {256, 512, 1024, 2048};
  std::int64_t len_k = 0;  // 0: len
  Passes passes = Passes::both;
  bool deterministic = false;
  std::optional<std::uint64_t> memory;  // pretend to have no more than this
  std::uint64_t seed = 0;
  bench::Protocol protocol{.seconds = 1};

  attention::Problem problem(Precision, const attention::Mask&, std::int64_t dim, std::int64_t len) const;
  // Bytes that a case may take: the machine's, or --memory where that is less; and which of the two it is.
  std::uint64_t limit(const Device&) const;
  std::string limit_name(const Device&) const;
};

// What is available, less what else will live there: beside the CPU's arena the program and the oracle, a sixteenth; on a GPU kernels and
// cuBLAS's own memory, at most a GiB.
std::uint64_t machine_limit(const Device&);

struct AttentionCase {  // one row to be: a problem and who is asked to serve it
  attention::Problem problem;
  std::string wanted;                           // as the user said it
  const attention::Variant* variant = nullptr;  // who will; null: refused
  std::string refusal{};
  std::string too_large{};                       // not empty: past what any memory holds, in words
  std::string key(const AttentionSweep&) const;  // a JSON object: all that the row depends on
};

// Every row of the sweep, in order. An Error (bad_argument) names what is not allowed.
std::vector<AttentionCase> cases_of(const AttentionSweep&, const Device&);

struct SweepHooks {
  std::function<std::optional<AttentionRow>(const std::string& key)> known;   // a row from an earlier attempt
  std::function<void(const std::string& key, const AttentionRow&)> finished;  // called as soon as a row is there
  std::function<void(double share, const std::string& doing)> progress;
  std::function<bool()> stop = [] { return false; };
};

struct SweepResult {
  std::vector<AttentionRow> rows;
  std::size_t asked = 0;  // rows there would be without an interruption
};

SweepResult run_sweep(const AttentionSweep&, const Device&, const SweepHooks& = {});

std::string describe(const attention::Problem&);  // "fp32 dim 64 len 1024x1024 causal"

}  // namespace headroom::studies
