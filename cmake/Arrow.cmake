# The plug-in that reads Parquet and Arrow, out of the pyarrow wheel. It stands beside the program, which loads it when such a
# file is opened and needs neither it nor the wheel before.

set(TITANIUM_ARROW_DIR "" CACHE PATH "Folder of the pyarrow wheel that holds include/ and libarrow; empty: beside torch or in the test venv")
get_filename_component(venv_bin "${TITANIUM_PYTHON}" DIRECTORY)
file(GLOB candidates ${TITANIUM_WHEELS}/pyarrow ${venv_bin}/../lib/python3*/site-packages/pyarrow)
foreach(folder ${TITANIUM_ARROW_DIR} ${candidates})
  file(GLOB arrow_libraries ${folder}/libarrow.so.* ${folder}/libparquet.so.*)
  list(LENGTH arrow_libraries count)
  if(count EQUAL 2 AND EXISTS ${folder}/include/arrow/api.h)
    get_filename_component(arrow_folder ${folder} ABSOLUTE)
    break()
  endif()
endforeach()
if(NOT arrow_folder)
  message(STATUS "Arrow: no pyarrow wheel, so the program will not read Parquet and Arrow files")
  return()
endif()

add_library(titanium_arrow MODULE titanium/data/plugin/arrow.cpp titanium/data/plugin/paged_texts.cpp)
target_include_directories(titanium_arrow PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(titanium_arrow SYSTEM PRIVATE ${arrow_folder}/include)
target_compile_options(titanium_arrow PRIVATE ${TITANIUM_WARNINGS} -fvisibility=hidden)
target_link_libraries(titanium_arrow PRIVATE ${arrow_libraries})
set_target_properties(titanium_arrow PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} BUILD_RPATH ${arrow_folder})
# Whoever builds the program has both: run_train.sh, an image, and `cmake --install` after them.
add_dependencies(titanium titanium_arrow)
