/* Implements load_files.h: plans files, and writes and reads them with system calls on several threads. Each function
 * joins its threads and frees their buffers before it returns. Thread rule: main thread only. */
#include "load_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { ALIGNMENT = 4096, PIECE = 4 << 20 };

/* --- the shapes of the files --- */

static uint64_t even_bytes(int64_t leaf) {
  (void)leaf;
  return (uint64_t)32 << 20;
}
static void even_name(int64_t leaf, char *buffer, size_t size) { snprintf(buffer, size, "%" PRId64, leaf); }

/* The shape "mixed" resembles a language model: 32 layers of 9 tensors each, then the embedding and the last norm. */
static const struct {
  const char *name;
  uint64_t bytes;
} layer[9] = {{"attention_norm", 6144}, {"q", 18874368},  {"k", 6291456},     {"v", 6291456},    {"o", 18874368},
              {"mlp_norm", 6144},       {"up", 50331648}, {"gate", 50331648}, {"down", 50331648}};
enum { LAYERS = 32 };
static uint64_t mixed_bytes(int64_t leaf) {
  if (leaf < (int64_t)LAYERS * 9) return layer[leaf % 9].bytes;
  return leaf == (int64_t)LAYERS * 9 ? (uint64_t)98304000 : 6144;
}
static void mixed_name(int64_t leaf, char *buffer, size_t size) {
  if (leaf < (int64_t)LAYERS * 9)
    snprintf(buffer, size, "layers.%" PRId64 ".%s", leaf / 9, layer[leaf % 9].name);
  else
    snprintf(buffer, size, "%s", leaf == (int64_t)LAYERS * 9 ? "embedding" : "norm");
}

/* The exponent makes small tensors more likely than large ones. With this value, the total is 20 GB. */
static uint64_t many_bytes(int64_t leaf) {
  const double low = 8192, high = 3000000, exponent = 1.715;
  const double random = (double)(((uint64_t)leaf * UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53;
  return (uint64_t)(low + (high - low) * pow(leaf == 1 ? 1 : random, exponent));
}
static void many_name(int64_t leaf, char *buffer, size_t size) {
  snprintf(buffer, size, "layers.%" PRId64 ".experts.%" PRId64 ".w%" PRId64, leaf / 300, leaf % 300 / 3, leaf % 3);
}

const load_shape load_even = {"even", "F32", TDICT_F32, 256, 4, INT64_C(8589934592), even_bytes, even_name};
const load_shape load_mixed = {"mixed",     "BF16",    TDICT_BF16, (int64_t)LAYERS * 9 + 2, 2, INT64_C(6541135872),
                               mixed_bytes, mixed_name};
const load_shape load_many = {"many", "F32", TDICT_F32, 18000, 4, INT64_C(20000000000), many_bytes, many_name};

/* --- threads that work on the pieces of a file --- */

typedef struct piece_job piece_job;
struct piece_job {
  uint64_t bytes, piece_bytes;
  uint64_t begin; /* for fill_piece(): the file offset where the tensor data begins */
  int fd;
  bool has_buffers; /* true: each thread passes a buffer of piece_bytes to `work` */
  unsigned char *const *blocks;
  bool (*work)(const piece_job *job, uint64_t at, size_t bytes, unsigned char *buffer); /* sets errno on failure */
  _Atomic(uint64_t) next; /* relaxed: a ticket counter, orders nothing */
  _Atomic(int) failure;   /* errno of a piece that failed; 0: none */
};

static void work_on_pieces(void *user, int part, int parts) {
  piece_job *job = user;
  (void)part, (void)parts;
  unsigned char *buffer = job->has_buffers ? aligned_alloc(ALIGNMENT, job->piece_bytes) : NULL;
  if (job->has_buffers && !buffer) atomic_store(&job->failure, ENOMEM);
  while (atomic_load(&job->failure) == 0) {
    const uint64_t at = atomic_fetch_add_explicit(&job->next, job->piece_bytes, memory_order_relaxed);
    if (at >= job->bytes) break;
    const uint64_t rest = job->bytes - at;
    if (!job->work(job, at, (size_t)(rest < job->piece_bytes ? rest : job->piece_bytes), buffer))
      atomic_store(&job->failure, errno ? errno : EIO);
  }
  free(buffer);
}

/* Calls job->work for each piece, on several threads. Returns 0, or the errno of a piece that failed. */
static int run_pieces(piece_job *job) {
  const int count = bench_cpu_count();
  bench_on_threads(count < BENCH_MOST_THREADS ? count : BENCH_MOST_THREADS, work_on_pieces, job);
  return atomic_load(&job->failure);
}

static bool write_all(int fd, const unsigned char *bytes, size_t count, uint64_t at) {
  while (count > 0) {
    ssize_t n = pwrite(fd, bytes, count < PIECE ? count : PIECE, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    count -= (size_t)n;
    at += (uint64_t)n;
  }
  return true;
}

static bool read_piece(const piece_job *job, uint64_t at, size_t bytes, unsigned char *buffer) {
  for (size_t done = 0; done < bytes;) {
    /* Ask for a full piece even at the end of the file: direct reads need a multiple of the block size. */
    ssize_t n = pread(job->fd, buffer + done, job->piece_bytes - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) continue;
    errno = n == 0 ? EIO : errno;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

static uint64_t word_at(uint64_t offset) { return (offset / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static bool fill_piece(const piece_job *job, uint64_t at, size_t bytes, unsigned char *buffer) {
  uint64_t *words = (uint64_t *)(void *)buffer;
  for (size_t i = 0; i < bytes / 8; i++) words[i] = word_at(job->begin + at + i * 8);
  return write_all(job->fd, buffer, bytes, job->begin + at);
}

static bool write_block(const piece_job *job, uint64_t at, size_t bytes, unsigned char *buffer) {
  (void)buffer;
  return write_all(job->fd, job->blocks[at / job->piece_bytes], bytes, at);
}

/* --- files --- */

static bool fail_file(const char *path, const char *what, int reason) {
  bench_print_error("%s: %s: %s", path, what, strerror(reason));
  return false;
}

/* Computes f->header and f->offsets. */
static bool plan_header(load_file *f, int64_t divide) {
  const load_shape *s = f->shape;
  char name[64];
  size_t size = 0;
  uint64_t end = 0;
  FILE *text = open_memstream(&f->header, &size);
  if (!text) return false;
  fprintf(text, "%8s{", "");
  for (int64_t i = 0; i < s->num_leaves; i++) {
    const uint64_t wanted = s->leaf_bytes(i) / (uint64_t)divide, bytes = wanted > 8 ? (wanted + 7) & ~UINT64_C(7) : 8;
    s->leaf_name(i, name, sizeof name);
    fprintf(text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
            i ? "," : "", name, s->dtype, bytes / (uint64_t)s->item_bytes, end, end + bytes);
    f->offsets[i] = end;
    end += bytes;
  }
  fputc('}', text);
  while (ftell(text) % 8 != 0) fputc(' ', text);
  if (fclose(text) != 0) return false;
  const uint64_t length = size - 8;
  for (int i = 0; i < 8; i++) f->header[i] = (char)(length >> (8 * i) & 255);
  f->data_begin = size;
  f->offsets[s->num_leaves] = end;
  for (int64_t i = 0; i <= s->num_leaves; i++) f->offsets[i] += size;
  return true;
}

bool load_file_plan(load_file *f, const load_shape *shape, const char *folder, int64_t divide) {
  *f = (load_file){.shape = shape};
  int length = snprintf(f->path, sizeof f->path, "%s/tdict-load-%s.safetensors", folder, shape->name);
  if (length < 0 || (size_t)length >= sizeof f->path) {
    bench_print_error("--folder: the name of the folder is too long");
    return false;
  }
  f->offsets = calloc((size_t)shape->num_leaves + 1, sizeof *f->offsets);
  if (f->offsets && plan_header(f, divide)) return true;
  bench_print_error("cannot allocate the header of %s", f->path);
  return false;
}

static bool has_room(const char *path, uint64_t bytes, int fd) {
  struct statvfs there;
  if (fstatvfs(fd, &there) != 0 || (uint64_t)there.f_bavail * there.f_frsize >= bytes) return true;
  bench_print_error("%s: %" PRIu64 " bytes are free in this folder, wanted %" PRIu64, path,
                    (uint64_t)there.f_bavail * there.f_frsize, bytes);
  return false;
}

static bool write_file(load_file *f) {
  const uint64_t begin = f->data_begin;
  int fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fail_file(f->path, "cannot be created", errno);
  f->is_made = true; /* set now, so that load_file_close() removes the file even if writing fails */
  piece_job job = {.bytes = load_file_bytes(f) - begin,
                   .piece_bytes = PIECE,
                   .begin = begin,
                   .fd = fd,
                   .has_buffers = true,
                   .work = fill_piece};
  bool good = has_room(f->path, load_file_bytes(f), fd);
  int reason = 0;
  if (good && !write_all(fd, (const unsigned char *)f->header, begin, 0)) reason = errno;
  if (good && reason == 0) reason = run_pieces(&job);
  if (good && reason == 0 && fsync(fd) != 0) reason = errno; /* load_evict() cannot evict dirty pages */
  close(fd);
  return good && (reason == 0 || fail_file(f->path, "cannot be written", reason));
}

bool load_file_provide(load_file *f) {
  struct stat there;
  if (stat(f->path, &there) == 0) {
    if ((uint64_t)there.st_size == load_file_bytes(f)) return load_file_warm(f);
    bench_print_error("%s has %lld bytes, wanted %" PRIu64 "; remove the file, or choose another --folder", f->path,
                      (long long)there.st_size, load_file_bytes(f));
    return false;
  }
  bench_progress("writing %s", f->path);
  return write_file(f) && load_file_warm(f);
}

bool load_file_warm(const load_file *f) {
  double seconds;
  return load_read_plain(f->path, false, &seconds);
}

void load_file_close(load_file *f, bool keeps) {
  if (f->is_made && !keeps) (void)unlink(f->path);
  free(f->offsets);
  free(f->header);
  memset(f, 0, sizeof *f);
}

size_t load_file_equal(const void *found, uint64_t offset, size_t bytes) {
  const unsigned char *at = found;
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    memcpy(&word, at + i, 8);
    if (word != word_at(offset + i)) return i;
  }
  return bytes;
}

/* --- plain reads and writes --- */

bool load_read_plain(const char *path, bool direct, double *seconds) {
  struct stat there;
  int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (fd < 0 && direct) return false;
  if (fd < 0 || fstat(fd, &there) != 0) {
    fail_file(path, "cannot be opened", errno);
    if (fd >= 0) close(fd);
    return false;
  }
  piece_job job = {
      .bytes = (uint64_t)there.st_size, .piece_bytes = PIECE, .fd = fd, .has_buffers = true, .work = read_piece};
  const double begin = bench_now();
  const int reason = run_pieces(&job);
  *seconds = bench_now() - begin;
  close(fd);
  return reason == 0 || ((!direct || reason != EINVAL) && fail_file(path, "cannot be read", reason));
}

bool load_write_plain(const char *path, unsigned char *const *blocks, int64_t num_blocks, size_t block_bytes,
                      double *seconds) {
  const double begin = bench_now();
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return fail_file(path, "cannot be created", errno);
  piece_job job = {.bytes = (uint64_t)num_blocks * block_bytes,
                   .piece_bytes = block_bytes,
                   .fd = fd,
                   .blocks = blocks,
                   .work = write_block};
  int reason = run_pieces(&job);
  if (reason == 0 && fsync(fd) != 0) reason = errno;
  if (close(fd) != 0 && reason == 0) reason = errno;
  *seconds = bench_now() - begin;
  return reason == 0 || fail_file(path, "cannot be written", reason);
}

/* Returns the fraction of the pages of a file mapping that are in the page cache, or -1 on failure. */
static double resident_part(void *map, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
  size_t count = 0;
  unsigned char *present = malloc(pages);
  if (!present || mincore(map, bytes, present) != 0) {
    free(present);
    return -1;
  }
  for (size_t i = 0; i < pages; i++) count += present[i] & 1;
  free(present);
  return (double)count / (double)pages;
}

double load_evict(const char *path) {
  struct stat there;
  double left = -1;
  int drop = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC), fd = open(path, O_RDONLY | O_CLOEXEC);
  if (drop >= 0) { /* only root can open drop_caches */
    if (write(drop, "1", 1) < 0) errno = 0;
    close(drop);
  }
  if (fd < 0) return left;
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (fstat(fd, &there) == 0 && there.st_size > 0) {
    void *map = mmap(NULL, (size_t)there.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) {
      left = resident_part(map, (size_t)there.st_size);
      munmap(map, (size_t)there.st_size);
    }
  }
  close(fd);
  return left;
}

bool load_is_tmpfs(const char *folder) {
  struct statfs there;
  const long tmpfs = 0x01021994, ramfs = (long)0x858458f6;
  return statfs(folder, &there) == 0 && ((long)there.f_type == tmpfs || (long)there.f_type == ramfs);
}

/* --- host memory --- */

static int64_t read_status(const char *field) {
  char text[64];
  const bool is_found = bench_read_field("/proc/self/status", field, text, sizeof text) != NULL;
  return is_found ? strtoll(text, NULL, 10) * 1024 : -1;
}

void load_memory_begin(load_memory *m) {
  int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  const bool is_reset = fd >= 0 && write(fd, "5", 1) == 1;
  if (fd >= 0) close(fd);
  m->before = is_reset ? read_status("VmRSS:") : -1;
  m->files_before = read_status("RssFile:");
  m->growth = -1;
}

/* The kernel's peak (VmHWM) includes pages of mapped files, which are still mapped: subtract their growth. */
void load_memory_end(load_memory *m) {
  const int64_t peak = read_status("VmHWM:"), files = read_status("RssFile:") - m->files_before;
  if (m->before < 0 || peak < 0) return;
  m->growth = peak - m->before - (files > 0 ? files : 0);
  if (m->growth < 0) m->growth = 0;
}
