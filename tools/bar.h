/* Writes a bar of progress with the time left, for the programs tdict and tdict-bench. Owns no data. Thread-safe. */
#ifndef TDICT_TOOLS_BAR_H
#define TDICT_TOOLS_BAR_H

#include <stdio.h>

enum { BAR_CELLS = 20, BAR_TEXT_BYTES = 64 };

/* Writes for example "[#####---------------]  25 %, 12 s left". `seconds` is the time since the start. Before two
 * seconds have passed, an estimate would be a guess, so the text is empty. Returns `buffer`. */
static inline const char *bar_format(char buffer[BAR_TEXT_BYTES], double done, double total, double seconds) {
  char cells[BAR_CELLS + 1];
  double part = total > 0 ? done / total : 0;
  part = part < 0 ? 0 : part > 1 ? 1 : part;
  buffer[0] = 0;
  if (seconds < 2 || part == 0) return buffer;
  for (int i = 0; i < BAR_CELLS; i++) cells[i] = (double)i + 0.5 < part * BAR_CELLS ? '#' : '-';
  cells[BAR_CELLS] = 0;
  const double left = seconds * (1 - part) / part;
  if (left < 100)
    snprintf(buffer, BAR_TEXT_BYTES, "[%s] %3.0f %%, %.0f s left", cells, 100 * part, left);
  else
    snprintf(buffer, BAR_TEXT_BYTES, "[%s] %3.0f %%, %.0f min left", cells, 100 * part, left / 60);
  return buffer;
}

#endif
