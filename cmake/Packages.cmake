# Debian's libraries. All are header-only or static, so that the program runs on a machine that has only the torch wheel.

function(titanium_static_package target header library)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  find_library(${target}_LIBRARY ${library} REQUIRED)
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE})
  target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
endfunction()

titanium_static_package(pcre2_static pcre2.h libpcre2-8.a)
target_compile_definitions(pcre2_static INTERFACE PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
titanium_static_package(utf8proc_static utf8proc.h libutf8proc.a)
titanium_static_package(zstd_static zstd.h libzstd.a)
titanium_static_package(z_static zlib.h libz.a)
titanium_static_package(jpeg_static jpeglib.h libjpeg.a)
titanium_static_package(png_static png.h libpng16.a)
titanium_static_package(webp_static webp/decode.h libwebp.a)
titanium_static_package(webpdemux_static webp/demux.h libwebpdemux.a)
add_library(images_static INTERFACE)
target_link_libraries(images_static INTERFACE jpeg_static png_static webpdemux_static webp_static)

# Headers alone: the library is loaded when an address is first opened (titanium/remote/transport/http.cpp).
find_path(curl_INCLUDE curl/curl.h REQUIRED)
add_library(curl_headers INTERFACE)
target_include_directories(curl_headers SYSTEM INTERFACE ${curl_INCLUDE})

# fmt, spdlog, nlohmann-json. The code of fmt is compiled in two files (titanium/base/fmt_library.cpp and that of tensor/): as a mere
# header it costs every file that formats something 2 seconds.
add_library(header_only INTERFACE)
target_compile_definitions(header_only INTERFACE SPDLOG_FMT_EXTERNAL SPDLOG_HEADER_ONLY)
add_library(tomlplusplus_header_only INTERFACE)
target_compile_definitions(tomlplusplus_header_only INTERFACE TOML_HEADER_ONLY=1)
add_library(cli11 INTERFACE)

find_package(Threads REQUIRED)
