#include "cli/outcome.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

namespace headroom::cli {

int show(studies::Outcome outcome, const Common& common) {
  const int code = outcome.answer == studies::Answer::yes ? yes : outcome.answer == studies::Answer::no ? no : failed;
  deliver(outcome.record, common, code);
  if (outcome.life) outcome.life->finish();  // now that the answer is out
  if (!outcome.said.empty() && !common.silent) say(outcome.said);
  return code;
}

int with_host(const char* who, const Common& common, bool resume, const std::function<studies::Outcome(const studies::Host&)>& study,
              Elsewhere elsewhere) {
  std::optional<studies::Outcome> outcome;
  {
    std::optional<Progress> progress;
    if (!common.silent) progress.emplace(who, elsewhere);
    studies::Host host{.store = common.db, .resume = resume, .stop = interrupted};
    host.progress = [&](double share, const std::string& doing) {
      if (progress) progress->show(share, doing);
    };
    host.say = [&](const std::string& line) {
      if (!common.silent) cli::say(fmt::format("headroom {}: {}", who, line));
    };
    outcome.emplace(study(host));
  }
  return show(std::move(*outcome), common);
}

}  // namespace headroom::cli
