# headroom_embed(target files symbol): makes `extern const std::string_view headroom::embedded::symbol` hold the bytes of a file, or of
# several (a list) one after the other.
function(headroom_embed target files symbol)
  set(sources "")
  foreach(file ${files})
    get_filename_component(source ${file} ABSOLUTE)
    list(APPEND sources ${source})
  endforeach()
  string(REPLACE ";" "|" joined "${sources}")
  set(object ${CMAKE_CURRENT_BINARY_DIR}/embedded/${symbol}.cpp)
  set(generator ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_file.cmake)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${joined} -DOUTPUT=${object} -DSYMBOL=${symbol} -P ${generator}
    DEPENDS ${sources} ${generator} VERBATIM)
  target_sources(${target} PRIVATE ${object})
endfunction()
