# Listings of the pages. Each docs/listings/*.c and *.cpp is a program of one file, and CTest compares its output with the
# .out file of the same name. The pages show both files, and the reference shows functions of these programs. The *.cpp
# are built if a C++ compiler exists, and *_results.cpp without exceptions.

include(CheckLanguage)
check_language(CXX)
set(cxx_listings)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(cxx_listings docs/listings/*.cpp)
endif()
file(GLOB listing_files CONFIGURE_DEPENDS docs/listings/*.c ${cxx_listings})
foreach(file ${listing_files})
  cmake_path(GET file STEM name)
  add_executable(listing_${name} ${file})
  set_target_properties(listing_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/listings)
  target_link_libraries(listing_${name} PRIVATE tdict::tdict)
  tdict_compile(listing_${name})
  if(name MATCHES "_results$")
    target_compile_options(listing_${name} PRIVATE -fno-exceptions)
  endif()
  if(TDICT_BUILD_TESTS)
    add_test(NAME listing_${name} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:listing_${name}>
                                          -DOUTPUT=${PROJECT_SOURCE_DIR}/docs/listings/${name}.out
                                          -P ${PROJECT_SOURCE_DIR}/cmake/tdict_same_output.cmake)
    set_tests_properties(listing_${name} PROPERTIES LABELS "example;sim" TIMEOUT 300)
    tdict_test_environment(listing_${name})
  endif()
endforeach()
