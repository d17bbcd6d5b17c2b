// Python finds the observer in every process, whatever a script or `env` in between has made of PYTHONPATH.
#include <cstdlib>
#include <string>

#include "dry/settings.h"

namespace headroom::dry {

namespace {

[[gnu::constructor]] void observe() {
  const char* const observer = std::getenv(observer_variable);
  if (!observer || !*observer) return;
  const char* const path = std::getenv("PYTHONPATH");
  const std::string first = observer, rest = path ? path : "";
  if (rest == first || rest.starts_with(first + ":")) return;
  setenv("PYTHONPATH", (rest.empty() ? first : first + ":" + rest).c_str(), 1);
}

}  // namespace

}  // namespace headroom::dry
