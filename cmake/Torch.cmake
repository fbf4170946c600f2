# libtorch out of the torch wheel, as one imported target. TorchConfig.cmake is not used: it insists on a CUDA toolkit
# and brings compiler flags along.

if(NOT EXISTS ${TITANIUM_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "TITANIUM_TORCH_DIR=\"${TITANIUM_TORCH_DIR}\" has no lib/libtorch_cpu.so. Build with ./run_train.sh or "
                      "./run_tests.sh, which install torch, or pass -DTITANIUM_TORCH_DIR=.../site-packages/torch.")
endif()
get_filename_component(TITANIUM_WHEELS ${TITANIUM_TORCH_DIR} DIRECTORY)
file(GLOB TITANIUM_CUDA_WHEELS ${TITANIUM_WHEELS}/nvidia/*/lib)

add_library(torch INTERFACE)
target_include_directories(torch SYSTEM INTERFACE ${TITANIUM_TORCH_DIR}/include ${TITANIUM_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(torch INTERFACE ${TITANIUM_TORCH_DIR}/lib/libc10.so ${TITANIUM_TORCH_DIR}/lib/libtorch_cpu.so)
# at::parallel_for is a serial loop without this. The wheel's own OpenMP runtime, so that there is one pool of threads.
file(GLOB TITANIUM_OPENMP ${TITANIUM_TORCH_DIR}/lib/libgomp*.so*)
target_compile_options(torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_link_libraries(torch INTERFACE ${TITANIUM_OPENMP})
target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)
list(APPEND CMAKE_BUILD_RPATH ${TITANIUM_TORCH_DIR}/lib ${TITANIUM_CUDA_WHEELS})
