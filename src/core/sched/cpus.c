/* Implements sets of processors. See cpus.h for ownership and threads. */
#include "core/sched/cpus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool tdict_cpus_read(tdict_cpus *out) {
  memset(out, 0, sizeof *out);
  return sched_getaffinity(0, sizeof out->sets, out->sets) == 0;
}

int tdict_cpus_count(void) {
  tdict_cpus cpus;
  const long count = tdict_cpus_read(&cpus) ? CPU_COUNT_S(sizeof cpus.sets, cpus.sets) : sysconf(_SC_NPROCESSORS_ONLN);
  return count < 1 ? 1 : count > TDICT_MOST_CPUS ? TDICT_MOST_CPUS : (int)count;
}

char *tdict_cpus_format(const tdict_cpus *cpus, char *buffer, size_t bytes) {
  const size_t size = sizeof cpus->sets;
  size_t at = 0;
  buffer[0] = 0;
  for (size_t i = 0; i < TDICT_MOST_CPUS && at + 32 < bytes; i++) {
    if (!CPU_ISSET_S(i, size, cpus->sets)) continue;
    size_t last = i;
    while (last + 1 < TDICT_MOST_CPUS && CPU_ISSET_S(last + 1, size, cpus->sets)) last++;
    at += (size_t)snprintf(buffer + at, bytes - at, last > i ? "%s%zu-%zu" : "%s%zu", at ? "," : "", i, last);
    i = last;
  }
  return buffer;
}
