# Toolchain file: cross-compiles for aarch64 with Debian's compiler. TITANIUM_AARCH64_ROOT is a folder with Debian's arm64 packages of the libraries
# (tools/cross_aarch64.sh makes it); programs run under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TITANIUM_AARCH64_ROOT)

set(CMAKE_FIND_ROOT_PATH ${TITANIUM_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# After the compiler's own folders, as the headers of libraries are on the machine itself.
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${TITANIUM_AARCH64_ROOT}/usr/include -idirafter ${TITANIUM_AARCH64_ROOT}/usr/include/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
