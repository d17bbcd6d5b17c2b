# Turns INPUT, files with | between them, into a C++ source OUTPUT that defines headroom::embedded::SYMBOL with their bytes.
string(REPLACE "|" ";" files "${INPUT}")
set(hex "")
foreach(file ${files})
  file(READ ${file} one HEX)
  string(APPEND hex "${one}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
file(WRITE ${OUTPUT} "#include <string_view>
namespace headroom::embedded {
namespace {
constexpr char bytes[] = {${bytes}'\\0'};
}
extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL}{bytes, sizeof bytes - 1};
}  // namespace headroom::embedded
")
