/* Tests the timeline of transfers. A Python script parses the trace as JSON, and the test checks the events. */
#include "engine/promises.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "support/comma_locale.h"
#include "support/things.h"

/* A script that reads the file, checks its tracks, and prints one fact on each line. */
static const char reader[] =
    "import json, sys\n"
    "data = json.load(open(sys.argv[1]))\n"
    "events, other = data['traceEvents'], data['otherData']\n"
    "tracks, names, facts, ends, whole = {}, {}, {}, {}, set()\n"
    "def add(name, n): facts[name] = facts.get(name, 0) + n\n"
    "for e in events:\n"
    "    key = (e['pid'], e['tid'])\n"
    "    if e['ph'] == 'M':\n"
    "        if e['name'] == 'thread_name': names[key] = e['args']['name']\n"
    "    elif e['ph'] == 'X':\n"
    "        assert e['ts'] >= 0 and e['dur'] >= 0, e\n"
    "        assert key in names, ('a slice on a track without a name', e)\n"
    "        tracks.setdefault(key, []).append((e['ts'], e['ts'] + e['dur'], e))\n"
    "        where = 'stream_' if e['pid'] >= 10 else ''\n"
    "        add(where + e['name'], 1)\n"
    "        add(where + e['name'] + '_bytes', e['args']['bytes'])\n"
    "    elif e['ph'] == 'b': ends[e['id']] = e['ts']; whole.add(e['id']); "
    "add('whole', 1); add('whole_bytes', e['args']['bytes'])\n"
    "    elif e['ph'] == 'e': assert ends.pop(e['id']) <= e['ts']\n"
    "assert not ends, ends\n"
    "first_submit = {}\n"
    "for key, slices in tracks.items():\n"
    "    open_ends = []\n"
    "    for begin, end, e in sorted(slices, key=lambda s: (s[0], -s[1])):\n"
    "        while open_ends and open_ends[-1] <= begin + 0.0015: open_ends.pop()\n"
    "        assert not open_ends or end <= open_ends[-1] + 0.0015, ('slices cross', key, e)\n"
    "        assert not open_ends or key[0] < 10, ('slices of a stream overlap', key, e)\n"
    "        open_ends.append(end)\n"
    "        if e['name'] == 'submit': first_submit[e['args']['transfer']] = min(begin, "
    "first_submit.get(e['args']['transfer'], begin))\n"
    "for key, slices in tracks.items():\n"
    "    for begin, end, e in slices:\n"
    "        if key[0] < 10 or e['args']['transfer'] not in whole: continue "
    "# part of the transfer is not in the trace, so its submit slice may be missing\n"
    "        assert begin >= first_submit[e['args']['transfer']], ('before it was queued', e)\n"
    "facts.update(transfers=other['transfers'], dropped=other['dropped_events'], "
    "unfinished=other['unfinished_events'])\n"
    "facts['workers'] = sum(n.startswith('worker') for n in names.values())\n"
    "facts['callers'] = sum(n.startswith('caller') for n in names.values())\n"
    "facts['streams'] = sum(n.startswith('stream') for n in names.values())\n"
    "for name, value in facts.items(): print(name, value)\n";

typedef struct facts {
  char text[4096];
} facts;

/* Writes the trace to a file, runs the script on the file, and returns the facts that the script prints. */
static facts read_text(const char *text, size_t bytes) {
  char path[] = "/tmp/tdict-trace-XXXXXX", script[] = "/tmp/tdict-trace-XXXXXX", command[128];
  int a = mkstemp(path), b = mkstemp(script);
  assert_true(a >= 0 && b >= 0);
  assert_int_equal(write(a, text, bytes), bytes);
  assert_int_equal(write(b, reader, sizeof reader - 1), sizeof reader - 1);
  close(a);
  close(b);
  snprintf(command, sizeof command, "python3 -B %s %s", script, path);
  FILE *out = popen(command, "r");
  assert_non_null(out);
  facts f = {""};
  size_t n = fread(f.text, 1, sizeof f.text - 1, out);
  f.text[n] = 0;
  int code = pclose(out);
  unlink(path);
  unlink(script);
  if (code != 0) fail_msg("python ended with status %d for a trace of %zu bytes", code, bytes);
  return f;
}

static long long fact(const facts *f, const char *name) {
  size_t length = strlen(name);
  for (const char *line = f->text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (strncmp(line, name, length) == 0 && line[length] == ' ') return strtoll(line + length, NULL, 10);
  return 0;
}

typedef struct text {
  char *bytes;
  size_t count;
  int pieces;
  tdict_status answer;
} text;
static tdict_status take_text(void *user, const char *bytes, size_t count) {
  text *t = user;
  t->pieces++;
  if (t->answer != TDICT_OK) return t->answer;
  char *grown = realloc(t->bytes, t->count + count + 1);
  if (!grown) return TDICT_ENOMEM;
  memcpy(grown + t->count, bytes, count);
  t->bytes = grown;
  t->count += count;
  return TDICT_OK;
}

static facts read_trace(const place *p) {
  text t = {0};
  td_ok(tdict_trace_write_to(p->c, take_text, &t, err));
  facts f = read_text(t.bytes, t.count);
  free(t.bytes);
  return f;
}

static void start(const place *p, int64_t max_events) {
  tdict_trace_options o = tdict_trace_options_default();
  if (max_events) o.max_events = max_events;
  td_ok(tdict_trace_start(p->c, &o, err));
}

enum { LEAVES = 24, LEAF = 256 << 10, TOTAL = LEAVES * LEAF };
/* Makes a tree whose leaf sizes are multiples of 256 bytes, so that there are no gaps between the leaves. */
static tdict_tree *even_tree(tdict_memory *memory) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < LEAVES; i++) td_put(td, td_text("leaf%d", i), new_bytes(LEAF, memory));
  return td;
}

static tdict_tree *move_in(const place *p, const tdict_tree *src, tdict_device device, int32_t num_threads) {
  tdict_transfer_options o = threads(num_threads);
  tdict_tree *out = td_made(tree, tdict_to_device(p->c, src, device, &o, &made, err));
  return out;
}

GPU_CASE(trace_holds_every_slice) {
  scoped_place p = place_open(4);
  scoped_tree src = even_tree(NULL), pinned = even_tree(tdict_pinned_memory(p.c)), a = NULL, b = NULL, back = NULL;
  start(&p, 0);
  a = move_in(&p, src, p.device, 3);
  facts f = read_trace(&p); /* written while recording continues */
  assert_int_equal(fact(&f, "transfers"), 1);
  assert_int_equal(fact(&f, "whole"), 1);
  assert_int_equal(fact(&f, "whole_bytes"), TOTAL);
  assert_int_equal(fact(&f, "plan"), 1);
  assert_int_equal(fact(&f, "plan_bytes"), TOTAL);
  assert_int_equal(fact(&f, "copy_bytes"), TOTAL);
  assert_int_equal(fact(&f, "submit_bytes"), TOTAL);
  assert_int_equal(fact(&f, "stream_transfer_bytes"), TOTAL);
  assert_true(fact(&f, "copy") >= fact(&f, "stream_transfer")); /* several threads may fill one slot */
  assert_true(fact(&f, "workers") >= 1 && fact(&f, "workers") <= 3);
  assert_int_equal(fact(&f, "callers"), 1);
  assert_true(fact(&f, "streams") >= 1 && fact(&f, "streams") <= 3);
  assert_int_equal(fact(&f, "dropped") + fact(&f, "unfinished"), 0);
  back = move_in(&p, a, tdict_cpu(), 2);
  b = move_in(&p, pinned, p.device, 1);
  tdict_trace_stop(p.c);
  f = read_trace(&p);
  assert_int_equal(fact(&f, "transfers"), 3);
  assert_int_equal(fact(&f, "copy_bytes"), 2 * TOTAL); /* the driver reads the pinned leaves directly */
  assert_int_equal(fact(&f, "stream_transfer_bytes"), 3 * TOTAL);
  assert_int_equal(fact(&f, "whole_bytes"), 3 * TOTAL);
  char path[] = "/tmp/tdict-trace-XXXXXX"; /* the file gets the same text as the callback */
  close(mkstemp(path));
  td_ok(tdict_trace_write(p.c, path, err));
  text t = {0};
  td_ok(tdict_trace_write_to(p.c, take_text, &t, err));
  char *copy = malloc(t.count + 1);
  FILE *file = fopen(path, "r");
  assert_non_null(copy);
  assert_non_null(file);
  assert_int_equal(fread(copy, 1, t.count + 1, file), t.count);
  assert_memory_equal(copy, t.bytes, t.count);
  fclose(file);
  unlink(path);
  free(copy);
  free(t.bytes);
}

/* In a locale with a decimal comma, the numbers in the trace still have a decimal point. */
GPU_CASE(trace_is_json_in_any_locale) {
  td_comma_locale_set();
  scoped_place p = place_open(2);
  scoped_tree src = even_tree(NULL);
  start(&p, 0);
  tdict_release(move_in(&p, src, p.device, 1));
  text t = {0};
  td_ok(tdict_trace_write_to(p.c, take_text, &t, err));
  td_comma_locale_reset();
  const facts seen = read_text(t.bytes, t.count);
  assert_int_equal(fact(&seen, "stream_transfer_bytes"), TOTAL);
  assert_int_equal(fact(&seen, "copy_bytes"), TOTAL);
  free(t.bytes);
}

/* Writes the trace and stops recording while transfers run. */
GPU_CASE(trace_is_written_while_recording) {
  scoped_place p = place_open(3);
  scoped_tree src = even_tree(NULL);
  for (int round = 0; round < 6; round++) {
    tdict_future *f[4];
    start(&p, 0);
    for (int i = 0; i < 4; i++) f[i] = move_async(&p, src, p.device, NULL);
    facts seen = read_trace(&p);
    assert_true(fact(&seen, "copy_bytes") <= 4LL * TOTAL);
    if (round % 2) tdict_trace_stop(p.c);
    for (int i = 0; i < 4; i++) tdict_release(finish(f[i]));
    seen = read_trace(&p);
    if (round % 2 == 0) assert_int_equal(fact(&seen, "stream_transfer_bytes"), 4LL * TOTAL);
    tdict_trace_stop(p.c);
  }
}

GPU_CASE(trace_shows_hooks_and_callers) {
  scoped_place p = place_open(2);
  scoped_tree src = new_tree(), out = NULL;
  td_ok(tdict_set_object(src, "thing", &thing_hooked, thing_create(new_bytes(4096, NULL), new_bytes(64, NULL)), err));
  td_put(src, "leaf", new_bytes(1024, NULL));
  start(&p, 0);
  out = move_in(&p, src, p.device, 0);
  facts f = read_trace(&p);
  assert_true(fact(&f, "hook") >= 1);
  assert_true(fact(&f, "transfers") >= 1); /* hooks start transfers */
  assert_int_equal(fact(&f, "callers"), 1);
  assert_int_equal(fact(&f, "workers"), 0);
}

GPU_CASE(trace_counts_what_it_drops) {
  scoped_place p = place_open(2);
  scoped_tree src = even_tree(NULL);
  start(&p, 16);
  for (int i = 0; i < 4; i++) tdict_release(move_in(&p, src, p.device, 2));
  facts f = read_trace(&p);
  long long kept = fact(&f, "plan") + fact(&f, "copy") + fact(&f, "submit") + fact(&f, "wait") +
                   fact(&f, "stream_transfer") + fact(&f, "whole") + fact(&f, "unfinished");
  assert_int_equal(kept, 16);
  assert_true(fact(&f, "dropped") >= 4);
  assert_int_equal(fact(&f, "transfers"), 4);
}

GPU_CASE(trace_can_be_restarted) {
  scoped_place p = place_open(2);
  scoped_tree src = even_tree(NULL);
  tdict_trace_stop(p.c);
  tdict_trace_stop(NULL);
  for (int i = 0; i < 3; i++) tdict_release(move_in(&p, src, p.device, 2));
  start(&p, 0);
  tdict_release(move_in(&p, src, p.device, 2));
  tdict_trace_stop(p.c);
  tdict_release(move_in(&p, src, p.device, 2));
  facts f = read_trace(&p);
  assert_int_equal(fact(&f, "transfers"), 1);
  assert_int_equal(fact(&f, "whole"), 1);
  const int64_t held = td_device_counts(p.c, p.device).num_events, batches = fact(&f, "stream_transfer");
  assert_in_range(batches, 1, TOTAL);
  start(&p, 0); /* releases the events of the first recording */
  assert_true(td_device_counts(p.c, p.device).num_events <=
              held - 2 * batches); /* each batch of copies held two events */
  f = read_trace(&p);
  assert_int_equal(fact(&f, "transfers") + fact(&f, "plan"), 0);
}

SIM_CASE(trace_skips_transfers_started_before) {
  scoped_place p = place_open(2);
  scoped_tree src = even_tree(NULL);
  hold(&p);
  tdict_future *f = move_async(&p, src, p.device, NULL);
  start(&p, 0);
  resume(&p);
  tdict_release(finish(f));
  facts seen = read_trace(&p);
  assert_int_equal(fact(&seen, "transfers") + fact(&seen, "copy") + fact(&seen, "stream_transfer"), 0);
}

SIM_CASE(trace_leaves_out_unfinished_copies) {
  scoped_place p = place_open(2);
  scoped_tree src = new_tree();
  td_put(src, "leaf", new_bytes(LEAF, NULL));
  start(&p, 0);
  hold(&p);
  tdict_transfer_options o = threads(0);
  tdict_future *f = move_async(&p, src, p.device, &o); /* the caller queues the copy */
  facts seen = read_trace(&p);
  assert_int_equal(fact(&seen, "copy_bytes"), LEAF);
  assert_int_equal(fact(&seen, "stream_transfer"), 0);
  assert_true(fact(&seen, "unfinished") >= 1);
  resume(&p);
  tdict_release(finish(f));
  seen = read_trace(&p);
  assert_int_equal(fact(&seen, "stream_transfer_bytes"), LEAF);
  assert_int_equal(fact(&seen, "unfinished"), 0);
}

GPU_CASE(trace_outlives_its_context) {
  place p = place_open(2);
  tdict_tree *src = even_tree(NULL);
  start(&p, 0);
  tdict_future *f = move_async(&p, src, p.device, NULL);
  tdict_release(src);
  place_close(&p); /* waits for the transfer, which then releases the recording */
  tdict_release(finish(f));
}

GPU_CASE(trace_refuses) {
  scoped_place p = place_open(2);
  text t = {0};
  td_fails(TDICT_EINVAL, "context is NULL", tdict_trace_start(NULL, NULL, err));
  td_fails(TDICT_EINVAL, "nothing was recorded", tdict_trace_write(p.c, "/tmp/none", err));
  td_fails(TDICT_EINVAL, "nothing was recorded", tdict_trace_write_to(p.c, take_text, &t, err));
  tdict_trace_options o = td_with(tdict_trace_options, max_events = 15);
  td_fails(TDICT_EINVAL, "max_events is 15", tdict_trace_start(p.c, &o, err));
  o.max_events = (1 << 24) + 1;
  td_fails(TDICT_EINVAL, "wanted 16 to 16777216", tdict_trace_start(p.c, &o, err));
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "struct_size is 3", tdict_trace_start(p.c, &o, err));
  td_ok(tdict_trace_start(p.c, NULL, err));
  td_fails(TDICT_EINVAL, "a recording is on", tdict_trace_start(p.c, NULL, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_trace_write(p.c, NULL, err));
  td_fails(TDICT_EINVAL, "write is NULL", tdict_trace_write_to(p.c, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_trace_write(NULL, "/tmp/none", err));
  td_fails(TDICT_EIO, "/nowhere/at/all", tdict_trace_write(p.c, "/nowhere/at/all", err));
  assert_true(td_last_error.native != 0);
  td_fails(TDICT_EIO, "/dev/full", tdict_trace_write(p.c, "/dev/full", err));
  t.answer = TDICT_ENOTFOUND;
  td_fails(TDICT_ENOTFOUND, "the write function failed", tdict_trace_write_to(p.c, take_text, &t, err));
  assert_int_equal(t.pieces, 1); /* the function is not called again */
}

GPU_CASE(trace_without_memory) {
  scoped_place p = place_open(2);
  td_fail_alloc(0, true);
  tdict_status status = tdict_trace_start(p.c, NULL, &td_last_error);
  td_fail_alloc_stop();
  assert_int_equal(status, TDICT_ENOMEM);
  td_fails(TDICT_EINVAL, "nothing was recorded", tdict_trace_write(p.c, "/tmp/none", err));
  td_ok(tdict_trace_start(p.c, NULL, err));
  text t = {0};
  td_fail_alloc(0, true);
  status = tdict_trace_write_to(p.c, take_text, &t, &td_last_error);
  td_fail_alloc_stop();
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(t.pieces, 0);
}

GPU_CASE(trace_in_a_fork) {
  scoped_place p = place_open(2);
  start(&p, 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    text t = {0};
    tdict_trace_stop(p.c);
    bool good = tdict_trace_start(p.c, NULL, NULL) == TDICT_EFORKED;
    good = tdict_trace_write(p.c, "/tmp/none", NULL) == TDICT_EFORKED && good;
    good = tdict_trace_write_to(p.c, take_text, &t, NULL) == TDICT_EFORKED && good;
    _exit(good ? 0 : 1);
  }
  int code = -1;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_int_equal(code, 0);
}

CASE(trace_refuses_a_fifo) {
  char path[] = "/tmp/tdict-trace-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  tdict_context *c = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu()), &c, err));
  td_ok(tdict_trace_start(c, NULL, err));
  alarm(30); /* a blocking open() would wait for a reader forever */
  td_fails(TDICT_EFORMAT, "is a FIFO, wanted a regular file", tdict_trace_write(c, path, err));
  alarm(0);
  assert_string_equal(td_last_error.path, path);
  tdict_context_destroy(c);
  unlink(path);
}
