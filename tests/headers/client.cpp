/* The same client as C++11: see client.c. */
#include "client.c"
