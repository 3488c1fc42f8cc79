# The corpora of the fuzz targets, replayed with whatever compiler builds the tests. scripts/fuzz searches further.

file(GLOB fuzz_corpus CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/container/*)
file(GLOB fuzz_sources CONFIGURE_DEPENDS support/ops*.c)
add_executable(fuzz_container_replay fuzz/fuzz_container.c fuzz/replay.c ${fuzz_sources} support/model.c support/fail_alloc.c)
tdict_compile(fuzz_container_replay)
target_include_directories(fuzz_container_replay PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
target_link_options(fuzz_container_replay PRIVATE ${tdict_support_wraps})
target_link_libraries(fuzz_container_replay PRIVATE tdict::tdict_static tdict_cmocka Threads::Threads)
if(fuzz_corpus)
  add_test(NAME fuzz_container_corpus COMMAND fuzz_container_replay ${fuzz_corpus})
  set_tests_properties(fuzz_container_corpus PROPERTIES LABELS "ops;host" TIMEOUT 120)
  tdict_test_environment(fuzz_container_corpus)
endif()

# The readers of JSON and UTF-8.
file(GLOB json_corpus CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/json/*)
add_executable(fuzz_json_replay fuzz/fuzz_json.c fuzz/replay.c)
tdict_compile(fuzz_json_replay)
target_include_directories(fuzz_json_replay PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(fuzz_json_replay PRIVATE tdict::tdict_static)
add_test(NAME fuzz_json_corpus COMMAND fuzz_json_replay ${json_corpus})
set_tests_properties(fuzz_json_corpus PROPERTIES LABELS "types;host" TIMEOUT 120)
tdict_test_environment(fuzz_json_corpus)
