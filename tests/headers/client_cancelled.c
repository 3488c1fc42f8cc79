/* Runs the client on a thread with a pending cancellation, which the macros below disable around the known cancellation
 * points. The client must return, because no other tdict function may be a cancellation point. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* C library functions called by the client that are cancellation points. */
#define KEPT(type, call)                                     \
  __extension__({                                            \
    int before;                                              \
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); \
    type returned = call;                                    \
    pthread_setcancelstate(before, NULL);                    \
    returned;                                                \
  })
#define close(fd) KEPT(int, close(fd))
#define fclose(file) KEPT(int, fclose(file))
#define fopen(path, mode) KEPT(FILE *, fopen(path, mode))
#define printf(...) KEPT(int, printf(__VA_ARGS__))
#define tmpfile() KEPT(FILE *, tmpfile())

/* tdict functions that are cancellation points. */
#include "tdict/loader.h"
#include "tdict/tdict.h"
#define tdict_future_wait(future, out, err) KEPT(tdict_status, tdict_future_wait(future, out, err))
#define tdict_future_wait_for(future, ns, out, err) KEPT(tdict_status, tdict_future_wait_for(future, ns, out, err))
#define tdict_future_wait_source(future, err) KEPT(tdict_status, tdict_future_wait_source(future, err))
#define tdict_loader_next(loader, stream, out, err) KEPT(tdict_status, tdict_loader_next(loader, stream, out, err))

#define main run_client
#include "client.c"
#undef main

static int has_returned;

static void *run_cancelled(void *user) {
  int *const result = (int *)user;
  pthread_cancel(pthread_self());
  *result = run_client();
  has_returned = 1;
  pthread_testcancel();
  *result = 1;
  return NULL;
}

int main(void) {
  pthread_t thread;
  int result = 0;
  if (pthread_create(&thread, NULL, run_cancelled, &result) != 0) return 1;
  pthread_join(thread, NULL);
  if (has_returned) return result;
  fprintf(stderr, "client_cancelled: the thread was cancelled inside a library call\n");
  return 1;
}
