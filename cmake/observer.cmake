# What a dry run's Python imports first (src/dry/observer): files beside the program, and installed beside its library.
file(GLOB_RECURSE observer_sources RELATIVE ${PROJECT_SOURCE_DIR}/src/dry/observer CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/dry/observer/*.py)
set(observer_copies)
foreach(source ${observer_sources})
  set(copy ${CMAKE_BINARY_DIR}/headroom_observer/${source})
  add_custom_command(OUTPUT ${copy} DEPENDS ${PROJECT_SOURCE_DIR}/src/dry/observer/${source}
    COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/src/dry/observer/${source} ${copy} VERBATIM)
  list(APPEND observer_copies ${copy})
endforeach()
add_custom_target(headroom_observer ALL DEPENDS ${observer_copies})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/dry/observer/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/headroom_observer FILES_MATCHING PATTERN "*.py")
