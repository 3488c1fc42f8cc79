/* Declares a list of the schemas that a communicator has made last by changing the number of rows of another schema.
 * The list serves one rank alone. The owner of the struct initializes it with zeros. Thread rule: one thread at a
 * time. */
#ifndef TDICT_SERVICES_COMM_ROW_SCHEMAS_H
#define TDICT_SERVICES_COMM_ROW_SCHEMAS_H

#include "tdict/schema.h"

enum { TDICT_ROW_SCHEMAS = 8 };
typedef struct tdict_row_schema {
  tdict_schema *from, *made; /* retained, so that no other schema gets the address of `from` */
  int dim;
  int64_t rows;
} tdict_row_schema;
typedef struct tdict_row_schemas {
  int count;
  tdict_row_schema list[TDICT_ROW_SCHEMAS]; /* the one that was used last comes first */
} tdict_row_schemas;

/* Finds or makes the schema that has `rows` as the size of batch dimension `dim` of the root. *out is a new reference.
 * Returns TDICT_ENOMEM, and TDICT_EINVAL if the dimension does not exist. The message of an error begins with
 * `what`. */
tdict_status tdict_row_schemas_get(tdict_row_schemas *schemas, const char *what, const tdict_row_schema *wanted,
                                   tdict_schema **out, tdict_error *err);
/* Drops all schemas. */
void tdict_row_schemas_reset(tdict_row_schemas *schemas);

#endif
