/* tdict-costs: runs each operation of costs_ops.c once. scripts/costs runs it under callgrind to count the instructions
 * of the functions whose names begin with cost_. With --calls, the program itself counts the system calls of these
 * functions. main() owns the data. Thread rule: one thread. */
#include "costs.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../program/output.h"
#include "tdict/view.h"

static const tdict_field fields[] = {{"a", TDICT_F32, 1, {17}},
                                     {"b", TDICT_F32, 1, {6}},
                                     {"c", TDICT_F32, 0, {0}},
                                     {"d", TDICT_F32, 0, {0}},
                                     {"e", TDICT_BOOL, 0, {0}}};

/* Makes a tree of `fields`. Its batch size is the first `ndim` values of [rows, columns]. */
static tdict_status make_tree(cost_job *job, int ndim, int64_t rows, int64_t columns, tdict_tree **out) {
  const int64_t batch[2] = {rows, columns};
  return tdict_create_from(fields, 5, ndim, batch, NULL, out, &job->err);
}

/* Makes `tensors`, the trees that contain them (wide, nested, dotted, deep), and `other` with tensors of its own. */
static tdict_status prepare_leaves(cost_job *job) {
  static const int64_t shape[2] = {2, 4}, batch[1] = {2};
  tdict_error *err = &job->err;
  tdict_tree **made[] = {&job->wide, &job->other, &job->nested, &job->dotted, &job->deep};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < 5 && status == TDICT_OK; i++) status = tdict_create(1, batch, made[i], err);
  for (int i = 0; i < job->leaves && status == TDICT_OK; i++) {
    scoped_tensor twin = NULL;
    char dotted[COST_KEY + 8];
    snprintf(job->keys[i], COST_KEY, "key%d", i);
    snprintf(job->names[i], COST_KEY, "g%d.k%d", i / 8, i % 8);
    snprintf(dotted, sizeof dotted, "g%d/k%d", i / 8, i % 8);
    job->paths[i] = job->names[i];
    job->fields[i] = (tdict_field){job->names[i], TDICT_F32, 0, {0}};
    status = tdict_tensor_zeros(TDICT_F32, 2, shape, NULL, &job->tensors[i], err);
    if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_F32, 2, shape, NULL, &twin, err);
    if (status == TDICT_OK) status = tdict_set(job->wide, job->keys[i], job->tensors[i], err);
    if (status == TDICT_OK) status = tdict_set(job->other, job->keys[i], twin, err);
    if (status == TDICT_OK) status = tdict_set(job->nested, job->names[i], job->tensors[i], err);
    if (status == TDICT_OK) status = tdict_set(job->dotted, dotted, job->tensors[i], err);
  }
  return status == TDICT_OK ? tdict_set(job->deep, "next.obs.pixels", job->tensors[0], err) : status;
}

/* Makes the trees of rows, the mask, the strip, the row positions and the dataset. */
static tdict_status prepare_row_trees(cost_job *job) {
  static const int64_t rows[1] = {COST_ROWS};
  static const int turn[2] = {1, 0};
  const int64_t strip[2] = {job->picked, 16};
  tdict_error *err = &job->err;
  tdict_tensor *flat = NULL;
  tdict_status status = make_tree(job, 1, COST_ROWS, 0, &job->table);
  if (status == TDICT_OK) status = make_tree(job, 1, job->picked, 0, &job->part);
  if (status == TDICT_OK) status = make_tree(job, 1, job->picked, 0, &job->step);
  if (status == TDICT_OK) status = make_tree(job, 2, job->picked, 8, &job->square);
  if (status == TDICT_OK) status = tdict_get(job->part, "c", &job->column, err);
  if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_BOOL, 1, rows, NULL, &job->mask, err);
  if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_F32, 2, strip, NULL, &flat, err);
  if (status == TDICT_OK) status = tdict_tensor_permute(flat, 2, turn, &job->strip, err);
  tdict_tensor_release(flat);
  if (status != TDICT_OK) return status;
  unsigned char *mask = tdict_tensor_data(job->mask);
  for (int64_t i = 0; i < job->picked; i++) mask[job->positions[i] = i * 37 % COST_ROWS] = 1;
  return tdict_dataset_from_tree(job->table, &job->dataset, err);
}

static tdict_status prepare_items(cost_job *job) {
  tdict_status status = make_tree(job, 1, job->items, 0, &job->stacked);
  if (status == TDICT_OK) status = make_tree(job, 1, job->items / 2 * 3, 0, &job->joined);
  for (int64_t i = 0; i < job->items && status == TDICT_OK; i++) {
    job->ones[i] = 1;
    status = make_tree(job, 0, 0, 0, &job->samples[i]);
    if (status == TDICT_OK) status = make_tree(job, 1, 1 + i % 2, 0, &job->pieces[i]);
  }
  return status;
}

static tdict_status prepare_job(cost_job *job, int scale) {
  job->leaves = (int64_t)scale * COST_LEAVES;
  job->picked = (int64_t)scale * COST_PICKED;
  job->items = (int64_t)scale * COST_ITEMS;
  tdict_status status = prepare_leaves(job);
  if (status == TDICT_OK) status = prepare_row_trees(job);
  return status == TDICT_OK ? prepare_items(job) : status;
}

static void release_job(cost_job *job) {
  tdict_tree *const trees[] = {job->wide, job->other, job->nested, job->dotted,  job->deep,  job->table,
                               job->part, job->step,  job->square, job->stacked, job->joined};
  tdict_dataset_release(job->dataset);
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) tdict_release(trees[i]);
  for (int64_t i = 0; i < job->items; i++) {
    tdict_release(job->samples[i]);
    tdict_release(job->pieces[i]);
  }
  for (int64_t i = 0; i < job->leaves; i++) tdict_tensor_release(job->tensors[i]);
  tdict_tensor_release(job->mask);
  tdict_tensor_release(job->strip);
  free(job);
}

/* num_calls: how many system calls the current operation has made. last_call: the number of the last system call. */
static volatile sig_atomic_t num_calls, last_call;

static void note_call(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  num_calls++;
  last_call = info->si_syscall;
}

/* Installs a filter that traps all system calls except those that malloc(), sanitizers, output and exit need. */
static bool count_calls(void) {
  static const int allowed[] = {SYS_brk,      SYS_mmap,         SYS_munmap, SYS_mremap,    SYS_madvise,
                                SYS_mprotect, SYS_rt_sigreturn, SYS_write,  SYS_exit_group};
  enum { NUM_ALLOWED = sizeof allowed / sizeof *allowed };
  struct sock_filter code[NUM_ALLOWED + 3];
  struct sigaction action = {.sa_sigaction = note_call, .sa_flags = SA_SIGINFO};
  size_t n = 0;
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < NUM_ALLOWED; i++)
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
                                             (unsigned char)(NUM_ALLOWED - i), 0);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {(unsigned short)n, code};
  return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Runs each operation and prints a line for it. Sets *num_calling to the number of operations that made system
 * calls. */
static tdict_status run_operations(cost_job *job, int *num_calling) {
  tdict_status status = TDICT_OK;
  for (int i = 0; i < cost_num_ops && status == TDICT_OK; i++) {
    const cost_op *op = &cost_ops[i];
    num_calls = 0;
    status = op->run(job);
    const long calls = num_calls;
    printf("%s\t%s\t%lld\t%s\t%ld", op->function, op->unit, (long long)op->count, op->what, calls);
    if (calls) printf(" system calls, the last one number %d", (int)last_call);
    printf("\n");
    *num_calling += calls != 0;
  }
  return status;
}

int main(int argc, char **argv) {
  if (!output_watch("tdict-costs")) return 1;
  int scale = 1, num_calling = 0;
  bool calls = argc > 1 && strcmp(argv[1], "--calls") == 0;
  if (argc == 3 && strcmp(argv[1], "--scale") == 0) scale = atoi(argv[2]);
  if ((argc > 1 && !calls && argc != 3) || argc > 3 || (calls && argc > 2) || scale < 1 || scale > COST_MOST) {
    bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr,
            "usage: tdict-costs [--scale N | --calls]\nRuns each container operation once on the host. --scale N "
            "multiplies the data by N, 1 to %d.\nscripts/costs counts the instructions. --calls counts system calls "
            "except those of malloc.\nExit status: 0 success, 1 failure or a system call, 2 wrong usage.\n",
            (int)COST_MOST);
    return help ? 0 : 2;
  }
  cost_job *job = calloc(1, sizeof *job);
  if (!job) return 1;
  tdict_status status = prepare_job(job, calls ? 2 : scale);
  printf("function\tunit\tunits\toperation\tsystem calls\n");
  fflush(stdout); /* stdio allocates its buffer now, before the filter is installed */
  if (calls && !count_calls()) {
    fprintf(stderr, "tdict-costs: cannot install the system call filter: %s\n", strerror(errno));
    return 1;
  }
  if (status == TDICT_OK) status = run_operations(job, &num_calling);
  if (status != TDICT_OK)
    fprintf(stderr, "tdict-costs: %s: %s (%s)\n", job->err.path, job->err.message, tdict_status_name(status));
  release_job(job);
  if (calls && status == TDICT_OK)
    printf(num_calling ? "%d operations make system calls\n" : "no operation makes a system call\n", num_calling);
  const int code = status == TDICT_OK && num_calling == 0 ? 0 : 1;
  if (calls) { /* with a sanitizer, exit() and _exit() make calls that the filter traps */
    fflush(stdout);
    (void)syscall(SYS_exit_group, code);
  }
  return code;
}
