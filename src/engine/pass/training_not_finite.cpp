// Where the first number is that is not finite.
#include <cmath>
#include <string>

#include "base/convert.h"
#include "engine/pass/training.h"
#include "engine/store/transfer.h"

namespace headroom::engine {

namespace {

bool finite(const Tensor& t, const Context& ctx) {
  HostView view(ctx);
  const char* values = view.read(t);
  for (std::int64_t i = 0; i < t.count(); ++i)
    if (!std::isfinite(load_element(values, t.dtype, i))) return false;
  return true;
}

}  // namespace

std::string Training::first_gradient_not_finite() const {
  const auto& params = store_.params();
  for (auto p = params.rbegin(); p != params.rend(); ++p)
    if (p->grad && !finite(p->grad, ctx_)) return fmt::format("the weight {}", p->spec.full_name());
  return "none of them: their squares' sum overflows";
}

std::string Training::first_not_finite() {
  for (const Param& p : store_.params())
    if (!finite(p.master ? p.master : p.copy, ctx_)) return fmt::format("the weight {}", p.spec.full_name());
  auto scope = ctx_.arena.scope();
  const Tensor x = stream("x");
  std::string found;
  micro_ = 0;
  store_.begin(0);
  forward_blocks(x, [&](int i) {
    if (found.empty() && !finite(x, ctx_)) found = i < 0 ? "the embedding's output" : fmt::format("block {}", i);
    return found.empty() || comm_;  // other ranks may find it elsewhere, and all make the same calls
  });
  store_.end();
  return !found.empty() ? found : "the head";
}

}  // namespace headroom::engine
