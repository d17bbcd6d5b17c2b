// The commit that this program was built of; empty where the sources lie in no repository.
#pragma once
#include <string_view>

namespace headroom::cli {

extern const std::string_view commit_of_source;  // cmake/commit.cmake writes it at every build

}  // namespace headroom::cli
