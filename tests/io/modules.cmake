# The files that other packages wrote, and jansson.
if(TDICT_IO)
  target_link_libraries(test_io_open PRIVATE ${tdict_json_static})
  target_link_libraries(test_io_load_failures PRIVATE ${tdict_json_static})
  target_compile_definitions(test_io_open PRIVATE GOLDEN_FOLDER="${PROJECT_SOURCE_DIR}/tests/io/golden")
endif()
