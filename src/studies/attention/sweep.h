// The attention sweep: variants × dtypes × masks × dims × lengths, each measured, accounted for and held against FP64.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "gpu/place.h"
#include "instruments/bench/bench.h"
#include "studies/attention/asked.h"
#include "studies/attention/case.h"
#include "studies/attention/row.h"

namespace headroom::studies {

struct AttentionSweep {                                    // the settings
  std::vector<std::string> variants = {"plain", "flash"};  // names, families, or "all"
  std::vector<Precision> dtypes = {Precision{}};
  std::vector<attention::Mask> masks = {attention::Mask::full()};
  std::int64_t batch = 8, heads = 1, kv_heads = 0;  // kv_heads 0: heads
  std::vector<std::int64_t> dims = {64}, lens = {256, 512, 1024, 2048};
  std::int64_t len_k = 0;                 // 0: len
  std::vector<std::int64_t> documents{};  // lengths, packed into each row of the batch in place of a length; none: not packed
  std::vector<std::int64_t> cached{};     // lengths of caches, one of each sequence, in place of batch and len_k; none: all are len_k
  std::int64_t page = 0;                  // positions of a page of the cache; 0: it lies in one piece
  std::int64_t dim_v = 0;                 // 0: dim
  double softcap = 0;                     // 0: none
  double dropout = 0;                     // 0: none
  bool sink = false, alibi = false;
  Passes passes = Passes::both;
  bool deterministic = false;
  std::optional<std::uint64_t> memory{};  // pretend to have no more than this
  std::uint64_t seed = 0;
  bench::Protocol protocol{.seconds = 1};

  attention::Problem problem(Precision, const attention::Mask&, std::int64_t dim, std::int64_t len) const;
  void fill(Place&, const attention::Problem&, const attention::Extras&) const;  // fills the inputs beside Q, K and V, on any device
  // Bytes that a case may take: the machine's, or --memory where that is less; and which of the two it is.
  std::uint64_t limit(const Device&) const;
  std::string limit_name(const Device&) const;
};

void describe(Of<AttentionSweep> auto& s, auto&& f) {
  constexpr std::int64_t most_calls = 1'000'000;
  f(s.variants, {.name = "variant", .about = "Variants or families, or all (see headroom kernels)", .option = "--attention"});
  f(s.dtypes, asked::dtype);
  f(s.batch, asked::batch);
  f(s.heads, asked::heads);
  f(s.kv_heads, asked::kv_heads);
  f(s.dims, {.name = "dim", .about = "Head dimensions", .allowed = {1, 1024}});
  f(s.lens, {.name = "len", .about = "Lengths of the queries, and of the keys without --len-k", .allowed = {0, asked::most_len}});
  f(s.len_k, asked::len_k);
  f(s.masks, asked::mask);
  f(s.documents, {.name = "documents",
                  .about = "Lengths of documents, packed into each row of the batch in place of --len; the mask applies within each",
                  .allowed = {0, asked::most_len}});
  f(s.cached, {.name = "cached",
               .about = "Lengths of caches, one for each sequence, in place of --batch and --len-k; --len new positions read each cache",
               .allowed = {0, asked::most_len}});
  f(s.page, asked::page);
  f(s.dim_v, asked::dim_v);
  f(s.softcap, asked::softcap);
  f(s.dropout, asked::dropout);
  f(s.sink, asked::sink);
  f(s.alibi, asked::alibi);
  f(s.passes, {.name = "pass", .about = "Passes to measure"});
  f(s.protocol.warmup, {.name = "warmup", .about = "Warm-up calls", .allowed = {0, most_calls}});
  f(s.protocol.steps, {.name = "steps", .about = "Measured calls; when given, exactly this many", .allowed = {1, most_calls}});
  f(s.protocol.until,
    {.name = "until",
     .unit = Unit::share,
     .about = "Stop when the standard error of the mean is below this share of it; a row says if another limit ended it earlier"});
  f(s.protocol.seconds, {.name = "seconds",
                         .about = "A measurement longer than this stops after 3 calls [1; 60 with --until; no limit with --steps]",
                         .real = {1e-3, 1e6}});
  f(s.deterministic, asked::deterministic);
  f(s.memory, {.name = "memory", .unit = Unit::bytes, .about = "Pretend to have no more memory than this"});
  f(s.seed, {.name = "seed"});
}

// What is available, less what else will live there: beside the CPU's arena the program and the oracle, a sixteenth; on a GPU kernels and
// cuBLAS's own memory, at most a GiB.
std::uint64_t machine_limit(const Device&);

struct AttentionCase {  // a row to measure: a problem and the variant that is asked for
  attention::Problem problem;
  std::string wanted;                           // as typed
  const attention::Variant* variant = nullptr;  // the variant that serves; null: refused
  std::string refusal{};
  std::string too_large{};                       // not empty: larger than any memory, in words
  std::string key(const AttentionSweep&) const;  // the settings that ask for this row alone
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
