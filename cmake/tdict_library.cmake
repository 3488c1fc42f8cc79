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

add_library(tdict_objects OBJECT ${tdict_sources})
tdict_compile(tdict_objects)
set_target_properties(tdict_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
target_compile_definitions(tdict_objects PUBLIC TDICT_CUDA=$<BOOL:${TDICT_CUDA}>)
target_include_directories(tdict_objects PRIVATE include src)

set(tdict_version_script ${PROJECT_SOURCE_DIR}/cmake/tdict.map)
add_library(tdict SHARED $<TARGET_OBJECTS:tdict_objects>)
set_target_properties(tdict PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${tdict_version_script})
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
