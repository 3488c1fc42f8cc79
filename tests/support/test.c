/* The main function of test programs: see test.h. */
#include "support/test.h"
#include "support/random.h"

enum { MAX_CASES = 128, MAX_ENDS = 4, SKIPPED = 77 };
static struct {
  const char *name;
  void (*run)(void);
} cases[MAX_CASES];
static int num_cases, num_ends;
static void (*ends[MAX_ENDS])(void);
static void (*chosen)(void);
static tdict_device device;
static bool skipped, ran;
static char **extra; /* command-line options: NAME, VALUE and so on, then NULL */
tdict_error td_last_error;

void td_register(const char *name, void (*run)(void)) {
  if (num_cases == MAX_CASES) abort();
  cases[num_cases].name = name;
  cases[num_cases++].run = run;
}

void td_at_end(void (*run)(void)) {
  if (num_ends == MAX_ENDS) abort();
  ends[num_ends++] = run;
}

void td_skip(const char *reason) {
  printf("skipped: %s\n", reason);
  skipped = true;
  skip();
  abort();
}

tdict_device td_device(void) { return device; }

tdict_context *td_context(const tdict_context_options *options) {
  tdict_context_options o = options ? *options : tdict_context_options_default();
  o.device = device;
  tdict_context *context = NULL;
  tdict_error err = {0};
  tdict_status status = tdict_context_create(&o, &context, &err);
  if (status == TDICT_ENODEVICE) td_skip(err.message);
  if (status != TDICT_OK) fail_msg("context: %s: %s", tdict_status_name(status), err.message);
  return context;
}

const char *td_option(const char *name) {
  for (char **at = extra; *at; at += 2)
    if (strcmp(at[0], name) == 0) return at[1];
  return NULL;
}

int64_t td_number(const char *name, int64_t otherwise) {
  const char *text = td_option(name);
  char *end = NULL;
  const int64_t number = text ? strtoll(text, &end, 10) : otherwise;
  if (text && (end == text || *end)) fail_msg("%s %s: wanted a number", name, text);
  return number;
}

void td_fill_random(void *bytes, size_t count, uint64_t seed) {
  unsigned char *p = bytes;
  rng r = {seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u};
  for (; count >= 8; count -= 8, p += 8) {
    const uint64_t word = next_random(&r);
    memcpy(p, &word, 8);
  }
  const uint64_t last = next_random(&r);
  if (count > 0) memcpy(p, &last, count);
}

static void run_chosen(void **state) {
  (void)state;
  ran = true;
  chosen();
  while (num_ends > 0) ends[--num_ends]();
}

int main(int argc, char **argv) {
  if (argc < 3 || argc % 2 == 0) {
    fprintf(stderr, "usage: %s CASE host|sim|cuda [--OPTION VALUE]...; cases:\n", argv[0]);
    for (int i = 0; i < num_cases; i++) fprintf(stderr, "  %s\n", cases[i].name);
    return 2;
  }
  extra = argv + 3;
  if (strcmp(argv[2], "host") == 0)
    device = tdict_cpu();
  else if (strcmp(argv[2], "sim") == 0)
    device = tdict_sim(0);
  else if (strcmp(argv[2], "cuda") == 0)
    device = tdict_cuda(0);
  else
    return fprintf(stderr, "no such device: %s\n", argv[2]), 2;
  for (int i = 0; i < num_cases; i++) {
    if (strcmp(cases[i].name, argv[1]) != 0) continue;
    chosen = cases[i].run;
    const struct CMUnitTest tests[] = {{argv[1], run_chosen, NULL, NULL, NULL}}; /* cmocka accepts only an array */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!ran) return fprintf(stderr, "the case was not run\n"), 1;
    return failed ? 1 : skipped ? SKIPPED : 0;
  }
  return fprintf(stderr, "no such case: %s\n", argv[1]), 2;
}
