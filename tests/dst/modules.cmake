# The scheduler of the deterministic simulation, see docs/testing.md. libtdict_dst.so is loaded before libc: by LD_PRELOAD,
# or because a program is linked with it, as in a build with TDICT_ATOMIC_DECISIONS.
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
