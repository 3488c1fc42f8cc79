# The scheduler of the deterministic simulation, see docs/testing.md. libtdict_dst.so is loaded before libc: by LD_PRELOAD,
# or because a program is linked with it, as in a build with TDICT_ATOMIC_DECISIONS.
# Sanitizers replace the same functions, so these builds have no scheduler.
if(TDICT_SANITIZE OR CMAKE_CROSSCOMPILING)
  return()
endif()
file(GLOB dst_scheduler_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
list(FILTER dst_scheduler_files EXCLUDE REGEX "/workload\\.c$")
add_library(tdict_dst SHARED ${dst_scheduler_files})
set_target_properties(tdict_dst PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden
                                           LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/dst)
target_compile_definitions(tdict_dst PRIVATE _GNU_SOURCE)
# Warnings about functions with the names of built-in functions, and about such functions without a declaration, are off.
target_compile_options(tdict_dst PRIVATE -O2 -g ${tdict_warnings} -Wno-missing-prototypes -fno-builtin
                                         $<$<BOOL:${TDICT_WERROR}>:-Werror>)
target_include_directories(tdict_dst PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(tdict_dst PRIVATE Threads::Threads ${CMAKE_DL_LIBS})

# Tests of the scheduler.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(kind plain atomic)
  set(program dst_cases_${kind})
  add_executable(${program} ${CMAKE_CURRENT_LIST_DIR}/cases/cases.c ${CMAKE_CURRENT_LIST_DIR}/workload.c)
  set_target_properties(${program} PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/dst)
  target_compile_definitions(${program} PRIVATE _GNU_SOURCE)
  target_compile_options(${program} PRIVATE -g ${tdict_warnings} $<$<BOOL:${TDICT_WERROR}>:-Werror>)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${program} PRIVATE Threads::Threads)
endforeach()
target_compile_options(dst_cases_atomic PRIVATE -fsanitize=thread)
target_link_libraries(dst_cases_atomic PRIVATE tdict_dst)
foreach(test repeats repeats_elsewhere planted planted_atomic deadlock misfortunes crash refusals destructors replay)
  add_test(NAME dst_scheduler_${test}
           COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/cases/check.py ${test} $<TARGET_FILE:tdict_dst>
                   $<TARGET_FILE:dst_cases_plain> $<TARGET_FILE:dst_cases_atomic>)
  set_tests_properties(dst_scheduler_${test} PROPERTIES LABELS "dst;host" TIMEOUT 300)
endforeach()

# Cases that use no real files and no other processes.
set(unit_programs test_sched_latch test_sched_parallel test_device_queue test_engine_engine test_engine_future test_engine_lane
                  test_engine_order test_loader_workers)
if(TARGET test_sched_latch)
  list(TRANSFORM unit_programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE unit_files)
  add_test(NAME dst_scheduler_unit_cases
           COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/cases/check.py unit_cases $<TARGET_FILE:tdict_dst> ${unit_files})
  set_tests_properties(dst_scheduler_unit_cases PROPERTIES LABELS "dst;sim" TIMEOUT 300)
endif()
