# The library: an object library, and a shared and a static library made from it.

find_package(Threads REQUIRED)
include(CheckSymbolExists)
include(CMakePushCheckState)
check_symbol_exists(dlopen dlfcn.h TDICT_LIBC_HAS_DLOPEN)
set(tdict_dl_library)
if(NOT TDICT_LIBC_HAS_DLOPEN)
  set(tdict_dl_library ${CMAKE_DL_LIBS})
endif()
cmake_push_check_state()
list(APPEND CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
check_symbol_exists(pthread_setname_np pthread.h TDICT_LIBC_HAS_SETNAME)
cmake_pop_check_state()
set_source_files_properties(src/core/base/thread.c PROPERTIES COMPILE_DEFINITIONS TDICT_LIBC_HAS_SETNAME=$<BOOL:${TDICT_LIBC_HAS_SETNAME}>)

file(GLOB tdict_sources CONFIGURE_DEPENDS src/*.c src/*/*.c src/*/*/*.c src/*/*/*/*.c)
if(NOT TDICT_CUDA)
  list(REMOVE_ITEM tdict_sources ${PROJECT_SOURCE_DIR}/src/device/cuda/driver_cuda.c)
endif()
list(FILTER tdict_sources EXCLUDE REGEX "/src/services/mpi/") # libraries of their own, see tdict_mpi.cmake

# NVTX ranges need a header, but no library at run time.
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
  list(REMOVE_ITEM tdict_sources ${PROJECT_SOURCE_DIR}/src/engine/options/trace/nvtx.c)
endif()

# The kernels are part of the library. The simulated device runs their bodies, which must round as on a GPU: no FMA.
set(tdict_kernel_image ${PROJECT_SOURCE_DIR}/src/device/kernels/kernels.ptx)
# image.c defines its symbol in assembler, which link-time optimization does not see: -fno-lto.
set_source_files_properties(
  src/device/kernels/image.c PROPERTIES COMPILE_DEFINITIONS TDICT_KERNEL_IMAGE_FILE="${tdict_kernel_image}"
                                COMPILE_OPTIONS -fno-lto OBJECT_DEPENDS ${tdict_kernel_image})
set_source_files_properties(src/device/kernels/host.c PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

# These files call functions of the program while other threads wait for the call. A C++ exception must not pass through
# them: without tables for unwinding, std::terminate() ends the process with the text of the exception. See
# docs/callbacks.md.
set_source_files_properties(
  src/core/base/log.c
  src/services/comm/async.c
  src/device/allocator_memory.c
  src/services/io/contents/unloaded.c
  src/core/sched/parallel.c
  src/engine/options/hooks.c
  src/engine/plan/flatten.c
  src/engine/plan/result.c
  src/engine/options/record_stream.c
  src/core/tree/objects.c
  PROPERTIES COMPILE_OPTIONS "-fno-asynchronous-unwind-tables;-fno-unwind-tables;-fno-lto")

add_library(tdict_objects OBJECT ${tdict_sources})
tdict_compile(tdict_objects)
tdict_harden(tdict_objects)
set_target_properties(tdict_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
target_compile_definitions(tdict_objects PUBLIC TDICT_CUDA=$<BOOL:${TDICT_CUDA}> TDICT_NVTX=$<BOOL:${tdict_nvtx}>)
if(tdict_nvtx)
  target_include_directories(tdict_objects SYSTEM PRIVATE ${TDICT_NVTX_INCLUDE_DIR})
  if(TDICT_SANITIZE MATCHES thread) # NVTX initializes by atomic writes and plain reads, which ThreadSanitizer reports
    set_source_files_properties(src/engine/options/trace/nvtx.c PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
endif()
target_include_directories(tdict_objects PRIVATE include src)

set(tdict_version_script ${PROJECT_SOURCE_DIR}/cmake/tdict.map)
add_library(tdict_shared SHARED $<TARGET_OBJECTS:tdict_objects>)
set_target_properties(tdict_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${tdict_version_script})
target_link_options(tdict_shared PRIVATE LINKER:--version-script=${tdict_version_script} ${tdict_sanitize_flags})
tdict_harden_link(tdict_shared)
if(NOT TDICT_SANITIZE) # the program provides the symbols of a sanitizer
  target_link_options(tdict_shared PRIVATE LINKER:--no-undefined)
endif()
add_library(tdict_static STATIC $<TARGET_OBJECTS:tdict_objects>)

foreach(library tdict_shared tdict_static)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME tdict)
  add_library(tdict::${library} ALIAS ${library})
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${library} PRIVATE Threads::Threads ${tdict_dl_library})
endforeach()

# Both targets always exist. BUILD_SHARED_LIBS chooses which target is tdict::tdict, and which targets are built by default
# and installed. If it is not set, a subproject is static. Otherwise both are built, and tdict::tdict is the shared library.
# A subproject that installs nothing builds only the targets that its parent links.
set(tdict_asked tdict_shared tdict_static)
if(DEFINED BUILD_SHARED_LIBS AND BUILD_SHARED_LIBS)
  set(tdict_asked tdict_shared)
elseif(DEFINED BUILD_SHARED_LIBS OR NOT PROJECT_IS_TOP_LEVEL)
  set(tdict_asked tdict_static)
endif()
list(GET tdict_asked 0 tdict_chosen)
add_library(tdict ALIAS ${tdict_chosen}) # otherwise a parent that links `tdict` would get -ltdict
add_library(tdict::tdict ALIAS ${tdict_chosen})
set_target_properties(tdict_shared tdict_static tdict_objects PROPERTIES EXCLUDE_FROM_ALL ON)
if(TDICT_INSTALL OR PROJECT_IS_TOP_LEVEL)
  set_target_properties(${tdict_asked} PROPERTIES EXCLUDE_FROM_ALL OFF)
endif()
