# Finds Open MPI and MPICH by pkg-config, and builds a library for each: tdict_openmpi and tdict_mpich, of the same
# sources. These libraries hold the functions of tdict/comm_mpi.h. They do not link libtdict, because the program may link
# the shared or the static one. The few internal functions that they use are compiled into them again, and not exported.

set(TDICT_MPI AUTO CACHE STRING "Libraries for MPI (tdict/comm_mpi.h): AUTO (for each MPI that pkg-config finds), ON (at least one), OFF")
set_property(CACHE TDICT_MPI PROPERTY STRINGS AUTO ON OFF)

# A subproject looks for MPI only if its parent sets TDICT_MPI to ON. The libraries of MPI are not built for
# ThreadSanitizer, which then reports their own accesses.
set(tdict_mpi_wanted ${TDICT_MPI})
if(TDICT_MPI STREQUAL "AUTO" AND (NOT PROJECT_IS_TOP_LEVEL OR CMAKE_CROSSCOMPILING OR TDICT_SANITIZE MATCHES "thread"))
  set(tdict_mpi_wanted OFF)
endif()

set(tdict_mpi_kinds) # openmpi, mpich
if(tdict_mpi_wanted)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(TDICT_OPENMPI QUIET IMPORTED_TARGET GLOBAL ompi-c)
    pkg_check_modules(TDICT_MPICH QUIET IMPORTED_TARGET GLOBAL mpich)
  endif()
  foreach(kind openmpi mpich)
    string(TOUPPER TDICT_${kind} found)
    if(${found}_FOUND)
      list(APPEND tdict_mpi_kinds ${kind})
    endif()
  endforeach()
  # The programs that start a job. Only the tests need them.
  find_program(TDICT_OPENMPI_RUN NAMES mpirun.openmpi orterun HINTS ${TDICT_OPENMPI_PREFIX}/bin)
  find_program(TDICT_MPICH_RUN NAMES mpirun.mpich mpiexec.hydra HINTS ${TDICT_MPICH_PREFIX}/bin)
endif()
if(TDICT_MPI STREQUAL "ON" AND NOT tdict_mpi_kinds)
  message(FATAL_ERROR "TDICT_MPI is ON, and pkg-config finds neither ompi-c nor mpich: scripts/setup ci installs both")
endif()
list(JOIN tdict_mpi_kinds ", " tdict_mpi_text)
if(tdict_mpi_kinds)
  message(STATUS "MPI (tdict/comm_mpi.h): ${tdict_mpi_text}")
elseif(PROJECT_IS_TOP_LEVEL)
  message(STATUS "MPI (tdict/comm_mpi.h): OFF")
endif()

# The header whose functions are in the libraries of MPI, and not in the library.
set(tdict_mpi_headers comm_mpi.h)
set(tdict_mpi_libraries)
list(TRANSFORM tdict_mpi_kinds PREPEND tdict_ OUTPUT_VARIABLE tdict_mpi_libraries)

if(tdict_mpi_kinds)
  file(GLOB tdict_mpi_sources CONFIGURE_DEPENDS src/services/mpi/*.c)
  add_library(tdict_mpi_parts OBJECT src/core/base/array.c src/core/base/error.c src/core/base/options.c src/core/base/stream_copy.c src/core/base/values.c
              src/core/tensor/convert.c src/core/tensor/convert_vector.c)
  tdict_compile(tdict_mpi_parts)
  tdict_harden(tdict_mpi_parts)
  set_target_properties(tdict_mpi_parts PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  target_include_directories(tdict_mpi_parts PRIVATE include src)
endif()

set(tdict_mpi_script ${PROJECT_SOURCE_DIR}/cmake/tdict_mpi.map)
foreach(kind ${tdict_mpi_kinds})
  string(TOUPPER TDICT_${kind} found)
  set(library tdict_${kind})
  add_library(${library} SHARED ${tdict_mpi_sources} $<TARGET_OBJECTS:tdict_mpi_parts>)
  add_library(tdict::${library} ALIAS ${library})
  tdict_compile(${library})
  tdict_harden(${library})
  set_target_properties(${library} PROPERTIES C_VISIBILITY_PRESET hidden VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${tdict_mpi_script})
  target_include_directories(${library} PRIVATE src PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  # pkg-config also names libraries that only MPI itself uses.
  target_link_options(${library} PRIVATE LINKER:--as-needed LINKER:--version-script=${tdict_mpi_script})
  target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:PkgConfig::${found}> Threads::Threads)
  tdict_harden_link(${library})
  if(NOT TDICT_SANITIZE)
    target_link_options(${library} PRIVATE LINKER:--no-undefined)
  endif()
endforeach()
