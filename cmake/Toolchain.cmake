# Compiler flags, ccache and linker.

find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers need these to be cacheable; the base directory lets checkouts share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# No contraction to fused multiply-adds: the same source gives the same bits on x86_64 and aarch64.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess> -ffp-contract=off)
# gcc collects its own garbage less often: a sixth less time for each file, 100 MB more memory.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=500 --param ggc-min-heapsize=1000000>")
# Our own code is warning free; a warning is an error so that it stays so.
# Without bounds of memory: gcc 12 warns falsely where a std::string is built inside an initialiser.
set(TITANIUM_WARNINGS -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-missing-field-initializers
    -Wno-array-bounds -Wno-stringop-overread -Wno-stringop-overflow)

if(TITANIUM_SANITIZE)
  list(APPEND TITANIUM_WARNINGS -Wno-maybe-uninitialized)  # gcc warns falsely about instrumented standard headers
  # What the sanitizer of undefined behaviour reports ends the program, so that a test fails.
  add_compile_options(-fsanitize=${TITANIUM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TITANIUM_SANITIZE})
endif()
