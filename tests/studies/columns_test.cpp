// Every table that memory and plan print is of described rows: read back from its JSON, each column has the unit it was printed with.
#include "studies/results/columns.h"

#include <gtest/gtest.h>

#include <functional>

#include "report/render.h"
#include "studies/memory/attention.h"
#include "studies/memory/model.h"
#include "studies/plan/plan.h"
#include "tests/engine/workshop.h"

namespace headroom::studies {
namespace {

void expect_described(const Record& record) {
  const auto json = RowObject::parse(render_json(record));
  for (const Part& part : record.parts) {
    const auto* table = std::get_if<Table>(&part.is);
    if (!table) continue;
    const auto rows = json.at(table->name).get<std::vector<RowObject>>();
    ASSERT_FALSE(rows.empty()) << table->name;
    const Columns columns(table->name, rows);
    EXPECT_TRUE(columns.described()) << table->name << ": " << rows[0];
    for (const Column& c : table->columns) {
      EXPECT_EQ(columns.of(c.name).unit, c.unit) << table->name << " " << c.name;
      EXPECT_EQ(columns.of(c.name).role, c.role) << table->name << " " << c.name;
    }
  }
}

TEST(Columns, KnowEveryTableOfMemoryModel) {
  ModelMemory m;
  m.model = engine::tiny();
  m.lens = {16, 32};
  m.memory_bytes = 1ull << 30;
  expect_described(memory_model(m).record);
  m.measure = true;
  m.device = cpu_device();
  expect_described(memory_model(m).record);
  m.measure = false;
  m.use = ModelUse::inference;
  expect_described(memory_model(m).record);
  m.use = ModelUse::train;
  m.whose = Whose::pytorch;
  m.device = device_described("h200");
  m.memory_bytes.reset();
  expect_described(memory_model(m).record);
}

TEST(Columns, KnowEveryTableOfPyTorchsPlan) {
  Plan p;
  p.model = engine::tiny();
  p.len = 32;
  p.whose = Whose::pytorch;
  p.device = device_described("h200");
  expect_described(plan(p).record);
}

TEST(Columns, KnowEveryTableOfMemoryAttention) {
  AttentionMemory a;
  a.dims = {16};
  a.lens = {32, 64};
  a.device = cpu_device();
  a.memory_bytes = 1ull << 26;
  expect_described(memory_attention(a).record);
  a.whose = Whose::pytorch;
  a.device = device_described("h200");
  expect_described(memory_attention(a).record);
}

TEST(Columns, KnowEveryTableOfPlan) {
  Plan p;
  p.model = engine::tiny();
  p.len = 16;
  p.device = device_described("h200");
  p.levers.precision = {{DType::bf16, Math::exact}};
  p.levers.attention = {"flash"};
  expect_described(plan(p).record);
  p.use = ModelUse::inference;
  expect_described(plan(p).record);
}

TEST(Columns, AskedOptionsThatAreNotAtTheirDefaultsAreNamed) {
  ModelMemory m;
  EXPECT_EQ(changed_options(m), "");
  m.levers.keep = {{engine::Keep::input}};
  m.memory_bytes = 7;
  m.as_pytorch.workspace_bytes = 0;
  EXPECT_EQ(changed_options(m), "--memory, --keep, --workspace-mib");
  EXPECT_EQ(changed_options(engine::LeverLists{.keep = m.levers.keep}), "--keep");
}

}  // namespace
}  // namespace headroom::studies
