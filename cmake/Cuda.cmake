# Kernels: nvcc is called directly, because CMake 3.25 does not know CUDA 13 and the compiler may come out of a wheel
# that has no toolkit layout. Sources are C++17 and include neither torch nor containers.

if(NOT TITANIUM_NVCC)
  message(STATUS "CUDA: no compiler, CPU build")
  set(TITANIUM_CUDA OFF)
  return()
endif()
set(TITANIUM_CUDA ON)

if(NOT TITANIUM_CUDA_ARCHS)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" archs "${capabilities}")
    list(REMOVE_DUPLICATES archs)
    string(REPLACE "." "" archs "${archs}")
  else()
    set(archs 90)
  endif()
  set(TITANIUM_CUDA_ARCHS "${archs}" CACHE STRING "" FORCE)
endif()
message(STATUS "CUDA: ${TITANIUM_NVCC} for sm ${TITANIUM_CUDA_ARCHS}")

get_filename_component(toolkit ${TITANIUM_NVCC} DIRECTORY)
get_filename_component(toolkit ${toolkit} DIRECTORY)
set(TITANIUM_CUDA_INCLUDES ${toolkit}/include)
foreach(folder ${TITANIUM_WHEELS}/nvidia/cu13/include ${TITANIUM_WHEELS}/nvidia/nccl/include)
  if(EXISTS ${folder})
    list(APPEND TITANIUM_CUDA_INCLUDES ${folder})
  endif()
endforeach()
set(TITANIUM_NVCC_FLAGS -std=c++17 -O3 -lineinfo --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall)
foreach(arch ${TITANIUM_CUDA_ARCHS})
  set(suffix ${arch})
  if(arch EQUAL 90)
    set(suffix 90a)  # wgmma and bulk copies exist only in the architecture-specific set
  endif()
  list(APPEND TITANIUM_NVCC_FLAGS -gencode=arch=compute_${suffix},code=sm_${suffix})
endforeach()
if(TITANIUM_CUDA_PTX)  # newer GPUs compile it when the program starts
  list(GET TITANIUM_CUDA_ARCHS -1 arch)
  list(APPEND TITANIUM_NVCC_FLAGS -gencode=arch=compute_${arch},code=compute_${arch})
endif()

find_library(TITANIUM_CUDART NAMES libcudart.so.13 libcudart.so PATHS ${TITANIUM_CUDA_WHEELS} ${toolkit}/lib64 NO_DEFAULT_PATH REQUIRED)
find_library(TITANIUM_CUBLASLT NAMES libcublasLt.so.13 libcublasLt.so PATHS ${TITANIUM_CUDA_WHEELS} ${toolkit}/lib64 NO_DEFAULT_PATH REQUIRED)
add_library(cuda INTERFACE)
target_include_directories(cuda SYSTEM INTERFACE ${TITANIUM_CUDA_INCLUDES})
target_link_libraries(cuda INTERFACE ${TITANIUM_CUDART} ${TITANIUM_CUBLASLT})
target_link_libraries(torch INTERFACE ${TITANIUM_TORCH_DIR}/lib/libc10_cuda.so -Wl,--no-as-needed ${TITANIUM_TORCH_DIR}/lib/libtorch_cuda.so -Wl,--as-needed cuda)

# Compiles each .cu to an object that `target` links.
function(titanium_cuda_objects target)
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CCACHE} ${TITANIUM_NVCC} ${TITANIUM_NVCC_FLAGS} -I${PROJECT_SOURCE_DIR} "-I$<JOIN:${TITANIUM_CUDA_INCLUDES},;-I>"
              -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMAND_EXPAND_LISTS
      COMMENT "Building CUDA object ${name}")
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()
