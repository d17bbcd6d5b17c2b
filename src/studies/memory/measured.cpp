#include "studies/memory/measured.h"

#include <cstring>

#include "base/text.h"
#include "engine/forecast.h"
#include "studies/memory/driver_bytes.h"
#include "studies/memory/lent_bytes.h"

namespace headroom {

using engine::Recipe;

Table measured_bytes(const std::vector<Recipe>& recipes, const Device& device, int threads) {
  Table t{"measured",
          "One step of each, run: forecast, ledger, driver",
          {{"batch"},
           {"len"},
           {"precision"},
           {"keep"},
           {"forecast_peak_bytes", Unit::bytes},
           {"ledger_peak_bytes", Unit::bytes},
           {"difference_bytes"},
           {"driver_bytes", Unit::bytes},
           {"context_bytes", Unit::bytes},
           {"loaded_bytes", Unit::bytes},
           {"unexplained_bytes", Unit::bytes},
           {"status"},
           {"why"}},
          {}};
  Place place(device, threads);
  DriverBytes driver(place);
  for (const Recipe& r : recipes) {
    const std::size_t forecast = engine::forecast_peak(r, device, threads);
    std::vector<Value> row{r.batch, r.len, std::string(name_of(r.precision)), std::string(name_of(r.keep[0])), std::int64_t(forecast)};
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
      training.warm();
      place.wait();
      driver.after_first_run();
      training.step(r.hyper());
      place.wait();
      const auto difference = std::int64_t(ledger.peak_bytes()) - std::int64_t(forecast);
      row.insert(row.end(), {std::int64_t(ledger.peak_bytes()), difference});
      if (place.on_gpu())
        row.insert(row.end(), {driver.used(), driver.context(), driver.loaded(), driver.unexplained(forecast)});
      else
        row.insert(row.end(), {Value(), Value(), Value(), lent_bytes(device) - before - std::int64_t(forecast)});
      row.insert(row.end(), {std::string(difference == 0 ? "ok" : "failed"),
                             std::string(difference == 0 ? "" : "the ledger is not what was forecast")});
    } catch (const Error& e) {
      row.insert(row.end(), 6, Value());
      row.insert(row.end(), {std::string(e.at.code == Code::out_of_memory ? "oom" : "refused"), std::string(e.what())});
    }
    t.add(std::move(row));
  }
  return t;
}

}  // namespace headroom
