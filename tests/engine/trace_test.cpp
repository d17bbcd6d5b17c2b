#include "engine/forecast/trace.h"

#include <gtest/gtest.h>

#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"

namespace headroom::engine {
namespace {

void expect_same(const ForecastTotals& a, const ForecastTotals& b) {
  EXPECT_EQ(a.peak_bytes, b.peak_bytes);
  EXPECT_EQ(a.standing_bytes, b.standing_bytes);
  EXPECT_EQ(a.peak_bytes_by_phase, b.peak_bytes_by_phase);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.link_bytes, b.link_bytes);
  EXPECT_EQ(a.link_ms, b.link_ms);
  EXPECT_EQ(a.exposed_ms, b.exposed_ms);
  EXPECT_EQ(a.host_bytes, b.host_bytes);
  EXPECT_EQ(a.host_moved_bytes, b.host_moved_bytes);
  EXPECT_EQ(a.host_ms, b.host_ms);
  EXPECT_EQ(a.host_exposed_ms, b.host_exposed_ms);
  EXPECT_EQ(a.ms, b.ms);
  EXPECT_EQ(a.why_no_ms, b.why_no_ms);
  ASSERT_EQ(a.expected.has_value(), b.expected.has_value());
  if (a.expected) {
    EXPECT_EQ(a.expected->ms, b.expected->ms);
    EXPECT_EQ(a.expected->low_ms, b.expected->low_ms);
    EXPECT_EQ(a.expected->by, b.expected->by);
  }
}

std::string in_words(const Recipe& r) {
  std::string words = fmt::format("depth {} {} keep {} group {} host {} micro {} × {}", r.model.depth(), name_of(r.precision),
                                  name_of(r.keep.first()), r.keep.group, r.keep.host, r.batch, r.micro_batches);
  for (const auto& [lever, word] : changed(r, {"precision", "keep"})) words += fmt::format(" {} {}", lever, word);
  return words + fmt::format(" ranks {} {} {}", r.ranks.count, name_of(r.ranks.sharding), r.ranks.split_tokens);
}

bool served(const Recipe& r) {
  try {
    check(r);
    return true;
  } catch (const Error&) { return false; }
}

PlainModel plain(std::int64_t layers) {
  return {.name = "deep", .vocab = 128256, .width = 256, .layers = layers, .heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 768};
}

// Every lever beside every other would be hours: each combination is walked at a depth and in a precision that its number picks.
TEST(Trace, OfShallowModelsIsThatOfTheDeepOneToTheLastBit) {
  const Device device = device_described("h200");
  const std::vector<Keeping> keeps = {{Keep::everything}, {Keep::no_product},  {Keep::no_cheap},    {Keep::no_attention_inputs},
                                      {Keep::input},      {Keep::input, 2},    {Keep::input, 3},    {Keep::no_cheap, 4},
                                      Keeping::on_host(), Keeping::on_host(2), {Keep::gate_up_fp8}, {Keep::input, 0}};
  const Precision precisions[] = {{DType::bf16}, {DType::f32}, {DType::f16}, {DType::f32, Math::tf32}};
  int n = 0, tried = 0, repeated = 0;
  for (const Keeping& keep : keeps)
    for (int lever = 0; lever < 2 * 2 * 3 * 3; ++lever)
      for (int ranks = 0; ranks < 6; ++ranks, ++n) {
        Recipe r;
        r.model = decoder_of(plain(40 + n % 7));
        r.batch = 2, r.len = 1024, r.precision = precisions[(n / 5) % 4], r.attention = n % 3 ? "flash" : "plain";
        r.keep = keep;
        r.purpose = n % 11 == 0 ? Purpose::gradients : n % 13 == 0 ? Purpose::forward : Purpose::training;
        r.micro_batches = std::array{1, 2, 5}[std::size_t(n % 3)];
        r.holding = {Masters(lever % 2), Updating(lever / 2 % 2), Gradients(lever / 4 % 3), Moments(lever / 12)};
        if (r.holding.updating == Updating::during) r.micro_batches = 1;
        if (ranks > 0) r.ranks = {ranks == 5 ? 2 : 4, Sharding((ranks - 1) % 4), ranks == 5};
        if (!served(r)) continue;
        SCOPED_TRACE(in_words(r));
        ++tried;
        if (repeated_trace(r, device, 1)) ++repeated;
        expect_same(forecast_totals(r, device, 1), forecast(r, device, 1));
        if (HasFailure()) return;
      }
  EXPECT_GT(tried, 700);
  EXPECT_GT(repeated, tried * 3 / 5);
}

}  // namespace
}  // namespace headroom::engine
