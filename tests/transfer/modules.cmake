# The stand-in for a profiler that trace/test_nvtx.c has NVTX load from beside itself.
if(tdict_nvtx)
  add_library(fake_nvtx MODULE ${CMAKE_CURRENT_LIST_DIR}/trace/fake_nvtx.c)
  tdict_compile(fake_nvtx)
  set_target_properties(fake_nvtx PROPERTIES PREFIX "" SUFFIX .so NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/transfer)
  target_include_directories(fake_nvtx SYSTEM PRIVATE ${TDICT_NVTX_INCLUDE_DIR})
  target_compile_options(fake_nvtx PRIVATE -Wno-missing-prototypes)
  add_dependencies(test_transfer_nvtx fake_nvtx)
endif()
