# Run by the build: writes OUTPUT, a C++ file that defines a function for each of FILES, a list of name=path, in the namespace
# titanium::observe, which returns the content. HEADER declares them.

set(code "// Made by cmake/Embed.cmake.\n#include \"${HEADER}\"\n\nnamespace titanium::observe {\n")
string(REPLACE "," ";" files "${FILES}")
foreach(file ${files})
  string(REGEX MATCH "^([^=]+)=(.*)$" matched ${file})
  set(name ${CMAKE_MATCH_1})
  file(READ ${CMAKE_MATCH_2} content)
  # A literal may be long, but not for every compiler: pieces of lines.
  string(REPLACE "\n" "\n)embed\"\nR\"embed(" content "${content}")
  string(APPEND code "\nstd::string_view ${name}() {\n  static constexpr char kContent[] =\nR\"embed(${content})embed\";\n  return {kContent, sizeof(kContent) - 1};\n}\n")
endforeach()
string(APPEND code "\n}  // namespace titanium::observe\n")
file(WRITE ${OUTPUT} "${code}")
