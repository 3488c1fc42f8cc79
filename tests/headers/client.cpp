/* Compiles client.c as C++11. */
#include "client.c"
