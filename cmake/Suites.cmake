# titanium_suites(program LABEL label): one CTest test per suite of a GoogleTest program, named <program>.<suite>. What the tests
# of a suite share is so computed once. ctest itself asks the program for its suites, so that a new one needs no new configuration.

function(titanium_suites program)
  cmake_parse_arguments(suites "" "LABEL" "" ${ARGN})
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
  file(GENERATE OUTPUT ${file} CONTENT "set(name ${program})
set(program [[$<TARGET_FILE:${program}>]])
set(list [[${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.txt]])
set(properties LABELS ${suites_LABEL} TIMEOUT 600 WORKING_DIRECTORY [[${PROJECT_SOURCE_DIR}]])
include([[${PROJECT_SOURCE_DIR}/cmake/ListSuites.cmake]])
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
