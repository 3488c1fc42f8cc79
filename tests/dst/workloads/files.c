/* Tests saves and loads of trees, sometimes in the background, in a file system that may crash.
 *
 * Each thread has a file in one of the formats, saves new generations of a tree, and loads the file in several ways.
 * The workload records which generations each file may contain. A save that has succeeded must survive a crash. A save
 * that runs during a crash leaves either the old or the new tree. */
#include <dirent.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>

#include "dst/workloads/model.h"
#include "support/take.h"
#include "tdict/io.h"

enum { NUM_PLAYERS = 2, NUM_SAVES = 5, ROWS = 4, WIDTH = 30, MOST_GENERATIONS = 30 };

typedef struct format {
  const char *end;
  int32_t format;
  bool is_mixed, has_shards, has_checksums;
} format;
static const format formats[] = {
    {".safetensors", TDICT_FORMAT_SAFETENSORS, false, false, false},
    {".safetensors.index.json", TDICT_FORMAT_SAFETENSORS, false, true, false},
    {".memmap", TDICT_FORMAT_MEMMAP, false, false, false},
    {".tdz", TDICT_FORMAT_TDZ, false, false, true},
    {".consolidated", TDICT_FORMAT_CONSOLIDATED, true, false, false},
    {".npz", TDICT_FORMAT_NPZ, true, false, true},
};
enum { NUM_FORMATS = sizeof formats / sizeof formats[0] };

typedef struct stage stage;
typedef struct player {
  stage *stage;
  const format *format;
  char path[200];
  int64_t generation;
  uint32_t live;    /* generations that the file may have now, as bits; bit 0: no file */
  uint32_t durable; /* generations that the file may have after a crash */
} player;
struct stage {
  model_world world;
  player players[NUM_PLAYERS];
  bool had_crash;
};

static model_rows rows_of(int64_t generation) { return model_rows_of(generation, 0, ROWS, WIDTH); }

/* ---- the record of a file ---- */

static void note_start(player *p, int64_t generation) {
  p->live |= 1u << generation;
  if (!dst_has_crashed()) p->durable |= 1u << generation;
}
/* Records that a save has succeeded. The save has overwritten the results of all earlier saves of the file. */
static void note_success(player *p, int64_t generation) {
  const uint32_t later = ~((1u << generation) - 1);
  p->live &= later;
  if (!dst_has_crashed()) p->durable &= later;
}
/* Records that a save has failed. The file may have the new generation only if the status is TDICT_EIO. */
static void note_failure(player *p, int64_t generation, tdict_status status) {
  if (status == TDICT_EIO) return;
  p->live &= ~(1u << generation);
  p->durable &= ~(1u << generation);
}

/* ---- saves ---- */

typedef struct progress {
  _Atomic(uint64_t) done;
  bool stops; /* after half of the bytes, the progress function returns false, which cancels the call */
} progress;
static bool report(void *user, uint64_t done, uint64_t total) {
  progress *p = user;
  model_true(done >= atomic_load(&p->done) && done <= total);
  atomic_store(&p->done, done);
  return !p->stops || done < total / 2;
}

static tdict_save_options roll_save_options(const player *p, progress *reported) {
  tdict_save_options o = td_with(tdict_save_options, format = p->format->format);
  if (dst_roll(6) == 0) o.max_bytes_per_second = 1000000 << dst_roll(12);
  if (p->format->has_shards) o.max_shard_bytes = 300;
  o.allows_gap = p->format->format == TDICT_FORMAT_MEMMAP;
  *reported = (progress){.stops = dst_roll(6) == 0};
  if (dst_roll(2)) {
    o.progress = report;
    o.user = reported;
  }
  return o;
}

/* Makes the tree of a generation on the host or on the device. Returns NULL after an injected fault. */
static tdict_tree *make_tree(player *p, int64_t generation, bool on_device) {
  const model_rows rows = rows_of(generation);
  tdict_tree *td = model_tree(&rows), *there = NULL;
  if (!td || !on_device) return td;
  (void)model_ok(tdict_to_device(p->stage->world.context, td, tdict_sim(0), NULL, &there, model_error()));
  tdict_release(td);
  return there;
}

static void save(player *p, const tdict_tree *td, int64_t generation) {
  progress reported;
  const tdict_save_options o = roll_save_options(p, &reported);
  const uint32_t allowed = o.progress && reported.stops ? 1u << TDICT_ECANCELLED : 0;
  note_start(p, generation);
  if (model_may(allowed, tdict_save(p->stage->world.context, p->path, td, &o, model_error())))
    note_success(p, generation);
  else
    note_failure(p, generation, model_status());
}

/* Saves the next generation, while an earlier save of the same file may still run. */
static void save_behind(player *p) {
  const int64_t generation = ++p->generation;
  tdict_tree *td = make_tree(p, generation, dst_roll(2));
  tdict_future *saving = NULL;
  tdict_save_options o =
      td_with(tdict_save_options, format = p->format->format, allows_gap = p->format->format == TDICT_FORMAT_MEMMAP);
  if (p->format->has_shards) o.max_shard_bytes = 300;
  if (!td) return;
  note_start(p, generation);
  if (model_ok(tdict_save_async(p->stage->world.context, p->path, td, &o, &saving, model_error())) &&
      model_ok(tdict_future_wait(saving, NULL, model_error())))
    note_success(p, generation);
  else
    note_failure(p, generation, model_status());
  td_release(saving, td);
}

/* Saves in the background. The source may change as soon as the snapshot is complete. */
static void save_async(player *p, tdict_tree *td, int64_t generation, bool on_device) {
  progress reported;
  tdict_save_options o = roll_save_options(p, &reported);
  const model_rows other = rows_of(MOST_GENERATIONS + 1);
  const bool will_cancel = dst_roll(4) == 0;
  const uint32_t allowed = (o.progress && reported.stops) || will_cancel ? 1u << TDICT_ECANCELLED : 0;
  tdict_future *saving = NULL;
  o.snapshot = dst_roll(2) ? TDICT_SNAPSHOT_AUTO : TDICT_SNAPSHOT_HOST;
  note_start(p, generation);
  if (!model_ok(tdict_save_async(p->stage->world.context, p->path, td, &o, &saving, model_error()))) {
    note_failure(p, generation, model_status());
    return;
  }
  if (dst_roll(3) == 0) save_behind(p);
  if (will_cancel) tdict_future_cancel(saving);
  if (!on_device && dst_roll(2)) {
    (void)model_may(allowed, tdict_future_wait_source(saving, model_error()));
    model_true(model_write(td, &other));
  }
  if (model_may(allowed, tdict_future_wait(saving, NULL, model_error())))
    note_success(p, generation);
  else
    note_failure(p, generation, model_status());
  model_true(tdict_future_is_ready(saving));
  tdict_future_release(saving);
}

/* ---- loads ---- */

static model_look look_of(const player *p, const tdict_tree *td, tdict_device device) {
  model_look look = model_plain_look();
  look.device = device;
  look.has_device = tdict_get_device(td, NULL);
  look.is_locked = tdict_is_locked(td);
  look.is_mixed = p->format->is_mixed;
  look.is_pinned = -1;
  return look;
}
/* Checks that a loaded tree is complete and has a possible generation. Afterward, only this generation is possible. */
static void check_loaded(player *p, const tdict_tree *td, uint32_t *possible) {
  const int64_t generation = model_generation(td);
  const model_rows rows = rows_of(generation);
  const model_look look = look_of(p, td, tdict_cpu());
  if (generation < 1 || generation > MOST_GENERATIONS || !(*possible >> generation & 1))
    dst_fail("%s has generation %lld, which is not in the set 0x%x", p->path, (long long)generation, *possible);
  model_check(td, &rows, &look);
  *possible = 1u << generation;
}
/* Returns the set of errors that a load may return: TDICT_EIO if the file may be missing. */
static uint32_t allowed_of(uint32_t possible) { return possible & 1 ? 1u << TDICT_EIO : 0; }

static void load(player *p) {
  tdict_load_options o = tdict_load_options_default();
  tdict_tree *td = NULL, *host = NULL;
  const bool on_device = dst_roll(2);
  progress reported = {.stops = dst_roll(6) == 0};
  const uint32_t allowed = allowed_of(p->live) | (reported.stops ? 1u << TDICT_ECANCELLED : 0);
  o.progress = report;
  o.user = &reported;
  tdict_future *f = NULL;
  tdict_context *context = p->stage->world.context;
  const tdict_device device = on_device ? tdict_sim(0) : tdict_cpu();
  bool is_done;
  if (dst_roll(2)) {
    is_done = model_may(allowed, tdict_load(context, p->path, device, &o, &td, model_error()));
  } else {
    is_done = model_may(allowed, tdict_load_async(context, p->path, device, &o, &f, model_error())) &&
              model_may(allowed, tdict_future_wait(f, &td, model_error()));
    if (f) (void)!tdict_future_wait(f, NULL, NULL); /* the load must end first, because it uses `reported` */
    tdict_future_release(f);
  }
  if (!is_done) return;
  model_calm(true);
  model_true(tdict_to_device(context, td, tdict_cpu(), NULL, &host, NULL) == TDICT_OK);
  model_calm(false);
  check_loaded(p, host, &p->live);
  td_release(host, td);
}

static void load_into(player *p) {
  tdict_tree *dst = make_tree(p, MOST_GENERATIONS + 1, false);
  if (!dst) return;
  if (model_may(allowed_of(p->live), td_load_into(p->stage->world.context, dst, p->path, NULL, model_error())))
    check_loaded(p, dst, &p->live);
  tdict_release(dst);
}

static void load_rows(player *p) {
  tdict_tree *td = NULL;
  tdict_load_options o = td_with(tdict_load_options, first_row = 1, num_rows = 2);
  if (!model_may(allowed_of(p->live),
                 tdict_load(p->stage->world.context, p->path, tdict_cpu(), &o, &td, model_error())))
    return;
  const int64_t generation = model_generation(td);
  const model_rows rows = model_rows_of(generation, 1, 2, WIDTH);
  const model_look look = look_of(p, td, tdict_cpu());
  model_true(p->live >> generation & 1);
  model_check(td, &rows, &look);
  tdict_release(td);
}

static void open_file(player *p, uint32_t *possible) {
  tdict_tree *td = NULL;
  tdict_open_options o = td_with(tdict_open_options, check_crc = p->format->has_checksums);
  if (!model_may(allowed_of(*possible), tdict_open(p->path, &o, &td, model_error()))) {
    if (model_status() == TDICT_EIO && !model_was_unlucky()) *possible = 1;
    return;
  }
  check_loaded(p, td, possible);
  tdict_release(td);
}

/* ---- the threads ---- */

static void play_once(player *p) {
  const bool on_device = dst_roll(2);
  const int64_t generation = ++p->generation;
  tdict_tree *td = make_tree(p, generation, on_device);
  if (td && dst_roll(2))
    save(p, td, generation);
  else if (td)
    save_async(p, td, generation, on_device);
  tdict_release(td);
  switch (dst_roll(5)) {
  case 0:
    load(p);
    break;
  case 1:
    load_into(p);
    break;
  case 2:
    load_rows(p);
    break;
  case 3:
    open_file(p, &p->live);
    break;
  default:
    break;
  }
}
static void play(int number, void *data) {
  stage *s = data;
  for (int i = 0; i < NUM_SAVES; i++) play_once(&s->players[number]);
}
static void play_all(void *data) { model_run(NUM_PLAYERS, play, data); }

/* Appends rows to a saved memmap folder, which must then have either all of the new rows or none. */
static void append(stage *s) {
  const model_rows first = model_rows_of(1, 0, 3, WIDTH), more = model_rows_of(1, 3, 2, WIDTH);
  model_rows rows = first;
  char path[200];
  tdict_save_options o = tdict_save_options_default();
  tdict_append_options append_options = tdict_append_options_default();
  scoped_tree td = model_tree(&first), added = model_tree(&more), back = NULL;
  snprintf(path, sizeof path, "%s/appended", dst_folder());
  o.format = TDICT_FORMAT_MEMMAP;
  o.allows_gap = true;
  append_options.without_flush = dst_roll(2);
  if (td && added && model_ok(tdict_save(s->world.context, path, td, &o, model_error()))) {
    if (model_ok(tdict_append(s->world.context, path, added, &append_options, model_error())))
      rows = model_rows_of(1, 0, 5, WIDTH);
    model_calm(true);
    const tdict_status status = tdict_open(path, NULL, &back, model_error());
    model_calm(false);
    if (status == TDICT_OK) {
      const player p = {.format = &formats[2]};
      const model_look look = look_of(&p, back, tdict_cpu());
      model_check(back, &rows, &look);
    } else {
      model_true(model_was_unlucky());
    }
  }
}

/* Checks that no temporary file is left. */
static void check_folder(const stage *s) {
  if (s->had_crash || model_was_unlucky()) return;
  DIR *folder = opendir(dst_folder());
  model_true(folder);
  for (const struct dirent *e; (e = readdir(folder));)
    if (e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      dst_fail("the folder still has the file %s", e->d_name);
  closedir(folder);
}
static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
  (void)about, (void)type;
  return where->level ? remove(path) : 0;
}

static void save_and_load(stage *s) {
  static int number_of_file;
  for (int i = 0; i < NUM_PLAYERS; i++) {
    player *p = &s->players[i];
    *p = (player){.stage = s, .format = &formats[dst_roll(NUM_FORMATS)], .live = 1, .durable = 1};
    snprintf(p->path, sizeof p->path, "%s/f%d%s", dst_folder(), number_of_file++, p->format->end);
  }
  s->had_crash = dst_crash(play_all, s);
  model_calm(true);
  for (int i = 0; i < NUM_PLAYERS; i++) {
    player *p = &s->players[i];
    if (s->had_crash) p->live = p->durable;
    open_file(p, &p->live);
  }
  model_calm(false);
  if (s->had_crash) play_all(s); /* these saves also remove files that the crash left */
  append(s);
  check_folder(s);
  if (!dst_is_simulated()) nftw(dst_folder(), remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void dst_workload(void) {
  stage s = {0};
  model_settings settings = model_settings_default();
  model_begin();
  if (model_open(&s.world, &settings)) {
    save_and_load(&s);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
}
