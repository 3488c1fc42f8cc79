# Records of other libraries, replayed with tdict. The programs make_*.py of this folder make longer records.
# tdict_add_replay(TEST PROGRAM RECORD LAYER)
function(tdict_add_replay test program record layer)
  add_executable(beside_${program} beside/${program}.c)
  tdict_compile(beside_${program})
  target_link_libraries(beside_${program} PRIVATE tdict::tdict_static Threads::Threads)
  add_test(NAME ${test} COMMAND beside_${program} ${PROJECT_SOURCE_DIR}/tests/beside/${record}.txt)
  set_tests_properties(${test} PROPERTIES LABELS "${layer};host" SKIP_RETURN_CODE 77 TIMEOUT 120)
  tdict_test_environment(${test})
endfunction()

tdict_add_replay(beside_tensordict replay operations ops)
tdict_add_replay(beside_tensordict_leaves leaves_replay leaves types)
tdict_add_replay(beside_ragged ragged_replay ragged types)
tdict_add_replay(beside_lazy_stack lazy_replay lazy_stack stack)
tdict_add_replay(beside_torch_sequences sequences sequences ops)

# Other libraries of Python in one process with tdict. Set Python3_EXECUTABLE to choose the installation with PyTorch,
# JAX, pyarrow and nanoarrow. A sanitizer would have to be loaded before Python.
if(NOT TDICT_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME beside_dlpack COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/beside/dlpack.py $<TARGET_FILE:tdict>)
  set_tests_properties(beside_dlpack PROPERTIES LABELS "interop;host" SKIP_RETURN_CODE 77 TIMEOUT 300)
  add_test(NAME beside_arrow COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/beside/arrow.py $<TARGET_FILE:tdict> 100)
  set_tests_properties(beside_arrow PROPERTIES LABELS "interop;sim" SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
