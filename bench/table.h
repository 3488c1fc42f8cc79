/* The table and the JSON of a scenario's rows. Every scenario reports through it. Owns nothing. Thread rule: one thread. */
#ifndef TDICT_BENCH_TABLE_H
#define TDICT_BENCH_TABLE_H

#include "rows.h"

typedef struct table_row {
  const char *name;
  const bench_samples *library, *driver, *line; /* driver and line may be empty */
  size_t bytes, line_bytes;                     /* moved by one repetition; by one sample of the line */
  bool has_rate;                                /* bytes over time says something about the row */
} table_row;

/* Prints what is measured, the host, the device, and why no GPU is used. */
void table_print_head(const bench_place *place, const char *scenario, const char *what);
void table_print_columns(void);
void table_print_row(const table_row *row);
/* Adds the row's figures to `record`. */
void table_record_row(json_t *record, const table_row *row);

#endif
