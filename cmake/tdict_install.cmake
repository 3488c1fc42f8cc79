# Installs the headers, the libraries, a CMake package and a pkg-config file. The installed folder may be moved. bench/
# installs its program itself.

include(CMakePackageConfigHelpers)
set(tdict_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tdict)

set(tdict_left_out)
if(NOT tdict_mpi_libraries)
  foreach(header ${tdict_mpi_headers})
    list(APPEND tdict_left_out PATTERN ${header} EXCLUDE)
  endforeach()
endif()
install(DIRECTORY include/tdict DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${tdict_left_out})
install(FILES ${PROJECT_BINARY_DIR}/include/tdict/config.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tdict)
install(
  TARGETS ${tdict_asked}
  EXPORT tdict-targets
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tdict-targets NAMESPACE tdict:: DESTINATION ${tdict_package_dir})
# Each MPI has a file of its own, which is read only if its library is there: Debian has packages for these libraries.
foreach(kind ${tdict_mpi_kinds})
  install(
    TARGETS tdict_${kind}
    EXPORT tdict-${kind}-targets
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT tdict-${kind}-targets NAMESPACE tdict:: DESTINATION ${tdict_package_dir})
endforeach()
set(tdict_libdir ${CMAKE_INSTALL_LIBDIR})
configure_package_config_file(cmake/tdict-config.cmake.in ${PROJECT_BINARY_DIR}/tdict-config.cmake
                              INSTALL_DESTINATION ${tdict_package_dir} PATH_VARS tdict_libdir
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# 0.x: a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tdict-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tdict-config.cmake ${PROJECT_BINARY_DIR}/tdict-config-version.cmake
        DESTINATION ${tdict_package_dir})

# The man pages, if scripts/docs has made them.
install(DIRECTORY build/docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)

# GDB looks for the printers of a library below its own data folder, by the full path of the library. A moved package
# needs `source`, see docs/neighbours.md. Static libraries have no name that GDB could look for.
set(gdb_dir ${CMAKE_INSTALL_DATADIR}/gdb)
if(tdict_shared IN_LIST tdict_asked)
  install(FILES debug/tdict-gdb.py DESTINATION ${gdb_dir}/auto-load${CMAKE_INSTALL_FULL_LIBDIR}
          RENAME $<TARGET_FILE_NAME:tdict_shared>-gdb.py)
else()
  install(FILES debug/tdict-gdb.py DESTINATION ${gdb_dir})
endif()

# pkg-config: the prefix is relative to the file, so that the package may be moved.
file(RELATIVE_PATH pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
set(pc_prefix "\${pcfiledir}/${pc_up}")
foreach(kind LIBDIR INCLUDEDIR)
  set(pc_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}}") # the packager has chosen an absolute folder: this package cannot be moved
    set(pc_${kind} ${CMAKE_INSTALL_${kind}})
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  endif()
endforeach()
set(pc_private "${CMAKE_THREAD_LIBS_INIT}")
if(NOT pc_private)
  set(pc_private -pthread)
endif()
foreach(library ${tdict_dl_library})
  string(APPEND pc_private " -l${library}")
endforeach()
if(NOT tdict_shared IN_LIST tdict_asked) # then pkg-config is called without --static, too
  set(pc_static_only " ${pc_private}")
endif()
configure_file(tdict.pc.in ${PROJECT_BINARY_DIR}/tdict.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tdict.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(pc_kind ${tdict_mpi_kinds})
  configure_file(tdict-mpi.pc.in ${PROJECT_BINARY_DIR}/tdict-${pc_kind}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tdict-${pc_kind}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
