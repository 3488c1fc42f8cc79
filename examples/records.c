/* records: an array of C structs goes to a device and comes back, without a copy on the
 * host.
 *
 *   records [DEVICE]     auto (default), cpu, sim, cuda:N */
#include <stdio.h>
#include <stdlib.h>

#include <tdict/debug.h>
#include <tdict/records.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { COUNT = 1000 };

typedef struct particle {
  char tag; /* not in the table, so it is not part of the tree */
  struct {
    double mass;
    float pos[3];
  } body;
  bool alive;
} particle;

static const tdict_record_field fields[] = {
    TDICT_RECORD_FIELD(particle, body.mass, "mass", TDICT_F64),
    TDICT_RECORD_FIELD(particle, body.pos, "pos", TDICT_F32, 3),
    TDICT_RECORD_FIELD(particle, alive, "alive", TDICT_BOOL),
};

static tdict_records describe(particle *array) {
  tdict_records records = tdict_records_default();
  records.data = array;
  records.num_records = COUNT;
  records.record_bytes = sizeof *array;
  records.fields = fields;
  records.num_fields = sizeof fields / sizeof *fields;
  return records;
}

/* Returns true if the members in the table are
 * equal, and the tags of `b` have not changed. */
static bool agree(const particle *a, const particle *b) {
  for (int i = 0; i < COUNT; i++)
    if (a[i].body.mass != b[i].body.mass || a[i].body.pos[2] != b[i].body.pos[2] ||
        a[i].alive != b[i].alive || b[i].tag != 'b')
      return false;
  return true;
}

int main(int argc, char **argv) {
  particle *a = calloc(COUNT, sizeof *a), *b = calloc(COUNT, sizeof *b);
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *from = NULL, *to = NULL, *moved = NULL;
  tdict_error err = {0};
  int code = 1;
  o.sim = &sim;
  for (int i = 0; a && b && i < COUNT; i++) {
    a[i] = (particle){'a', {1.0 / (i + 1), {0, 1, (float)i}}, i % 3 == 0};
    b[i].tag = 'b';
  }
  if (!a || !b) goto done;
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[1], &o.device, &err));
  TDICT_TRY(tdict_context_create(&o, &context, &err));
  const tdict_records source = describe(a), destination = describe(b);
  TDICT_TRY(tdict_records_view(&source, NULL, NULL, &from, &err));
  TDICT_TRY(tdict_records_view(&destination, NULL, NULL, &to, &err));
  TDICT_TRY(tdict_describe(from, stdout, &err));
  TDICT_TRY(tdict_to_device(context, from, tdict_context_device(context, NULL), NULL,
                            &moved, &err));
  TDICT_TRY(tdict_transfer_into(context, to, moved, NULL, &err));
  code = agree(a, b) ? 0 : 1;
  printf("%d records came back %s\n", (int)COUNT, code ? "different" : "equal");

done:
  tdict_release(moved);
  tdict_release(from);
  tdict_release(to);
  tdict_context_destroy(context);
  free(a);
  free(b);
  return code;
}
