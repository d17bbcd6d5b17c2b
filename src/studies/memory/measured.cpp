#include "studies/memory/measured.h"

#include <cstring>

#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "report/described_table.h"
#include "studies/memory/driver_bytes.h"
#include "studies/memory/lent_bytes.h"
#include "studies/memory/rows.h"
#include "studies/step/words.h"

namespace headroom::studies {

using engine::Recipe;

Table measured_bytes(const std::vector<Recipe>& recipes, const Device& device, int threads,
                     const std::function<void(const std::string& doing)>& progress) {
  std::vector<MeasuredStepRow> rows;
  Place place(device, threads);
  DriverBytes driver(place);
  for (const Recipe& r : recipes) {
    const std::size_t forecast = engine::forecast_peak(r, device, threads);
    MeasuredStepRow& row = rows.emplace_back(MeasuredStepRow{.batch = r.batch,
                                                             .len = r.len,
                                                             .precision = r.precision,
                                                             .keep = r.kept_as(),
                                                             .with = engine::changed_in_words(r, {"precision", "keep"}),
                                                             .forecast_peak_bytes = forecast});
    try {
      check(forecast <= device.memory_bytes, Code::out_of_memory,
            "this needs {}, {} are available; try a smaller --batch or --len, or --keep input", bytes_in_words(double(forecast)),
            bytes_in_words(double(device.memory_bytes)));
      driver.before_arena();
      const std::int64_t before = lent_bytes(device);
      const PlaceMemory memory = place.take(forecast);
      if (!place.on_gpu()) std::memset(memory.data(), 0, forecast);  // the system lends a page when it is touched
      driver.after_arena();
      Ledger ledger;
      Arena arena(memory.data(), memory.bytes(), &ledger);
      Context ctx{arena, device, &place.threads(), place.stream()};
      engine::Training training(r, ctx);
      training.initialise(0);
      const std::vector<std::int32_t> zeros(std::size_t(training.tokens().count()), 0);
      training.feed(0, zeros, zeros);
      progress(fmt::format("{} · measuring {} of {}", words_of_first_step(place.on_gpu()), rows.size(), recipes.size()));
      training.warm();
      place.wait();
      driver.after_first_run();
      training.step(r.hyper());
      place.wait();
      const auto difference = std::int64_t(ledger.peak_bytes()) - std::int64_t(forecast);
      row.ledger_peak_bytes = std::int64_t(ledger.peak_bytes());
      row.difference_bytes = difference;
      if (place.on_gpu()) {
        row.driver_bytes = driver.used();
        row.context_bytes = driver.context();
        row.loaded_bytes = driver.loaded();
        row.unexplained_bytes = driver.unexplained(forecast);
      } else {
        row.unexplained_bytes = lent_bytes(device) - before - std::int64_t(forecast);
      }
      if (difference == 0) continue;
      row.status = Status::failed;
      row.why = "the ledger is not what was forecast";
    } catch (const Error& e) {
      row.status = e.at.code == Code::out_of_memory ? Status::oom : Status::refused;
      row.why = e.what();
    }
  }
  return without_usual(table_of("measured", "One step of each, run: forecast, ledger, driver", rows), rows);
}

}  // namespace headroom::studies
