# The C++ headers in the other standards and by the other compilers: the test files are compiled, not run. gate_headers
# compiles each header alone.

target_compile_options(test_hpp_results PRIVATE -fno-exceptions)
if(TDICT_SANITIZE MATCHES "thread") # the build with AddressSanitizer compiles the same
  return()
endif()
foreach(standard 17 20)
  foreach(file classes bind data results)
    set(name hpp_${file}_${standard})
    add_library(${name} OBJECT hpp/test_${file}.cpp)
    tdict_compile(${name})
    set_target_properties(${name} PROPERTIES CXX_STANDARD ${standard})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE tdict::tdict_static tdict_cmocka)
  endforeach()
  target_compile_options(hpp_results_${standard} PRIVATE -fno-exceptions)
endforeach()
