# The statistics of the random tests use the mathematical functions of C.
target_link_libraries(test_loader_random PRIVATE m)
