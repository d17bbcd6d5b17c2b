// How a row ended. A row that could not be measured has a status and the reason (why); it is never left out.
#pragma once
#include "base/described.h"
#include "base/error.h"

namespace headroom::studies {

enum class Status : std::uint8_t { ok, oom, refused, failed, interrupted };

inline Status status_of(Code code) {
  switch (code) {
    case Code::out_of_memory: return Status::oom;
    case Code::unsupported: return Status::refused;
    case Code::interrupted: return Status::interrupted;
    default: return Status::failed;
  }
}
constexpr bool answers_no(Status s) { return s == Status::oom || s == Status::refused; }  // exit code 3, where every row says so

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::Status> = names<studies::Status>("ok", "oom", "refused", "failed", "interrupted");
}
