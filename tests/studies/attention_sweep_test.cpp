#include "studies/attention/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "report/render.h"
#include "studies/attention/analysis.h"

namespace headroom::studies {
namespace {

nlohmann::json object_named(const Record& r, const std::string& name) { return nlohmann::json::parse(render(r, Format::json))[name]; }
nlohmann::json analysis_json(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows) {
  Record r;
  add_analysis(analysis_of(s, device, rows), r);
  return nlohmann::json::parse(render(r, Format::json));
}

AttentionSweep quick() {
  AttentionSweep s;
  s.batch = 2, s.dims = {16, 33}, s.lens = {1, 40, 97};
  s.protocol = {.warmup = 0, .steps = 2};
  return s;
}

TEST(AttentionSweep, TheForecastIsThePeakToTheByteInEveryRow) {
  AttentionSweep s = quick();
  s.heads = 4, s.kv_heads = 2;
  s.variants = {"all"};
  s.dtypes = {{DType::f32, Math::exact}, {DType::bf16, Math::exact}, {DType::f16, Math::exact}};
  s.masks = {attention::Mask::full(), attention::Mask::causal(), attention::Mask::sliding(7)};
  const auto result = run_sweep(s, cpu_device());
  ASSERT_EQ(result.rows.size(), result.asked);
  ASSERT_GE(result.rows.size(), 2u * 3 * 3 * 2 * 3);
  for (const AttentionRow& r : result.rows) {
    SCOPED_TRACE(json_of(r).dump());
    ASSERT_EQ(r.status, Status::ok) << r.why;
    EXPECT_EQ(r.peak_bytes, r.forecast_peak_bytes);
    EXPECT_EQ(r.steps, 2);
    EXPECT_TRUE(r.fwd_ms && r.bwd_ms && r.max_error_o && r.max_error_dq && r.max_error_dk && r.max_error_dv);
    const std::int64_t size = r.dtype.dtype == DType::f32 ? 4 : 2;
    const auto exact =
        size * 2 * (r.batch * r.len_q * r.heads * r.dim + r.batch * r.len_k * r.kv_heads * r.dim) + 4 * r.batch * r.heads * r.len_q;
    if (r.variant == "plain") { EXPECT_EQ(r.saved_bytes, exact + size * r.batch * r.heads * r.len_q * r.len_k); }
    if (r.variant == "flash") { EXPECT_EQ(r.saved_bytes, exact) << "Q, K, V, O and LSE, nothing else"; }
  }
}

// Judged by the oracle, and to the byte; caches' lengths take the place of the batch, and their pages lie in any order.
TEST(AttentionSweep, DocumentsCachesAndPagesAreRowsLikeAnyOther) {
  AttentionSweep s = quick();
  s.heads = 4, s.kv_heads = 2, s.dims = {40},
  s.masks = {attention::Mask::causal(), attention::Mask::sliding(7, attention::Align::bottom_right, 2)};
  const auto expect_good = [&](std::size_t rows, const std::vector<std::string>& refused) {
    const auto result = run_sweep(s, cpu_device());
    ASSERT_EQ(result.rows.size(), rows);
    for (const AttentionRow& r : result.rows) {
      SCOPED_TRACE(json_of(r).dump());
      if (std::find(refused.begin(), refused.end(), r.variant) != refused.end()) {
        EXPECT_EQ(r.status, Status::refused);
        continue;
      }
      EXPECT_EQ(r.status, Status::ok) << r.why;
      EXPECT_EQ(r.peak_bytes, r.forecast_peak_bytes);
      EXPECT_TRUE(r.max_error_o);
    }
  };
  s.documents = {5, 1, 0, 90}, s.lens = {7};
  expect_good(4, {});
  s.documents.clear(), s.cached = {100, 0, 1, 33}, s.lens = {1, 3};
  expect_good(8, {});
  s.passes = Passes::forward, s.page = 16;
  expect_good(8, {"plain"});
  s.cached.clear(), s.lens = {50};
  expect_good(4, {"plain"});

  const Precision fp32;
  s = quick(), s.cached = {10, 4}, s.page = 4;
  const auto p = s.problem(fp32, attention::Mask::causal(), 40, 3);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.len_k, 10);
  EXPECT_EQ(p.pages, 6);
  EXPECT_EQ(p.batch * p.visible(), (8 + 9 + 10) + (2 + 3 + 4)) << "the last position sees the whole cache";
  EXPECT_THROW((void)cases_of(s, cpu_device()), Error) << "pages have no backward";
  s.page = 0, s.documents = {3};
  EXPECT_THROW((void)cases_of(s, cpu_device()), Error);
  s.documents.clear(), s.len_k = 5;
  EXPECT_THROW((void)cases_of(s, cpu_device()), Error);
}

// Both variants drop what the oracle drops, and the same seed drops the same.
TEST(AttentionSweep, DropoutIsJudgedDropByDrop) {
  AttentionSweep s = quick();
  s.heads = 4, s.kv_heads = 2, s.dropout = 0.25, s.masks = {attention::Mask::causal()};
  const auto result = run_sweep(s, cpu_device());
  ASSERT_EQ(result.rows.size(), 12u);
  for (const AttentionRow& r : result.rows) {
    SCOPED_TRACE(json_of(r).dump());
    EXPECT_EQ(r.status, Status::ok) << r.why;
    EXPECT_EQ(r.dropout, 0.25);
    EXPECT_EQ(r.peak_bytes, r.forecast_peak_bytes);
  }
}

TEST(AttentionSweep, SlopesOfAlibiAreJudged) {
  AttentionSweep s = quick();
  s.heads = 4, s.kv_heads = 2, s.alibi = true;
  const auto result = run_sweep(s, cpu_device());
  ASSERT_EQ(result.rows.size(), 12u);
  for (const AttentionRow& r : result.rows) {
    SCOPED_TRACE(json_of(r).dump());
    EXPECT_EQ(r.status, Status::ok) << r.why;
    EXPECT_TRUE(r.alibi);
    EXPECT_EQ(r.peak_bytes, r.forecast_peak_bytes);
  }
}

TEST(AttentionSweep, WhatDoesNotFitIsARowThatNamesTheTensorAndTheSweepGoesOn) {
  AttentionSweep s = quick();
  s.dims = {16};
  s.memory = 64 << 20;
  s.passes = Passes::forward;
  s.variants = {"plain", "flash"};
  s.lens = {64, 100'000, 32};
  s.masks = {attention::Mask::sliding(4)};  // flash at 100 000 stays quick
  const auto result = run_sweep(s, cpu_device());
  ASSERT_EQ(result.rows.size(), 6u);
  std::map<Status, int> statuses;
  for (const AttentionRow& r : result.rows) {
    ++statuses[r.status];
    if (r.status != Status::oom) continue;
    EXPECT_EQ(r.variant, "plain");
    EXPECT_NE(r.why.find("needs " + std::to_string(*r.forecast_peak_bytes) + " bytes"), std::string::npos) << r.why;
    EXPECT_NE(r.why.find(": p ["), std::string::npos) << r.why;
    EXPECT_FALSE(r.fwd_ms || r.peak_bytes);
  }
  EXPECT_EQ(statuses[Status::oom], 1);
  EXPECT_EQ(statuses[Status::ok], 5);
}

TEST(AttentionSweep, ASystemThatRefusesMemoryMakesAnOomRowAndTheSweepGoesOn) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {40, 41};
  Device boastful = cpu_device();
  boastful.memory_bytes = 1ull << 61;  // the forecast is content
  s.batch = 1ll << 36;                 // the system cannot be
  s.variants = {"flash"};
  const auto result = run_sweep(s, boastful);
  ASSERT_EQ(result.rows.size(), 2u);
  for (const AttentionRow& r : result.rows) {
    EXPECT_EQ(r.status, Status::oom);
    EXPECT_NE(r.why.find("refused"), std::string::npos) << r.why;
  }
  const auto misfit = analysis_json(s, boastful, result.rows)["first_that_does_not_fit"];
  EXPECT_EQ(misfit["variant"], "flash");
  EXPECT_FALSE(misfit.contains("missing_bytes")) << "the limit had room: " << misfit["missing_bytes"];
}

TEST(AttentionSweep, MoreMemoryThanTheMachineHasIsNotGivenOut) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {3000}, s.variants = {"plain"}, s.passes = Passes::forward;
  Device small = cpu_device();
  small.memory_bytes = 64 << 20;
  s.memory = 1ull << 50;
  const auto why = [&] {
    const AttentionRow r = run_sweep(s, small).rows.at(0);
    EXPECT_EQ(r.status, Status::oom);
    return r.why;
  };
  EXPECT_EQ(s.limit(small), machine_limit(small));
  EXPECT_NE(why().find("this machine allows " + std::to_string(machine_limit(small))), std::string::npos) << why();
  const auto edge = analysis_json(s, small, run_sweep(s, small).rows)["edge"];
  ASSERT_EQ(edge.size(), 2u);
  EXPECT_EQ(edge[1]["memory_bytes"], std::int64_t(*s.memory)) << "the edge is told for what was asked";
  s.memory = 1 << 20;
  EXPECT_NE(why().find("--memory allows 1048576 bytes (1.00 MiB)"), std::string::npos) << why();
}

TEST(AttentionSweep, WhatNoMemoryHoldsIsAnOomRowAndTheSweepGoesOn) {
  AttentionSweep s = quick();
  s.dims = {64}, s.lens = {1ll << 30, 64};
  const auto result = run_sweep(s, cpu_device());
  ASSERT_EQ(result.rows.size(), 4u);
  for (const AttentionRow& r : result.rows) {
    EXPECT_EQ(r.status, r.len_q == 64 ? Status::ok : Status::oom) << r.why;
    if (!r.ok()) { EXPECT_NE(r.why.find("more than 2^58 elements"), std::string::npos) << r.why; }
  }
  EXPECT_FALSE(render(attention_record(s, cpu_device(), result), Format::text).empty());
  s.heads = 3, s.kv_heads = 2;
  EXPECT_THROW(cases_of(s, cpu_device()), Error) << "what is wrong at every size is still refused";
}

TEST(AttentionSweep, AnErrorInOneCaseIsAFailedRowAndTheSweepGoesOn) {
  AttentionSweep s = quick();
  s.dims = {16}, s.variants = {"flash"};
  int cases = 0;
  bool broken = false;
  SweepHooks hooks;
  hooks.progress = [&](double, const std::string&) { broken = ++cases == 2; };
  hooks.stop = [&] {  // asked within a measurement
    if (std::exchange(broken, false)) throw Error(Code::cuda, "the device fell off the bus");
    return false;
  };
  const auto result = run_sweep(s, cpu_device(), hooks);
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_EQ(result.rows[0].status, Status::ok);
  EXPECT_EQ(result.rows[1].status, Status::failed);
  EXPECT_EQ(result.rows[1].why, "the device fell off the bus");
  EXPECT_FALSE(result.rows[1].fwd_ms || result.rows[1].peak_bytes);
  EXPECT_EQ(result.rows[2].status, Status::ok);
}

TEST(AttentionSweep, AStoreThatFailsEndsTheSweep) {
  SweepHooks hooks;
  hooks.finished = [](const std::string&, const AttentionRow&) { throw Error(Code::io, "the disk is full"); };
  EXPECT_THROW(run_sweep(quick(), cpu_device(), hooks), Error);
}

TEST(AttentionSweep, ABoundThatEndsBeforeTheMeanIsKnownIsSaid) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {40}, s.variants = {"flash"};
  s.protocol = {.warmup = 0, .steps = 12, .until = 1e-9};
  const AttentionRow r = run_sweep(s, cpu_device()).rows.at(0);
  EXPECT_EQ(r.status, Status::ok);
  EXPECT_NE(r.why.find("forward was ended by --steps after 12 calls"), std::string::npos) << r.why;
  EXPECT_NE(r.why.find("backward was ended by --steps after 12 calls"), std::string::npos) << r.why;
  s.protocol = {.warmup = 0, .steps = 1000, .until = 1e9};
  EXPECT_EQ(run_sweep(s, cpu_device()).rows.at(0).why.find("ended by"), std::string::npos);
}

TEST(AttentionAnalysis, AReasonIsInItsRowAndPeopleReadItBelowTheTable) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {8};
  s.dtypes = {{DType::f32, Math::tf32}};
  const auto result = run_sweep(s, cpu_device());
  const Record r = attention_record(s, cpu_device(), result);
  const auto j = nlohmann::ordered_json::parse(render(r, Format::json));
  std::string keys;
  for (const auto& [key, value] : j.items()) keys += key + " ";
  EXPECT_EQ(keys, "schema_version answer device rows analysis ");
  EXPECT_NE(j["answer"].get<std::string>().find("Nothing was measured: "), std::string::npos) << j["answer"];
  const std::string why = result.rows.at(0).why;
  EXPECT_EQ(j["rows"][0]["why"], why);
  EXPECT_NE(render(r, Format::markdown).find(why), std::string::npos);
  EXPECT_NE(render(r, Format::text).find("refused: "), std::string::npos);
}

TEST(AttentionAnalysis, TheFirstLineSaysWhichVariantIsFastest) {
  AttentionSweep s = quick();
  std::vector<AttentionRow> rows;
  for (const auto& [variant, len, fwd, bwd] :
       {std::tuple{"plain", 64, 1.0, 2.0}, {"flash", 64, 2.0, 2.0}, {"plain", 128, 8.0, 10.0}, {"flash", 128, 2.0, 4.0}}) {
    AttentionRow& r = rows.emplace_back();
    r.variant = variant, r.dim = 16, r.len_q = r.len_k = len, r.fwd_ms = fwd, r.bwd_ms = bwd;
  }
  const auto title = [&] { return attention_record(s, cpu_device(), {rows, rows.size()}).title; };
  EXPECT_TRUE(title().starts_with("flash is fastest at len 128 (fp32, dim 16, full): 4.00× as fast as plain forward, 2.50× backward."))
      << title();
  rows[3].fwd_ms = 30;
  EXPECT_TRUE(title().starts_with("plain is fastest at len 128")) << title();
  rows[3].status = Status::failed;
  EXPECT_TRUE(title().starts_with("1 of 4 rows failed. plain takes ")) << title();
}

TEST(AttentionSweep, RefusalsCarryTheVariantsReason) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {8};
  s.dtypes = {{DType::f32, Math::tf32}};
  for (const AttentionRow& r : run_sweep(s, cpu_device()).rows) {
    EXPECT_EQ(r.status, Status::refused);
    EXPECT_FALSE(r.why.empty());
  }
}

TEST(AttentionSweep, AnUnknownVariantIsRefusedWithTheNearest) {
  AttentionSweep s = quick();
  s.variants = {"flahs"};
  try {
    cases_of(s, cpu_device());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::bad_argument);
    EXPECT_NE(std::string(e.what()).find("did you mean 'flash'"), std::string::npos) << e.what();
  }
}

TEST(AttentionSweep, KnownRowsAreNotMeasuredAgainAndAStopKeepsWhatIsDone) {
  const AttentionSweep s = quick();
  std::map<std::string, std::string> kept;
  SweepHooks first;
  first.finished = [&](const std::string& key, const AttentionRow& r) { kept[key] = json_of(r).dump(); };
  first.stop = [&] { return kept.size() == 5; };
  const auto part = run_sweep(s, cpu_device(), first);
  EXPECT_EQ(part.rows.size(), 5u);
  EXPECT_EQ(part.asked, 12u);
  std::size_t measured = 0;
  SweepHooks second;
  second.known = [&](const std::string& key) -> std::optional<AttentionRow> {
    return kept.contains(key) ? std::optional(read_described<AttentionRow>(RowObject::parse(kept[key]), "a row")) : std::nullopt;
  };
  second.finished = [&](const std::string&, const AttentionRow&) { ++measured; };
  const auto whole = run_sweep(s, cpu_device(), second);
  EXPECT_EQ(whole.rows.size(), 12u);
  EXPECT_EQ(measured, 7u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(json_of(whole.rows[i]), json_of(part.rows[i])) << "the same row, there and back";
}

TEST(AttentionSweep, ARowThatFailedIsMeasuredAgainAndOneThatDidNotFitIsNot) {
  AttentionSweep s = quick();
  s.dims = {16}, s.variants = {"flash"}, s.lens = {1, 40};
  AttentionRow failed, oom;
  failed.status = Status::failed, oom.status = Status::oom;
  int asked = 0;
  SweepHooks hooks;
  hooks.known = [&](const std::string&) { return std::optional(++asked == 1 ? failed : oom); };
  const auto rows = run_sweep(s, cpu_device(), hooks).rows;
  EXPECT_EQ(rows.at(0).status, Status::ok);
  EXPECT_EQ(rows.at(1).status, Status::oom);
}

TEST(AttentionSweep, AKeyIsAnObjectOfAllThatARowDependsOn) {
  AttentionSweep s = quick();
  s.memory = 5, s.protocol.until = 0.0025, s.protocol.seconds = 1;
  const AttentionCase c = cases_of(s, cpu_device()).at(3);
  const auto key = nlohmann::json::parse(c.key(s));
  EXPECT_EQ(key["variant"], nlohmann::json({"flash"})) << "the settings that ask for this row alone";
  EXPECT_EQ(key["len"], nlohmann::json({40}));
  EXPECT_EQ(key["until"], 0.0025);
  EXPECT_EQ(key["deterministic"], false);
  const auto differs = [&](auto change) {
    AttentionSweep other = s;
    change(other);
    return cases_of(other, cpu_device()).at(3).key(other) != c.key(s);
  };
  EXPECT_TRUE(differs([](auto& o) { o.seed = 1; }) && differs([](auto& o) { o.batch = 3; }) && differs([](auto& o) { o.memory = 6; }));
  EXPECT_TRUE(differs([](auto& o) { o.passes = Passes::forward; }) && differs([](auto& o) { o.deterministic = true; }));
  EXPECT_TRUE(differs([](auto& o) { o.protocol.steps = 9; }) && differs([](auto& o) { o.protocol.warmup = 9; }));
  EXPECT_TRUE(differs([](auto& o) { o.protocol.seconds = 9; }) && differs([](auto& o) { o.masks = {attention::Mask::causal()}; }));
}

TEST(AttentionSweep, SameSeedSameErrors) {
  AttentionSweep s = quick();
  s.dims = {16}, s.lens = {40};
  const auto a = run_sweep(s, cpu_device()).rows, b = run_sweep(s, cpu_device()).rows;
  s.seed = 1;
  const auto c = run_sweep(s, cpu_device()).rows;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].max_error_dk, b[i].max_error_dk);
    EXPECT_NE(a[i].max_error_dk, c[i].max_error_dk);
  }
}

TEST(AttentionAnalysis, StatesExponentsEdgesAndTheAccountOfWhatDoesNotFit) {
  AttentionSweep s;
  s.lens = {512, 1024, 2048, 4096, 8192, 65536};
  s.dims = {16};
  s.memory = 1ull << 30;
  const Device device = cpu_device();
  std::vector<AttentionRow> rows;  // times are made up: y = len² for plain, their bytes are forecast
  for (const AttentionCase& c : cases_of(s, device)) {
    AttentionRow r;
    r.variant = c.variant->name, r.dim = 16, r.batch = 8, r.heads = r.kv_heads = 1;
    r.len_q = r.len_k = c.problem.len_q;
    const auto f = forecast_case(c.problem, *c.variant, s.passes, device, 2);
    r.saved_bytes = f.bytes.saved, r.forecast_peak_bytes = f.bytes.peak;
    r.status = std::uint64_t(f.bytes.peak) <= *s.memory ? Status::ok : Status::oom;
    if (r.ok()) r.peak_bytes = f.bytes.peak, r.fwd_ms = double(r.len_q) * double(r.len_q), r.bwd_ms = 2.0 * double(r.len_q);
    rows.push_back(r);
  }
  const Record whole = attention_record(s, device, {rows, rows.size()});
  EXPECT_TRUE(whole.title.starts_with("flash is fastest at len 65536 (fp32, dim 16, full)") || whole.title.starts_with("flash takes "))
      << whole.title;
  EXPECT_NE(whole.title.find(" In 1.00 GiB "), std::string::npos) << whole.title;
  const auto j = object_named(whole, "analysis");
  for (const auto& e : j["exponents"]) {
    EXPECT_NEAR(e["fwd_time"], 2, 1e-9);
    EXPECT_NEAR(e["bwd_time"], 1, 1e-9);
    if (e["variant"] == "flash") { EXPECT_NEAR(e["peak_bytes"], 1, 0.02); }
    if (e["variant"] == "plain") { EXPECT_NEAR(e["peak_bytes_at_the_end"], 2, 0.02); }
  }
  ASSERT_EQ(j["exponents"].size(), 2u);
  ASSERT_EQ(j["edge"].size(), 4u);  // two variants × this machine and --memory
  for (const auto& e : j["edge"]) {
    const auto peak_at = [&](std::int64_t len) {
      return forecast_case(s.problem({}, attention::Mask::full(), 16, len), *attention::variant_named(e["variant"].get<std::string>()),
                           s.passes, device, available_cores())
          .bytes.peak;
    };
    const std::int64_t len = e["largest_len"], memory = e["memory_bytes"];
    EXPECT_LE(peak_at(len), memory);
    EXPECT_GT(peak_at(len + 1), memory);
  }
  const auto& misfit = j["first_that_does_not_fit"];
  EXPECT_EQ(misfit["variant"], "plain");
  std::int64_t sum = 0;
  for (const auto& c : misfit["components"]) sum += c["bytes"].get<std::int64_t>();
  EXPECT_EQ(sum, misfit["peak_bytes"].get<std::int64_t>()) << "the components are the whole peak";
  ASSERT_EQ(j["against_plain"].size(), 6u);
}

TEST(AttentionRow, HasExactlyTheFieldsThatArePromised) {
  std::string names;
  const auto row = json_of(AttentionRow());
  for (const auto& [name, value] : row.items()) names += name + " ";
  EXPECT_EQ(
      names,
      "variant device dtype batch heads kv_heads dim len_q len_k mask documents cached page dim_v softcap dropout sink alibi fwd_ms bwd_ms "
      "fwd_ms_std "
      "bwd_ms_std fwd_tflops bwd_tflops "
      "saved_bytes peak_bytes forecast_peak_bytes max_error_o max_error_dq max_error_dk max_error_dv status why steps warmup ");
}

}  // namespace
}  // namespace headroom::studies
