# cmake --install and cpack. Two components:
#
#   program      lib/titanium/titanium, started by bin/titanium, which finds libtorch; configurations, the sample corpus, man page and
#                completions in share/. This is what cpack packs.
#   development  headers, the layers as static libraries and TitaniumConfig.cmake, for find_package(Titanium).

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is packed is built by name: ninja titanium
set(share share/titanium)
install(TARGETS titanium DESTINATION lib/titanium COMPONENT program)
# The groups of requirements.txt that this program needs, for titanium-setup.
set(wheel_groups program)
if(TARGET titanium_arrow)
  install(TARGETS titanium_arrow DESTINATION lib/titanium COMPONENT program)
  list(APPEND wheel_groups arrow)
endif()
if(TITANIUM_CUDA)
  list(APPEND wheel_groups cuda)
endif()
list(JOIN wheel_groups " " wheel_groups)
file(WRITE ${PROJECT_BINARY_DIR}/wheel_groups "${wheel_groups}\n")
install(PROGRAMS packaging/titanium packaging/titanium-setup DESTINATION bin COMPONENT program)
install(FILES packaging/find_torch.sh tools/requirements.txt LICENSE ${PROJECT_BINARY_DIR}/wheel_groups DESTINATION ${share} COMPONENT program)
install(DIRECTORY configs DESTINATION ${share} COMPONENT program)
install(DIRECTORY tests/assets DESTINATION ${share}/tests COMPONENT program)
# Made by the program itself, which is built by then.
install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  foreach(made "man>share/man/man1/titanium.1" "completion bash>share/bash-completion/completions/titanium" "completion zsh>share/zsh/site-functions/_titanium")
    string(REGEX MATCH "^(.*)>(.*)$" ignored "${made}")
    string(REPLACE " " ";" words "${CMAKE_MATCH_1}")
    get_filename_component(folder "${root}/${CMAKE_MATCH_2}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    execute_process(COMMAND "${CMAKE_CURRENT_LIST_DIR}/titanium" ${words} OUTPUT_FILE "${root}/${CMAKE_MATCH_2}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()]] COMPONENT program)

get_property(layers GLOBAL PROPERTY TITANIUM_LAYERS)
foreach(layer ${layers})
  get_target_property(type titanium_${layer} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    install(TARGETS titanium_${layer} DESTINATION lib/titanium/layers COMPONENT development)
    list(APPEND libraries titanium_${layer})
  endif()
endforeach()
install(DIRECTORY titanium DESTINATION include COMPONENT development FILES_MATCHING PATTERN "*.h")
list(REVERSE libraries)
configure_file(cmake/TitaniumConfig.cmake.in ${PROJECT_BINARY_DIR}/TitaniumConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TitaniumConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TitaniumConfig.cmake ${PROJECT_BINARY_DIR}/TitaniumConfigVersion.cmake DESTINATION lib/cmake/Titanium
        COMPONENT development)

set(CPACK_PACKAGE_NAME titanium)
set(CPACK_PACKAGE_CONTACT "The authors of Titanium")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Pre-trains large generative models; needs the torch wheel, which titanium-setup installs")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_COMPONENTS_ALL program)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libstdc++6, python3-venv")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, libcurl4")  # for addresses; loaded when used
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
