# A source with what both sides of libheadroom_cuda.so must agree in (src/gpu/beside.h): version, compiler, and a digest of every header that either
# may read. An older library beside a newer program is refused by it, where names and sizes alone would be equal.
# As a script (OUT, SOURCE, HEADERS) it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" HEADERS "${HEADERS}")
  set(all "")
  foreach(header ${HEADERS})
    file(SHA256 ${SOURCE}/${header} digest)
    string(APPEND all "${header} ${digest}\n")
  endforeach()
  string(SHA256 digest "${all}")
  string(SUBSTRING ${digest} 0 12 digest)
  file(WRITE ${OUT} "namespace headroom::beside {
extern const char* const this_build;
const char* const this_build = HEADROOM_VERSION \" by \" __VERSION__ \", headers ${digest}\";
}
")
  return()
endif()

set(rooms base memory gpu ops instruments studies/precision)  # whose code is in the library
list(TRANSFORM rooms APPEND "/*.h")
list(TRANSFORM rooms PREPEND ${PROJECT_SOURCE_DIR}/src/)
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${rooms})
list(SORT headers)
string(REPLACE ";" "|" joined "${headers}")
set(HEADROOM_EDGE ${PROJECT_BINARY_DIR}/generated/this_build.cpp)
set(script ${PROJECT_SOURCE_DIR}/cmake/edge.cmake)
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/)
add_custom_command(OUTPUT ${HEADROOM_EDGE} DEPENDS ${headers} ${script} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUT=${HEADROOM_EDGE} -DSOURCE=${PROJECT_SOURCE_DIR} -DHEADERS=${joined} -P ${script})
add_library(headroom_this_build OBJECT ${HEADROOM_EDGE})
set_target_properties(headroom_this_build PROPERTIES UNITY_BUILD OFF CXX_CLANG_TIDY "")
target_compile_definitions(headroom_this_build PRIVATE HEADROOM_VERSION="${PROJECT_VERSION}")
