# tdict_compile(TARGET) sets the language, the warnings and the sanitizers of a target. All targets here use it.

set(tdict_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)
# gcc does not know that tdict_fail() never returns TDICT_OK. It then warns about variables that are set on success only.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND tdict_warnings -Wno-maybe-uninitialized)
endif()

set(tdict_sanitize_flags)
set(tdict_sanitize_links)
if(TDICT_SANITIZE)
  set(tdict_sanitize_flags -fsanitize=${TDICT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  set(tdict_sanitize_links ${tdict_sanitize_flags})
  if(CMAKE_C_COMPILER_ID MATCHES "Clang") # lld links the many test programs in half the time
    include(CheckLinkerFlag)
    check_linker_flag(C -fuse-ld=lld TDICT_LINKS_WITH_LLD)
    if(TDICT_LINKS_WITH_LLD)
      list(APPEND tdict_sanitize_links -fuse-ld=lld)
    endif()
  endif()
endif()

# With TDICT_ATOMIC_DECISIONS, the compiler calls a function at each atomic access, as for ThreadSanitizer. The functions
# are the scheduler's, see tests/dst/atomic.c.
set(tdict_atomic_flags)
if(TDICT_ATOMIC_DECISIONS)
  set(tdict_atomic_flags -fsanitize=thread $<$<C_COMPILER_ID:GNU>:--param=tsan-instrument-func-entry-exit=0>
                         $<$<C_COMPILER_ID:Clang>:SHELL:-mllvm -tsan-instrument-func-entry-exit=0>)
endif()

function(tdict_compile target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                                          CXX_STANDARD 11 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE ${tdict_warnings} ${tdict_sanitize_flags} ${tdict_atomic_flags}
                                           $<$<BOOL:${TDICT_WERROR}>:-Werror>)
  target_link_options(${target} PRIVATE ${tdict_sanitize_links})
  if(TDICT_ATOMIC_DECISIONS)
    target_link_libraries(${target} PRIVATE tdict_dst)
  endif()
endfunction()

# Compiles the targets of this folder without optimization in a build with a sanitizer. Most of the sources are tests, which
# then compile in a quarter of the time and run about as fast. The library is optimized as users build it.
# A case releases its rig at the end of its block, as the first of its variables, so the last one to go. AddressSanitizer
# counts the others as dead by then, although they are still there, and threads of the rig may look at them.
macro(tdict_compile_fast)
  if(TDICT_SANITIZE)
    add_compile_options(-O0)
    if(TDICT_SANITIZE MATCHES address)
      add_compile_options(-fno-sanitize-address-use-after-scope)
    endif()
  endif()
endmacro()
