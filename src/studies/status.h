// How a row ended. A row that could not be measured has a status and the reason (why); it is never left out.
#pragma once
#include "base/described.h"
#include "base/error.h"

namespace headroom::studies {

enum class Status : std::uint8_t { ok, oom, refused, failed, interrupted };

inline Status status_of(Code code) {
  return code == Code::out_of_memory ? Status::oom : code == Code::unsupported ? Status::refused : Status::failed;
}
constexpr bool answers_no(Status s) { return s == Status::oom || s == Status::refused; }  // exit code 3, where every row says so

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::Status> = names<studies::Status>("ok", "oom", "refused", "failed", "interrupted");
}
