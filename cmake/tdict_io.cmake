# Finds jansson, and decides whether the file functions of tdict/io.h are built. They are the only part of the library
# that needs another library.

# A subproject looks for jansson only if its parent sets TDICT_IO, because pkg-config adds entries to the parent's cache.
if(PROJECT_IS_TOP_LEVEL OR TDICT_IO)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(JANSSON QUIET IMPORTED_TARGET GLOBAL jansson)
  endif()
endif()
set(tdict_io_default OFF)
if(PROJECT_IS_TOP_LEVEL AND JANSSON_FOUND)
  set(tdict_io_default ON)
endif()
option(TDICT_IO "Build the functions of tdict/io.h, which read and write files (needs jansson)" ${tdict_io_default})
if(TDICT_IO AND NOT JANSSON_FOUND)
  message(FATAL_ERROR "TDICT_IO is ON, and pkg-config does not find jansson: scripts/setup installs it, "
                      "-DTDICT_IO=OFF builds the library without tdict/io.h")
elseif(TDICT_IO)
  message(STATUS "Files (tdict/io.h): ON, with jansson ${JANSSON_VERSION}")
elseif(PROJECT_IS_TOP_LEVEL AND NOT JANSSON_FOUND)
  message(STATUS "Files (tdict/io.h): OFF, since pkg-config does not find jansson")
else()
  message(STATUS "Files (tdict/io.h): OFF; -DTDICT_IO=ON builds them")
endif()

# The headers whose functions the library does not have if TDICT_IO is off.
set(tdict_io_headers io.h saving.h)

# Programs of the build folder that link the static library also link the static jansson if there is one, so that they can
# be copied to a machine that has only glibc.
set(tdict_json_static PkgConfig::JANSSON)
if(TDICT_IO)
  pkg_get_variable(jansson_folder jansson libdir)
  find_library(TDICT_JANSSON_STATIC NAMES libjansson.a HINTS ${jansson_folder})
  if(TDICT_JANSSON_STATIC)
    set(tdict_json_static ${TDICT_JANSSON_STATIC})
  endif()
endif()
