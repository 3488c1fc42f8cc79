# Tests the printers of GDB with a program that is linked with the shared library, and that GDB stops.
# GDB cannot run leak checks, and sanitizers change what a call prints. GDB does not run programs of other processors.
if(NOT TDICT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  add_executable(debug_stopped services/debug/stopped.c)
  tdict_compile(debug_stopped)
  # GDB needs the program's variables, and the printers need the private structs, also in a Release build.
  target_compile_options(debug_stopped PRIVATE -g -O0)
  target_link_libraries(debug_stopped PRIVATE tdict::tdict_shared)
  add_test(NAME gdb_prints COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/services/debug/gdb.py
                                   $<TARGET_FILE:debug_stopped> ${PROJECT_SOURCE_DIR}/debug/tdict-gdb.py
                                   $<TARGET_FILE:tdict_shared>)
  set_tests_properties(gdb_prints PROPERTIES LABELS "debug;sim;threads" SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()
