# tdict beside the real TensorDict: a small record of what that did is replayed. make_operations.py makes longer ones.

add_executable(beside_replay beside/replay.c)
tdict_compile(beside_replay)
target_link_libraries(beside_replay PRIVATE tdict::tdict_static Threads::Threads)
add_test(NAME beside_tensordict COMMAND beside_replay ${PROJECT_SOURCE_DIR}/tests/beside/operations.txt)
set_tests_properties(beside_tensordict PROPERTIES LABELS "ops;host" SKIP_RETURN_CODE 77 TIMEOUT 120)
tdict_test_environment(beside_tensordict)

# Text and unbatched tensors in chains of operations, recorded by make_leaves.py.
add_executable(beside_leaves_replay beside/leaves_replay.c)
tdict_compile(beside_leaves_replay)
target_link_libraries(beside_leaves_replay PRIVATE tdict::tdict_static Threads::Threads)
add_test(NAME beside_tensordict_leaves COMMAND beside_leaves_replay ${PROJECT_SOURCE_DIR}/tests/beside/leaves.txt)
set_tests_properties(beside_tensordict_leaves PROPERTIES LABELS "types;host" SKIP_RETURN_CODE 77 TIMEOUT 120)
tdict_test_environment(beside_tensordict_leaves)

# Ragged leaves beside the jagged tensors of PyTorch, recorded by make_ragged.py.
add_executable(beside_ragged_replay beside/ragged_replay.c)
tdict_compile(beside_ragged_replay)
target_link_libraries(beside_ragged_replay PRIVATE tdict::tdict_static Threads::Threads)
add_test(NAME beside_ragged COMMAND beside_ragged_replay ${PROJECT_SOURCE_DIR}/tests/beside/ragged.txt)
set_tests_properties(beside_ragged PROPERTIES LABELS "types;host" SKIP_RETURN_CODE 77 TIMEOUT 120)
tdict_test_environment(beside_ragged)

# Lazy stacks, recorded by make_lazy_stack.py.
add_executable(beside_lazy_replay beside/lazy_replay.c)
tdict_compile(beside_lazy_replay)
target_link_libraries(beside_lazy_replay PRIVATE tdict::tdict_static Threads::Threads)
add_test(NAME beside_lazy_stack COMMAND beside_lazy_replay ${PROJECT_SOURCE_DIR}/tests/beside/lazy_stack.txt)
set_tests_properties(beside_lazy_stack PROPERTIES LABELS "stack;host" SKIP_RETURN_CODE 77 TIMEOUT 120)
tdict_test_environment(beside_lazy_stack)

# tdict beside PyTorch: padded and packed sequences. make_sequences.py makes longer records.
add_executable(beside_sequences beside/sequences.c)
tdict_compile(beside_sequences)
target_link_libraries(beside_sequences PRIVATE tdict::tdict_static Threads::Threads)
add_test(NAME beside_torch_sequences COMMAND beside_sequences ${PROJECT_SOURCE_DIR}/tests/beside/sequences.txt)
set_tests_properties(beside_torch_sequences PROPERTIES LABELS "ops;host" TIMEOUT 120)
tdict_test_environment(beside_torch_sequences)
