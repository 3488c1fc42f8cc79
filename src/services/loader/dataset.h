/* Defines the record of a dataset. Ownership: reference counted. The last reference calls `release` of the table.
 * Thread rule: the table is constant after creation. */
#ifndef TDICT_SERVICES_LOADER_DATASET_H
#define TDICT_SERVICES_LOADER_DATASET_H

#include <stdatomic.h>

#include "tdict/dataset.h"

struct tdict_dataset {
  atomic_long references;
  tdict_dataset_table table; /* owns table.self */
};

/* Creates a dataset as tdict_dataset_create() does. On failure, calls `release` of the table. */
tdict_status tdict_dataset_wrap(const tdict_dataset_table *table, tdict_dataset **out, tdict_error *err);

#endif
