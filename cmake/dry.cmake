# What `headroom forecast -- …` puts into other programs: the CUDA that is not there. It is built everywhere, without CUDA's headers; the
# standard library is inside (not libgcc_s: the static one asks for a newer glibc than a wheel may), unused parts of it are left out for the same
# reason, and only CUDA's functions and its doors are visible. It is called libcuda.so.1 in its own header, so that
# whoever asks for the driver by that name gets the library that is loaded already.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/dry/library/*.cpp)
add_library(headroom_dry SHARED ${sources} ${PROJECT_SOURCE_DIR}/src/dry/rates.cpp ${PROJECT_SOURCE_DIR}/src/dry/strides.cpp)
foreach(alone batch_norm dnn host names nvml recorder recurrent values)  # names of their own mean something else in another, or declare every function
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dry/library/${alone}.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dry/library/draws.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -O3)  # its loop is vectorised
set(exports ${PROJECT_SOURCE_DIR}/cmake/dry.map)
set_target_properties(headroom_dry PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS ${exports} NO_SONAME ON
  CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN ON CXX_CLANG_TIDY "")
target_include_directories(headroom_dry PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(headroom_dry PRIVATE -O2)
target_link_libraries(headroom_dry PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(headroom_dry PRIVATE -static-libstdc++ LINKER:--gc-sections LINKER:-soname,libcuda.so.1 LINKER:--version-script=${exports})
if(HEADROOM_SANITIZE OR HEADROOM_FUZZ)  # the programs that load it are built without; its tests say what they are
  target_compile_options(headroom_dry PRIVATE -fno-sanitize=all)
  target_link_options(headroom_dry PRIVATE -fno-sanitize=all)
endif()
install(TARGETS headroom_dry LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
