/* Prints the table of a scenario, and writes its JSON. All scenarios use it. Owns no data. Thread rule: one thread. */
#ifndef TDICT_BENCH_TABLE_H
#define TDICT_BENCH_TABLE_H

#include "rows.h"

typedef struct table_row {
  const char *name;
  const bench_samples *library, *driver, *line; /* `driver` and `line` may have no samples */
  size_t bytes, line_bytes;                     /* bytes that one repetition moves; bytes of one sample of the line */
  bool has_rate;                                /* true: the table shows a rate in GB/s */
} table_row;

/* Prints the scenario, the host, the device, and the reason if no GPU is used. */
void table_print_head(const bench_place *place, const char *scenario, const char *what);
void table_print_columns(void);
void table_print_row(const table_row *row);
/* Adds the samples of the row to a JSON object. */
void table_record_row(json_t *record, const table_row *row);

#endif
