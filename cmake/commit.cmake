# headroom_add_commit(target): a source that says of which commit the program is, looked up at every build and written where it changed.
# As a script (OUT, SOURCE) it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=\ with\ changes --exclude=* --abbrev=10
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  endif()
  file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[#include "cli/commit.h"

namespace headroom::cli {
const std::string_view commit_of_source = "@commit@";
}
]])
  return()
endif()

function(headroom_add_commit target)
  set(source ${CMAKE_BINARY_DIR}/generated/commit.cpp)
  add_custom_target(headroom_commit BYPRODUCTS ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DSOURCE=${PROJECT_SOURCE_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake)
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${target} headroom_commit)
endfunction()
