#include "cli/outcome.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "studies/report/report.h"

namespace headroom::cli {

int show(studies::Outcome outcome, const Common& common) {
  const int code = outcome.answer == studies::Answer::yes ? yes : outcome.answer == studies::Answer::no ? no : failed;
  if (common.format == Format::html && !common.silent) outcome.record = studies::with_charts(std::move(outcome.record));
  if (outcome.stopped)
    deliver_stopped(outcome.record, common);
  else
    deliver(outcome.record, common, code);
  const std::string of_store = outcome.life ? outcome.life->finish() : "";  // now that the answer is out
  for (const std::string& line : {outcome.said, of_store})
    if (!line.empty() && !common.silent) say(line);
  return code;
}

studies::Host quiet_host(const char* who, const Common& common, bool resume) {
  studies::Host host{.store = common.db, .resume = resume, .stop = interrupted};
  host.say = [who, &common](const std::string& line) {
    if (!common.silent) cli::say(fmt::format("headroom {}: {}", who, line));
  };
  return host;
}

void with_progress(const char* who, const Common& common, bool resume, Elsewhere elsewhere,
                   const std::function<void(const studies::Host&)>& work) {
  std::optional<Progress> progress;
  if (!common.silent) progress.emplace(who, elsewhere);
  studies::Host host = quiet_host(who, common, resume);
  host.progress = [&](double share, const std::string& doing) {
    if (progress) progress->show(share, doing);
  };
  host.announce = [&](const std::string& doing) {
    if (progress) progress->announce(doing);
  };
  work(host);
}

int with_host(const char* who, const Common& common, bool resume, const std::function<studies::Outcome(const studies::Host&)>& study,
              Elsewhere elsewhere) {
  std::optional<studies::Outcome> outcome;
  with_progress(who, common, resume, elsewhere, [&](const studies::Host& host) { outcome.emplace(study(host)); });
  return show(std::move(*outcome), common);
}

}  // namespace headroom::cli
