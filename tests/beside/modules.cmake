# Comparisons with other libraries. They start no thread.
if(TDICT_SANITIZE MATCHES "thread")
  return()
endif()

# Records of other libraries, replayed with tdict. The programs make_*.py of this folder make longer records.
# tdict_add_replay(TEST PROGRAM RECORD LAYER)
function(tdict_add_replay test program record layer)
  add_executable(beside_${program} beside/${program}.c)
  tdict_compile(beside_${program})
  target_include_directories(beside_${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(beside_${program} PRIVATE tdict::tdict_static Threads::Threads)
  add_test(NAME ${test} COMMAND beside_${program} ${PROJECT_SOURCE_DIR}/tests/beside/${record}.txt)
  set_tests_properties(${test} PROPERTIES LABELS "beside;${layer};host" SKIP_RETURN_CODE 77 TIMEOUT 120)
  tdict_test_environment(${test})
endfunction()

tdict_add_replay(beside_tensordict replay operations ops)
tdict_add_replay(beside_tensordict_leaves leaves_replay leaves leaves)
tdict_add_replay(beside_ragged ragged_replay ragged leaves)
tdict_add_replay(beside_lazy_stack lazy_replay lazy_stack stack)
tdict_add_replay(beside_torch_sequences sequences sequences ops)

# The reader of JSON beside Python's, in two processes.
add_executable(beside_json_values beside/json_values.c)
tdict_compile(beside_json_values)
target_include_directories(beside_json_values PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(beside_json_values PRIVATE tdict::tdict_static Threads::Threads)
if(NOT CMAKE_CROSSCOMPILING)
  add_test(NAME beside_json_texts COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/beside/json_texts.py
    $<TARGET_FILE:beside_json_values>)
  set_tests_properties(beside_json_texts PROPERTIES LABELS "beside;io;host" TIMEOUT 300)
  tdict_test_environment(beside_json_texts)
endif()

# Other libraries of Python in one process with tdict: those that scripts/setup ci has installed, or the installation that
# Python3_EXECUTABLE names, for example one with PyTorch or JAX. A sanitizer would have to be loaded before Python,
# and Python cannot load a library of another processor.
function(tdict_add_python test script device)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(python ${Python3_EXECUTABLE})
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/python/bin/python AND NOT DEFINED CACHE{Python3_EXECUTABLE})
    set(python ${PROJECT_SOURCE_DIR}/build/python/bin/python)
  endif()
  add_test(NAME ${test} COMMAND ${python} -B ${PROJECT_SOURCE_DIR}/tests/beside/${script} $<TARGET_FILE:tdict_shared> ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS "beside;interop;${device}" SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()
if(NOT TDICT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  tdict_add_python(beside_dlpack dlpack.py host)
  # scripts/setup ci installs Debian's PyTorch for the CPU, which only the system's Python finds.
  if(EXISTS /usr/bin/python3)
    add_test(NAME beside_dlpack_torch COMMAND /usr/bin/python3 -B ${PROJECT_SOURCE_DIR}/tests/beside/dlpack.py
      $<TARGET_FILE:tdict_shared> torch)
    set_tests_properties(beside_dlpack_torch PROPERTIES LABELS "beside;interop;host" SKIP_RETURN_CODE 77 TIMEOUT 300)
  endif()
  # The same Python for the kernels' conversions of floats.
  if(EXISTS /usr/bin/python3)
    add_test(NAME beside_kernel_floats COMMAND /usr/bin/python3 -B ${PROJECT_SOURCE_DIR}/tests/beside/kernel_floats.py
      $<TARGET_FILE:test_device_convert_patterns> sim 100000)
    set_tests_properties(beside_kernel_floats PROPERTIES LABELS "beside;device;sim" SKIP_RETURN_CODE 77 TIMEOUT 300)
  endif()
  tdict_add_python(beside_arrow arrow.py sim 100)
  tdict_add_python(beside_safetensors safetensors.py host)
  tdict_add_python(beside_safetensors_numpy safetensors_numpy.py host)
  tdict_add_python(beside_numpy_files numpy_files.py host)
  tdict_add_python(beside_tensordict_files tensordict_files.py host)
  set_tests_properties(beside_safetensors beside_safetensors_numpy beside_numpy_files beside_tensordict_files
    PROPERTIES LABELS "beside;io;host")
endif()
