# The files that other packages wrote, and jansson in the test programs in which its calls can fail.
if(TDICT_IO)
  foreach(name open load_failures save_failures memmap consolidated_file tdz append)
    target_link_libraries(test_io_${name} PRIVATE ${tdict_json_static})
    target_include_directories(test_io_${name} SYSTEM PRIVATE ${JANSSON_INCLUDE_DIRS})
    target_compile_definitions(test_io_${name} PRIVATE GOLDEN_FOLDER="${PROJECT_SOURCE_DIR}/tests/io/golden")
  endforeach()
endif()
