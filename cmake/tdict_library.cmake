# The library: one object library, and from it a shared and a static one.

find_package(Threads REQUIRED)
include(CheckSymbolExists)
check_symbol_exists(dlopen dlfcn.h TDICT_LIBC_HAS_DLOPEN)
set(tdict_dl_library)
if(TDICT_CUDA AND NOT TDICT_LIBC_HAS_DLOPEN)
  set(tdict_dl_library ${CMAKE_DL_LIBS})
endif()

file(GLOB tdict_sources CONFIGURE_DEPENDS src/*.c src/*/*.c)
if(NOT TDICT_CUDA)
  list(REMOVE_ITEM tdict_sources ${PROJECT_SOURCE_DIR}/src/device/driver_cuda.c)
endif()

# Ranges for profilers need a header and nothing at run time.
set(tdict_nvtx OFF)
if(TDICT_NVTX STREQUAL "ON" OR (TDICT_NVTX STREQUAL "AUTO" AND TDICT_CUDA))
  find_program(TDICT_NVCC nvcc HINTS /usr/local/cuda/bin)
  get_filename_component(nvtx_hint "${TDICT_NVCC}" REALPATH)
  find_path(TDICT_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${nvtx_hint}/../../include ${nvtx_hint}/../../targets/x86_64-linux/include)
  if(TDICT_NVTX_INCLUDE_DIR)
    set(tdict_nvtx ON)
  elseif(TDICT_NVTX STREQUAL "ON")
    message(FATAL_ERROR "TDICT_NVTX is ON, and nvtx3/nvToolsExt.h is not found: -DTDICT_NVTX_INCLUDE_DIR= names its folder")
  endif()
endif()
message(STATUS "Ranges for NVIDIA's profilers (NVTX): ${tdict_nvtx}")
if(NOT tdict_nvtx)
  list(REMOVE_ITEM tdict_sources ${PROJECT_SOURCE_DIR}/src/transfer/ranges_nvtx.c)
endif()

add_library(tdict_objects OBJECT ${tdict_sources})
tdict_compile(tdict_objects)
set_target_properties(tdict_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
target_compile_definitions(tdict_objects PUBLIC TDICT_CUDA=$<BOOL:${TDICT_CUDA}> TDICT_NVTX=$<BOOL:${tdict_nvtx}>)
if(tdict_nvtx)
  target_include_directories(tdict_objects SYSTEM PRIVATE ${TDICT_NVTX_INCLUDE_DIR})
  if(TDICT_SANITIZE MATCHES thread) # NVTX sets itself up by atomic writes, and reads what they wrote by plain loads
    set_source_files_properties(src/transfer/ranges_nvtx.c PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
endif()
target_include_directories(tdict_objects PRIVATE include src)

set(tdict_version_script ${PROJECT_SOURCE_DIR}/cmake/tdict.map)
add_library(tdict SHARED $<TARGET_OBJECTS:tdict_objects>)
set_target_properties(tdict PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${tdict_version_script})
target_link_options(tdict PRIVATE LINKER:--version-script=${tdict_version_script} ${tdict_sanitize_flags})
if(NOT TDICT_SANITIZE) # a sanitizer's own symbols come from the program
  target_link_options(tdict PRIVATE LINKER:--no-undefined)
endif()

add_library(tdict_static STATIC $<TARGET_OBJECTS:tdict_objects>)
set_target_properties(tdict_static PROPERTIES OUTPUT_NAME tdict)

foreach(library tdict tdict_static)
  add_library(tdict::${library} ALIAS ${library})
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${library} PRIVATE Threads::Threads ${tdict_dl_library})
endforeach()

# Both targets are always there. Built without being linked to, and installed, are those that are asked for: both, or the
# one that BUILD_SHARED_LIBS chooses. A subproject that installs nothing builds what its parent links.
set(tdict_asked tdict tdict_static)
if(DEFINED BUILD_SHARED_LIBS AND BUILD_SHARED_LIBS)
  set(tdict_asked tdict)
elseif(DEFINED BUILD_SHARED_LIBS)
  set(tdict_asked tdict_static)
endif()
set_target_properties(tdict tdict_static tdict_objects PROPERTIES EXCLUDE_FROM_ALL ON)
if(TDICT_INSTALL OR PROJECT_IS_TOP_LEVEL)
  set_target_properties(${tdict_asked} PROPERTIES EXCLUDE_FROM_ALL OFF)
endif()
