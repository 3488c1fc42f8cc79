# The files that other packages wrote.
foreach(name open format save_and_open open_replaced every_allocation every_list load_failures save_failures memmap consolidated_file tdz append)
  target_compile_definitions(test_io_${name} PRIVATE GOLDEN_FOLDER="${PROJECT_SOURCE_DIR}/tests/services/io/golden")
endforeach()
