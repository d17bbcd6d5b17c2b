# What the Python wheel holds. lib/libheadroom.so: the objects of the ordinary library and of the program, with everything linked in but glibc
# and libgcc_s (which is part of every manylinux system; the static one asks for a newer glibc). It loads on any Linux of this glibc or a newer
# one. bin/headroom: the program, a few KB over that library.
# Beside the library: the kernels, where nvcc is; what `forecast` and `profile` load into other programs, without its symbols; the observer of dry runs.
# Built on request: make wheel.
if(HEADROOM_SANITIZE OR HEADROOM_FUZZ)
  return()
endif()
find_library(STATIC_OPENBLAS NAMES libopenblas.a PATH_SUFFIXES openblas-pthread)
find_library(STATIC_SQLITE NAMES libsqlite3.a)
find_library(STATIC_ZLIB NAMES libz.a)
find_library(STATIC_FMT NAMES libfmt.a)
find_library(STATIC_HWY NAMES libhwy.a)

set(without "")
foreach(part OPENBLAS SQLITE ZLIB)
  if(NOT STATIC_${part})
    list(APPEND without ${part})
  endif()
endforeach()
if(without)
  message(STATUS "no wheel can be built here: no static library of ${without}")
  return()
endif()

set(portable_sources "")
set(portable_libraries ${STATIC_OPENBLAS} ${STATIC_SQLITE} ${STATIC_ZLIB})
foreach(part FMT HWY)  # Debian has these only as shared libraries; what is needed of them is a file each
  if(STATIC_${part})
    list(APPEND portable_libraries ${STATIC_${part}})
  endif()
endforeach()
if(NOT STATIC_FMT)
  list(APPEND portable_sources ${CMAKE_CURRENT_LIST_DIR}/portable/fmt.cpp)
endif()
if(NOT STATIC_HWY)
  list(APPEND portable_sources ${CMAKE_CURRENT_LIST_DIR}/portable/highway.cpp)
endif()

add_library(headroom_portable SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:headroom_capi> $<TARGET_OBJECTS:headroom_commands> ${portable_sources})
add_dependencies(headroom_portable headroom_core)
set_target_properties(headroom_portable PROPERTIES OUTPUT_NAME headroom LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable/lib
  UNITY_BUILD OFF CXX_CLANG_TIDY "" LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_compile_options(headroom_portable PRIVATE -O2)
target_link_libraries(headroom_portable PRIVATE $<TARGET_FILE:headroom_core> ${portable_libraries} Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_options(headroom_portable PRIVATE -static-libstdc++ LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map
  LINKER:--exclude-libs,ALL LINKER:--gc-sections LINKER:-s)

# RPATH, not RUNPATH: LD_LIBRARY_PATH may hold another libheadroom.so, which lacks the program.
add_executable(headroom_portable_program EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/src/cli/start.cpp)
set_target_properties(headroom_portable_program PROPERTIES OUTPUT_NAME headroom RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable/bin
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
target_include_directories(headroom_portable_program PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(headroom_portable_program PRIVATE headroom_portable)
target_link_options(headroom_portable_program PRIVATE LINKER:--disable-new-dtags LINKER:-s)

set(loaded_files "")
foreach(target headroom_cuda headroom_dry headroom_listen headroom_inject)
  if(TARGET ${target})
    set(copy ${CMAKE_BINARY_DIR}/portable/lib/lib${target}.so)
    add_custom_command(OUTPUT ${copy} DEPENDS ${target} COMMAND ${CMAKE_STRIP} --strip-unneeded -o ${copy} $<TARGET_FILE:${target}> VERBATIM)
    list(APPEND loaded_files ${copy})
  endif()
endforeach()
foreach(source ${observer_sources})
  set(copy ${CMAKE_BINARY_DIR}/portable/lib/headroom_observer/${source})
  add_custom_command(OUTPUT ${copy} DEPENDS ${PROJECT_SOURCE_DIR}/src/dry/observer/${source}
    COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/src/dry/observer/${source} ${copy} VERBATIM)
  list(APPEND loaded_files ${copy})
endforeach()
add_custom_target(portable DEPENDS headroom_portable headroom_portable_program ${loaded_files})
