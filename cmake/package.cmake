# libheadroom.so with nothing visible but the C interface, and what an installation needs to be found:
# find_package(headroom) gives headroom::headroom; pkg-config knows it as headroom.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(headroom_capi OBJECT ${HEADROOM_CAPI_SOURCES})
target_link_libraries(headroom_capi PUBLIC headroom_core)
if(HEADROOM_SANITIZE)
  target_compile_options(headroom_capi PRIVATE -O0)  # elsewhere it is optimised: a call takes microseconds
endif()

add_library(headroom SHARED)
add_library(headroom::headroom ALIAS headroom)
set(exports ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_link_libraries(headroom PRIVATE headroom_capi)
target_link_options(headroom PRIVATE LINKER:--version-script=${exports})
target_include_directories(headroom INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(headroom PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}  # before 1.0 a minor version may break
  LINK_DEPENDS ${exports} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

install(TARGETS headroom EXPORT headroomTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET headroom_cli)
  install(TARGETS headroom_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The program writes what completes its words, and its manual page.
  set(written ${CMAKE_CURRENT_BINARY_DIR}/completion)
  foreach(file IN ITEMS bash/headroom zsh/_headroom fish/headroom.fish man/headroom.1)
    get_filename_component(topic ${file} DIRECTORY)
    install(CODE "file(MAKE_DIRECTORY \"${written}/${topic}\")
      execute_process(COMMAND \"$<TARGET_FILE:headroom_cli>\" completion ${topic} OUTPUT_FILE \"${written}/${file}\" COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
  install(FILES ${written}/bash/headroom DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${written}/zsh/_headroom DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${written}/fish/headroom.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${written}/man/headroom.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(DIRECTORY include/headroom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)
install(EXPORT headroomTargets NAMESPACE headroom:: DESTINATION ${config_dir})
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/headroomConfig.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/headroomTargets.cmake)\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/headroomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/headroomConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/headroomConfigVersion.cmake
  DESTINATION ${config_dir})

# The prefix is worked out from where the file lies, so that `cmake --install --prefix` and a moved tree both work.
file(RELATIVE_PATH to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/headroom.pc.in ${CMAKE_CURRENT_BINARY_DIR}/headroom.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/headroom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
