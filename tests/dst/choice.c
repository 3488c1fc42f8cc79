/* Implements choices: a seeded generator, the settings of a seed, the lists of choices that scripts/dst records and
 * shortens, and the two ways to choose a thread. */
#include "dst/dst.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the generator ---- */

static uint64_t random_state;

uint64_t dst_random_bits(void) {
  uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* ---- the settings ---- */

static struct settings {
  bool is_pct;
  unsigned stay;      /* probability (in 1/256) that a decision keeps the current thread */
  uint64_t pct_steps; /* priorities change at random steps up to this step */
  int depth;
  uint64_t rarity[DST_NUM_KINDS]; /* on average, one call in this many fails; 0: none */
} settings;
static const char *const kind_names[DST_NUM_KINDS] = {"spurious", "early_timeout", "alloc", "thread", "driver", "io"};
static unsigned allowed; /* the allowed kinds, as bits */
static uint64_t num_happened[DST_NUM_KINDS], num_faults;

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text && text[0] ? strtoull(text, NULL, 10) : otherwise;
}

static bool is_named(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return true;
  return list && strcmp(list, "all") == 0;
}

/* ---- recorded choices ---- */

enum { READ_BYTES = 1 << 20 };
#define LIST_BYTES ((size_t)1 << 34) /* reserved address space */
/* A choice other than 0, identified by its thread and the number of earlier choices of this thread. */
typedef struct choice {
  uint32_t thread, unused;
  uint64_t count, value;
} choice;
static choice *recorded, *replayed;
static size_t num_recorded, num_replayed;
static bool is_replay;
static const char *record_path;

static int compare(const void *a, const void *b) {
  const choice *x = a, *y = b;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return x->count < y->count ? -1 : x->count > y->count;
}

/* Returns memory for a list. Uses mmap(), so that the addresses of the program's own memory do not change. */
static void *map_list(void) {
  void *list =
      DST_REAL(mmap)(NULL, LIST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (list == MAP_FAILED) dst_die("no memory for a list of choices");
  return list;
}

static void read_choices(const char *path) {
  const int fd = (int)dst_raw_open(path, O_RDONLY | O_CLOEXEC, 0);
  char *text = map_list(), *at = text;
  ssize_t count;
  if (fd < 0) dst_die("the list of choices %s cannot be opened", path);
  while ((count = DST_REAL(read)(fd, at, READ_BYTES)) > 0) at += count;
  DST_REAL(close)(fd);
  is_replay = true;
  replayed = map_list();
  for (at = text; *at; at += strspn(at, "\n")) {
    choice c = {.thread = (uint32_t)strtoul(at, &at, 10)};
    c.count = strtoul(at, &at, 10);
    c.value = strtoul(at, &at, 10);
    replayed[num_replayed++] = c;
  }
  DST_REAL(munmap)(text, LIST_BYTES);
  dst_scheduler_spare(true);
  qsort(replayed, num_replayed, sizeof *replayed, compare);
  dst_scheduler_spare(false);
}

static void record_choice(uint64_t count, uint64_t value) {
  if (!record_path || !value) return;
  recorded[num_recorded++] = (choice){.thread = (uint32_t)dst_self, .count = count, .value = value};
}

static uint64_t replay_choice(uint64_t count) {
  const choice key = {.thread = (uint32_t)dst_self, .count = count};
  const choice *found = num_replayed ? bsearch(&key, replayed, num_replayed, sizeof key, compare) : NULL;
  return found ? found->value : 0;
}

void dst_choice_write(void) {
  const int fd = record_path ? (int)dst_raw_open(record_path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
  char line[80];
  for (size_t i = 0; i < num_recorded && fd >= 0; i++) {
    const choice *c = &recorded[i];
    const int bytes = snprintf(line, sizeof line, "%u %lu %lu\n", c->thread, c->count, c->value);
    if (DST_REAL(write)(fd, line, (size_t)bytes) != bytes) break;
  }
  if (fd >= 0) DST_REAL(close)(fd);
}

/* ---- choices ---- */

uint64_t dst_choose(uint64_t n, unsigned stay) {
  const uint64_t count = dst_me()->num_choices++;
  uint64_t value;
  if (is_replay) {
    value = replay_choice(count) % n;
  } else {
    const uint64_t bits = dst_random_bits();
    value = (bits & 255) < stay ? 0 : (bits >> 8) % n;
  }
  record_choice(count, value);
  return value;
}

/* Returns the index of the thread with the highest priority. */
static int highest(const int *threads, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (dst_the.threads[threads[i]].priority > dst_the.threads[threads[best]].priority) best = i;
  return best;
}

/* Priority change number i sets the running thread's priority to FIRST_LOW + i. Initial priorities are higher. After
 * dst_give_way(), a thread's priority is lower. */
#define FIRST_LOW (UINT64_C(1) << 32)
enum { FAIR_STEPS = 1000 };
static uint64_t change_steps[16], lowest = FIRST_LOW;

int dst_choose_thread(const int *threads, int count, bool can_stay) {
  /* The algorithm of Burckhardt et al. (2010): the thread with the highest priority runs. At depth - 1 random steps,
   * the running thread gets a priority below all initial priorities. */
  for (int i = 0; i < settings.depth - 1; i++)
    if (settings.is_pct && dst_the.num_steps == change_steps[i])
      dst_the.threads[dst_the.current].priority = FIRST_LOW + (uint64_t)i;
  if (count == 1) return 0;
  /* After `pct_steps`, priorities no longer change, so a polling thread could starve the others. */
  if (settings.is_pct && dst_the.num_steps > settings.pct_steps && dst_the.num_steps % FAIR_STEPS == 0)
    dst_give_way(dst_the.current);
  if (!settings.is_pct || is_replay) return (int)dst_choose((uint64_t)count, can_stay ? settings.stay : 0);
  const int place = highest(threads, count);
  record_choice(dst_me()->num_choices++, (uint64_t)place);
  return place;
}

void dst_give_way(int thread) { dst_the.threads[thread].priority = --lowest; }

uint64_t dst_new_priority(void) { return dst_random_bits() | UINT64_C(1) << 63; }

/* ---- misfortunes ---- */

bool dst_misfortune(enum dst_misfortune kind) {
  if (!settings.rarity[kind] || !(allowed >> kind & 1)) return false;
  const uint64_t count = dst_me()->num_choices++;
  const bool happens = is_replay ? replay_choice(count) != 0 : dst_random_bits() % settings.rarity[kind] == 0;
  record_choice(count, happens);
  return happens;
}

void dst_misfortune_happened(enum dst_misfortune kind) {
  num_happened[kind]++;
  if (kind == DST_SPURIOUS || kind == DST_EARLY_TIMEOUT || kind == DST_IO) return;
  num_faults++;
  dst_record_misfortune(kind_names[kind]);
}

bool dst_call_fails(enum dst_misfortune kind) {
  if (!dst_misfortune(kind)) return false;
  dst_misfortune_happened(kind);
  return true;
}

DST_EXPORT bool dst_scheduler_misfortune(enum dst_misfortune kind);
bool dst_scheduler_misfortune(enum dst_misfortune kind) { return dst_active() && dst_call_fails(kind); }

DST_EXPORT void dst_scheduler_allow(unsigned kinds, bool is_allowed);
void dst_scheduler_allow(unsigned kinds, bool is_allowed) { allowed = is_allowed ? allowed | kinds : allowed & ~kinds; }

DST_EXPORT uint64_t dst_scheduler_num_faults(void);
uint64_t dst_scheduler_num_faults(void) { return num_faults; }

size_t dst_shorten(size_t bytes) {
  if (bytes < 2 || !dst_call_fails(DST_IO)) return bytes;
  return 1 + (size_t)dst_choose(bytes - 1, 0);
}

/* ---- start and end ---- */

/* Derives the settings from the seed. Half of the seeds use PCT. Each kind of misfortune is off in a quarter of the
 * seeds and rarer in half of them, so some runs have only a few kinds. */
static void settings_of_seed(void) {
  static const unsigned stays[] = {128, 192, 240, 252};
  static const uint64_t steps[] = {2000, 6000, 20000};
  static const int cpus[] = {2, 3, 4, 8};
  static const uint64_t rarities[DST_NUM_KINDS] = {100, 300, 400, 40, 200, 8}, factors[] = {0, 1, 4, 16};
  settings.is_pct = dst_random_bits() & 1;
  settings.stay = stays[dst_random_bits() % 4];
  settings.pct_steps = steps[dst_random_bits() % 3];
  settings.depth = 2 + (int)(dst_random_bits() % 4);
  dst_the.num_cpus = cpus[dst_random_bits() % 4];
  for (int i = 0; i < DST_NUM_KINDS; i++) settings.rarity[i] = rarities[i] * factors[dst_random_bits() % 4];
}

static void settings_of_environment(void) {
  const char *policy = getenv("DST_POLICY"), *off = getenv("DST_OFF"), *replay = getenv("DST_REPLAY");
  if (policy) settings.is_pct = strcmp(policy, "pct") == 0;
  settings.stay = (unsigned)number_of("DST_STAY", settings.stay);
  settings.depth = (int)number_of("DST_DEPTH", (uint64_t)settings.depth);
  if (settings.depth < 1 || settings.depth > 16) dst_die("DST_DEPTH is %d, wanted 1 to 16", settings.depth);
  settings.pct_steps = number_of("DST_STEPS", settings.pct_steps);
  dst_the.num_cpus = (int)number_of("DST_CPUS", (uint64_t)dst_the.num_cpus);
  dst_the.most_steps = number_of("DST_MAX", 20000000);
  dst_the.stop_step = number_of("DST_STOP", 0);
  dst_the.is_atomic = number_of("DST_ATOMIC", 1);
  for (int i = 0; i < DST_NUM_KINDS; i++) {
    char name[32];
    snprintf(name, sizeof name, "DST_RARITY_%s", kind_names[i]);
    settings.rarity[i] = is_named(off, kind_names[i]) ? 0 : number_of(name, settings.rarity[i]);
  }
  allowed = (unsigned)number_of("DST_ALLOWED", 1u << DST_SPURIOUS);
  record_path = getenv("DST_RECORD");
  if (record_path) recorded = map_list();
  if (replay) read_choices(replay);
}

void dst_choice_start(uint64_t seed) {
  random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
  settings_of_seed();
  settings_of_environment();
  for (int i = 0; i < settings.depth - 1; i++) change_steps[i] = 1 + dst_random_bits() % settings.pct_steps;
}

void dst_choice_report(void) {
  if (settings.is_pct)
    fprintf(stderr, "policy pct, depth %d in %lu steps", settings.depth, settings.pct_steps);
  else
    fprintf(stderr, "policy random, stays %u of 256", settings.stay);
  fprintf(stderr, ", %d processors; misfortunes:", dst_the.num_cpus);
  for (int i = 0; i < DST_NUM_KINDS; i++) fprintf(stderr, " %s %lu", kind_names[i], num_happened[i]);
  fputc('\n', stderr);
}
