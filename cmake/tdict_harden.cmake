# Hardening options, if the compiler and the linker support them: stack protector, _FORTIFY_SOURCE in optimized builds,
# full RELRO, a stack that is not executable. tdict_harden(TARGET) sets them for compiling, tdict_harden_link(TARGET) for
# linking. Not used with sanitizers, which replace the same functions.

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CMakePushCheckState)

set(tdict_harden_flags)
set(tdict_harden_links)
if(NOT TDICT_SANITIZE)
  check_c_compiler_flag(-fstack-protector-strong TDICT_HAS_STACK_PROTECTOR)
  if(TDICT_HAS_STACK_PROTECTOR)
    list(APPEND tdict_harden_flags -fstack-protector-strong)
  endif()
  # Find the highest level that the C library supports with this compiler. It warns about unknown levels.
  foreach(level 3 2)
    cmake_push_check_state()
    string(APPEND CMAKE_REQUIRED_FLAGS " -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_c_source_compiles("#include <stdio.h>
      #if __USE_FORTIFY_LEVEL != ${level}
      #error another level
      #endif
      int main(void) { return 0; }" TDICT_HAS_FORTIFY_${level})
    cmake_pop_check_state()
    if(TDICT_HAS_FORTIFY_${level})
      # The C library warns without optimization. -U: some compilers predefine the macro.
      set(optimized $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
      list(APPEND tdict_harden_flags $<${optimized}:-U_FORTIFY_SOURCE> $<${optimized}:-D_FORTIFY_SOURCE=${level}>)
      break()
    endif()
  endforeach()
  foreach(word relro now noexecstack)
    check_linker_flag(C LINKER:-z,${word} TDICT_LINKS_${word})
    if(TDICT_LINKS_${word})
      list(APPEND tdict_harden_links LINKER:-z,${word})
    endif()
  endforeach()
endif()

function(tdict_harden target)
  target_compile_options(${target} PRIVATE ${tdict_harden_flags})
endfunction()

function(tdict_harden_link target)
  target_link_options(${target} PRIVATE ${tdict_harden_links})
endfunction()
