# Read by ctest, once for each GoogleTest program: Suites.cmake writes the file that sets `name`, `program`, `list` and `properties`.

if(NOT EXISTS ${program})
  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
  return()
endif()

if(${program} IS_NEWER_THAN ${list})
  execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE tests RESULT_VARIABLE failed TIMEOUT 60)
  if(failed)
    message(FATAL_ERROR "${program} --gtest_list_tests failed (${failed}): ${tests}")
  endif()
  file(WRITE ${list} "${tests}")
endif()

file(STRINGS ${list} suites REGEX "^[^ ]+\\.")  # its tests are the indented lines below it
foreach(suite ${suites})
  string(REGEX REPLACE "\\. *(#.*)?$" "" suite "${suite}")
  add_test(${name}.${suite} ${program} --gtest_filter=${suite}.*)
  set_tests_properties(${name}.${suite} PROPERTIES ${properties})
endforeach()
