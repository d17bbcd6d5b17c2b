# What `headroom forecast --check` and `headroom profile -- …` put into a program that runs on a real card, to hear PyTorch's allocator.
add_library(headroom_listen SHARED ${PROJECT_SOURCE_DIR}/src/dry/listen/listen.cpp ${PROJECT_SOURCE_DIR}/src/dry/library/recorder.cpp
  ${PROJECT_SOURCE_DIR}/src/dry/library/observed.cpp)
set(exports ${PROJECT_SOURCE_DIR}/cmake/listen.map)
set_target_properties(headroom_listen PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS ${exports}
  CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN ON UNITY_BUILD OFF CXX_CLANG_TIDY "")
target_include_directories(headroom_listen PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(headroom_listen PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(headroom_listen PRIVATE -static-libstdc++ LINKER:--gc-sections LINKER:--version-script=${exports})
if(HEADROOM_SANITIZE OR HEADROOM_FUZZ)
  target_compile_options(headroom_listen PRIVATE -fno-sanitize=all)
  target_link_options(headroom_listen PRIVATE -fno-sanitize=all)
endif()
install(TARGETS headroom_listen LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
