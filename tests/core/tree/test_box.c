/* Tests boxes of objects: reference counts, and the results and errors of hooks. */
#include "core/tree/box.h"

#include "core/tree/node.h"
#include "help.h"
#include "support/threads.h"

static const tdict_type type = TD_TYPE(.name = "thing", .release = help_end_thing);

static tdict_box *make_box(int *ends) {
  tdict_box *box = NULL;
  td_ok(tdict_box_create(&type, help_make_thing(ends, 0, NULL), &box, err));
  return box;
}

CASE(box_releases_its_object_once) {
  int ends = 0;
  tdict_box *box = make_box(&ends);
  assert_ptr_equal(tdict_box_retain(box), box);
  tdict_box_release(box);
  assert_int_equal(ends, 0);
  tdict_box_release(box);
  assert_int_equal(ends, 1);
  tdict_box_release(NULL);
  box = make_box(&ends);
  help_thing *thing = box->self;
  tdict_box_discard(box); /* the box no longer owns the object */
  assert_int_equal(ends, 1);
  help_end_thing(thing);
  box = make_box(&ends);
  thing = box->self;
  box->kept = true; /* the program still owns the object */
  ends = 0;
  tdict_box_release(box);
  assert_int_equal(ends, 0);
  help_end_thing(thing);
}

CASE(box_create_survives_enomem) {
  int ends = 0;
  help_thing *thing = help_make_thing(&ends, 0, NULL);
  tdict_box *box = NULL;
  td_fail_alloc(0, true);
  tdict_error error = {0};
  tdict_status status = tdict_box_create(&type, thing, &box, &error);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_null(box);
  assert_int_equal(ends, 0);
  help_end_thing(thing);
}

CASE(box_wraps_the_result_of_a_hook) {
  int ends = 0, given_ends = 0;
  tdict_box *box = make_box(&ends), *out = NULL;
  td_ok(tdict_box_of(box, box->self, &out, err));
  assert_ptr_equal(out, box);
  tdict_box_release(out);
  assert_int_equal(ends, 0);
  help_thing *given = help_make_thing(&given_ends, 0, NULL);
  td_ok(tdict_box_of(box, given, &out, err));
  assert_ptr_not_equal(out, box);
  assert_ptr_equal(out->self, given);
  assert_ptr_equal(out->type, &type);
  tdict_box_release(out);
  assert_int_equal(given_ends, 1);
  given = help_make_thing(&given_ends, 0, NULL);
  out = NULL;
  td_fail_alloc(0, true);
  tdict_error error = {0};
  tdict_status status = tdict_box_of(box, given, &out, &error);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_null(out);
  assert_int_equal(given_ends, 2); /* the failed call has released the object */
  assert_int_equal(ends, 0);
  tdict_box_release(box);
  assert_int_equal(ends, 1);
}

static tdict_status finish(tdict_status status, const void *result, tdict_error own, tdict_error *err) {
  return tdict_hook_finish(&type, "pin_memory", status, result, &own, err);
}

CASE(box_hook_errors_are_completed) {
  static const int no_status[] = {-1, TDICT_ENOTSUP + 1, 1 << 30};
  const tdict_error none = {0}, gone = {.native = 5, .path = "inp", .message = "the disk is gone"};
  for (size_t i = 0; i < sizeof no_status / sizeof *no_status; i++) {
    td_fails(TDICT_EHOOK, "pin_memory of type thing returned", finish((tdict_status)no_status[i], NULL, none, err));
    td_fails(TDICT_EHOOK, "not a tdict_status", finish((tdict_status)no_status[i], &type, gone, err));
    assert_int_equal(finish((tdict_status)no_status[i], NULL, none, NULL), TDICT_EHOOK);
  }
  td_fails(TDICT_EHOOK, "pin_memory of type thing returned TDICT_OK and no result", finish(TDICT_OK, NULL, gone, err));
  td_fails(TDICT_EIO, "pin_memory of type thing returned TDICT_EIO", finish(TDICT_EIO, NULL, none, err));
  td_fails(TDICT_EIO, "the disk is gone", finish(TDICT_EIO, &type, gone, err)); /* the error has no status */
  assert_string_equal(td_last_error.path, "inp");
  assert_int_equal(td_last_error.native, 5);
  assert_int_equal(finish(TDICT_EIO, NULL, gone, NULL), TDICT_EIO);
  td_ok(finish(TDICT_OK, &type, gone, err));
}

enum { THREADS = 4, ROUNDS = 100, REPEATS = 50 };
typedef struct shared {
  int ends, sum, marks[THREADS]; /* each thread writes its mark; the one that releases the object reads all marks */
} shared;
static void end_shared(void *self) {
  shared *s = self;
  s->ends++;
  for (int i = 0; i < THREADS; i++) s->sum += s->marks[i];
}
static const tdict_type shared_type = TD_TYPE(.name = "shared", .release = end_shared);

typedef struct job {
  tdict_tree *td; /* the thread owns a reference to `td` and one to `box` */
  tdict_box *box;
  int number, wrong;
} job;

static void *use(void *argument) {
  job *j = argument;
  void *object = NULL;
  for (int i = 0; i < ROUNDS; i++) {
    scoped_tree child = NULL;
    if (tdict_get_tree(j->td, "n", &child, NULL) != TDICT_OK) j->wrong++;
    child = tdict_retain(child);
    scoped_tree own = NULL; /* gets a copy of the child's node, which also holds the box */
    if (tdict_create(1, (const int64_t[]){2}, &own, NULL) != TDICT_OK) j->wrong++;
    if (tdict_set_tree(own, "copy", child, NULL) != TDICT_OK) j->wrong++;
    if (tdict_get_object(own, "copy.o", &shared_type, &object, NULL) != TDICT_OK) j->wrong++;
  }
  tdict_release(j->td);
  if (object) ((shared *)object)->marks[j->number] = 1 << j->number; /* ordered only by the box's reference count */
  tdict_box_release(j->box);
  return NULL;
}

/* Releases the box of a shared object on several threads. The last thread must call the release hook exactly once. */
static void count_across_threads(void) {
  shared s = {0};
  tdict_tree *td = help_tree_without_batch();
  td_put_tree(td, "n", help_tree_without_batch());
  td_ok(tdict_set_object(td, "n.o", &shared_type, &s, err));
  tdict_box *box = tdict_leaf_box(td_child(td, "n")->leaves[0]);
  pthread_t threads[THREADS];
  job jobs[THREADS];
  for (int i = 0; i < THREADS; i++) jobs[i] = (job){tdict_retain(td), tdict_box_retain(box), i, 0};
  for (int i = 0; i < THREADS; i++) threads[i] = td_start(use, &jobs[i]);
  tdict_release(td);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) assert_int_equal(jobs[i].wrong, 0);
  assert_int_equal(s.ends, 1);
  assert_int_equal(s.sum, (1 << THREADS) - 1);
}

CASE(box_references_are_thread_safe) {
  for (int i = 0; i < REPEATS; i++) count_across_threads();
}
