# titanium_layer(name [DEPENDS layers...] [LINK libraries...] [TORCH] [CUDA] [C10D])
#
# One static library per folder of titanium/: all its .cpp files. Of the subfolders that are named in TITANIUM_GPU_BACKENDS only that of
# TITANIUM_GPU is built (cuda where there is a CUDA compiler, else no_gpu): back ends are chosen when linking. Files in a `plugin/`
# subfolder belong to shared libraries that the program loads when it needs them. Layers with TORCH
# share one precompiled header, the others another. A layer without sources yet is an interface.

# A back end is a folder of this name in each layer that has one.
set(TITANIUM_GPU_BACKENDS cuda hip no_gpu)
if(TITANIUM_CUDA)
  set(TITANIUM_GPU cuda)
else()
  set(TITANIUM_GPU no_gpu)
endif()

function(titanium_layer name)
  cmake_parse_arguments(layer "TORCH;CUDA;C10D" "" "DEPENDS;LINK" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY TITANIUM_LAYERS ${name})
  set(folder ${PROJECT_SOURCE_DIR}/titanium/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$|/plugin/")
  foreach(backend ${TITANIUM_GPU_BACKENDS})
    if(NOT backend STREQUAL TITANIUM_GPU)
      list(FILTER sources EXCLUDE REGEX "/${backend}/")
    endif()
  endforeach()
  list(TRANSFORM layer_DEPENDS PREPEND titanium_)
  if(NOT sources)
    add_library(titanium_${name} INTERFACE)
    target_link_libraries(titanium_${name} INTERFACE ${layer_DEPENDS} ${layer_LINK})
    return()
  endif()

  add_library(titanium_${name} STATIC ${sources})
  target_include_directories(titanium_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(titanium_${name} PUBLIC ${layer_DEPENDS} header_only Threads::Threads PRIVATE ${layer_LINK})
  target_compile_options(titanium_${name} PRIVATE ${TITANIUM_WARNINGS})
  if(layer_TORCH)
    set_property(GLOBAL APPEND PROPERTY TITANIUM_TORCH_LAYERS ${name})
    target_link_libraries(titanium_${name} PUBLIC torch)
    titanium_share_header(titanium_${name} ${PROJECT_SOURCE_DIR}/titanium/tensor/precompiled.h titanium_tensor)
  else()
    titanium_share_header(titanium_${name} ${PROJECT_SOURCE_DIR}/titanium/base/precompiled.h titanium_base)
  endif()
  if(layer_C10D)
    # The wheel has c10d's headers and libraries, but Gloo's headers come from Debian. Which back ends it was built with:
    target_compile_definitions(titanium_${name} PRIVATE USE_C10D_GLOO $<$<BOOL:${TITANIUM_CUDA}>:USE_C10D_NCCL>)
  endif()
  if(layer_CUDA AND TITANIUM_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/cuda/*.cu)
    titanium_cuda_objects(titanium_${name} ${kernels})
    target_link_libraries(titanium_${name} PUBLIC cuda)
  endif()
endfunction()

# titanium_embed(layer function=file...): the files of the layer's folder become functions of page/page_assets.h that return them.
function(titanium_embed layer)
  set(folder ${PROJECT_SOURCE_DIR}/titanium/${layer})
  set(output ${PROJECT_BINARY_DIR}/embedded/${layer}_assets.cpp)
  set(files ${ARGN})
  list(TRANSFORM files REPLACE "=" "=${folder}/")
  list(TRANSFORM files REPLACE "^.*=" "" OUTPUT_VARIABLE paths)
  list(JOIN files "," list)
  add_custom_command(OUTPUT ${output} DEPENDS ${paths} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake COMMENT "Embedding the files of ${layer}"
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFILES=${list} -DHEADER=titanium/${layer}/page/page_assets.h -P ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake)
  target_sources(titanium_${layer} PRIVATE ${output})
endfunction()

# The precompiled header is built once, by `owner`.
function(titanium_share_header target header owner)
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${header})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
