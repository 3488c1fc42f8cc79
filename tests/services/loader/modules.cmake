# The statistics of the random tests use the mathematical functions of C. The tests of plans set the rounding mode.
target_link_libraries(test_loader_random PRIVATE m)
target_link_libraries(test_loader_plans PRIVATE m)
