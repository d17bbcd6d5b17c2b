# headroom_embed(target file symbol): makes `extern const std::string_view headroom::embedded::symbol` hold the file's bytes.
function(headroom_embed target file symbol)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(object ${CMAKE_CURRENT_BINARY_DIR}/embedded/${symbol}.cpp)
  set(generator ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_file.cmake)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${source} -DOUTPUT=${object} -DSYMBOL=${symbol} -P ${generator}
    DEPENDS ${source} ${generator} VERBATIM)
  target_sources(${target} PRIVATE ${object})
endfunction()
