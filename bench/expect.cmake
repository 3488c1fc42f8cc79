# Runs COMMAND and fails unless it ends with STATUS and prints TEXT, on whichever stream.
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
message("${text}")
if(NOT "${status}" STREQUAL "${STATUS}")
  message(FATAL_ERROR "ended with ${status}, wanted ${STATUS}")
endif()
string(REPLACE "\n" " " text "${text}") # paragraphs are broken between words
string(FIND "${text}" "${TEXT}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "did not print: ${TEXT}")
endif()
