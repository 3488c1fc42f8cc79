# tdict_compile(TARGET) sets the language, the warnings and the sanitizers of a target. All targets here use it.

set(tdict_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)
# gcc does not know that tdict_fail() never returns TDICT_OK. It then warns about variables that are set on success only.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND tdict_warnings -Wno-maybe-uninitialized)
endif()

set(tdict_sanitize_flags)
if(TDICT_SANITIZE)
  set(tdict_sanitize_flags -fsanitize=${TDICT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
endif()

function(tdict_compile target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                                          CXX_STANDARD 11 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE ${tdict_warnings} ${tdict_sanitize_flags} $<$<BOOL:${TDICT_WERROR}>:-Werror>)
  target_link_options(${target} PRIVATE ${tdict_sanitize_flags})
endfunction()
