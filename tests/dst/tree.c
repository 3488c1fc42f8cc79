/* Implements the in-memory file system: names, inodes and crashes. Each change of names is appended to a journal.
 * fsync() of a folder makes all entries up to the folder's last change durable. A crash keeps the durable names and a
 * prefix of the journal. For each file, it keeps the bytes of the last fsync(), the latest bytes, or a mix of both in
 * blocks of 512 bytes.
 *
 * A crash only copies what survives, and the program continues. At its end, dst_crash() restores the copies. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dst/dst.h"
#include "dst/files.h"

enum { MOST_INODES = 1 << 14, MOST_NAMES = 1 << 13, MOST_CHANGES = 1 << 12, BLOCK = 512, MODES = 4 };

typedef struct table {
  size_t count;
  dst_name_change names[MOST_NAMES];
} table;
typedef struct change {
  int count;
  dst_name_change names[2];
} change;

static dst_inode inodes[MOST_INODES];
static int num_inodes = 1; /* number 0 means no inode */
static table now, durable, left;
static change journal[MOST_CHANGES];
static size_t num_changes;

/* for each inode, the bytes that survived the crash */
static struct remains {
  char *bytes;
  size_t count;
} remains[MOST_INODES];
static uint64_t calls_until_crash;
static bool has_crashed;

/* ---- names ---- */

static dst_name_change *find_in(table *t, int folder, const char *name) {
  for (size_t i = 0; i < t->count; i++)
    if (t->names[i].folder == folder && strcmp(t->names[i].name, name) == 0) return &t->names[i];
  return NULL;
}

static void set_name(table *t, const dst_name_change *c) {
  dst_name_change *found = find_in(t, c->folder, c->name);
  if (found && c->inode) {
    found->inode = c->inode;
  } else if (found) {
    t->count--;
    memmove(found, found + 1, (size_t)(&t->names[t->count] - found) * sizeof *found);
  } else if (c->inode) {
    if (t->count == MOST_NAMES) dst_die("more than %d files", MOST_NAMES);
    t->names[t->count++] = *c;
  }
}

static void copy_table(table *to, const table *from) {
  to->count = from->count;
  memcpy(to->names, from->names, from->count * sizeof *from->names);
}

static void apply(table *t, const change *c) {
  for (int i = 0; i < c->count; i++) set_name(t, &c->names[i]);
}

int dst_name_find(int folder, const char *name) {
  const dst_name_change *found = find_in(&now, folder, name);
  return found ? found->inode : 0;
}

const char *dst_name_at(int folder, size_t *position) {
  for (; *position < now.count; ++*position)
    if (now.names[*position].folder == folder) return now.names[(*position)++].name;
  return NULL;
}

/* Makes the first `count` changes of the journal durable. */
static void commit(size_t count) {
  for (size_t i = 0; i < count; i++) apply(&durable, &journal[i]);
  num_changes -= count;
  memmove(journal, journal + count, num_changes * sizeof *journal);
}

void dst_names_change(const dst_name_change *changes, int count) {
  change c = {.count = count};
  for (int i = 0; i < count; i++) c.names[i] = changes[i];
  apply(&now, &c);
  if (num_changes == MOST_CHANGES) commit(MOST_CHANGES / 2); /* a real system also writes old changes eventually */
  journal[num_changes++] = c;
}

/* ---- inodes ---- */

dst_inode *dst_inode_at(int number) { return &inodes[number]; }

static int create_memfd(void) {
  const int fd = (int)DST_REAL(syscall)(SYS_memfd_create, "dst", MFD_CLOEXEC, 0, 0, 0, 0);
  enum { FIRST = 1000 }; /* leaves the usual low numbers to the program */
  const int high = fd < 0 ? -1 : DST_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, FIRST);
  if (high < 0) dst_die("cannot create a descriptor for a file in memory");
  DST_REAL(close)(fd);
  return high;
}

int dst_inode_create(bool is_folder, unsigned mode, int parent) {
  if (num_inodes == MOST_INODES) dst_die("the program has created more than %d files", MOST_INODES);
  inodes[num_inodes] = (dst_inode){
      .fd = create_memfd(), .is_folder = is_folder, .mode = mode, .parent = parent, .changed_ns = dst_the.now_ns};
  return num_inodes++;
}

static size_t size_of(const dst_inode *inode) {
  const off_t end = lseek(inode->fd, 0, SEEK_END); /* nothing else uses the offset of this descriptor */
  return end < 0 ? 0 : (size_t)end;
}

static void read_all(const dst_inode *inode, char *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = DST_REAL(pread)(inode->fd, to + done, bytes - done, (off_t)done);
    if (count <= 0) dst_die("a file in memory cannot be read");
    done += (size_t)count;
  }
}

static void write_all(const dst_inode *inode, const char *from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = DST_REAL(pwrite)(inode->fd, from + done, bytes - done, (off_t)done);
    if (count <= 0) dst_die("a file in memory cannot be written");
    done += (size_t)count;
  }
}

static void sync_folder(int number) {
  size_t count = num_changes;
  for (; count > 0; count--) {
    const change *c = &journal[count - 1];
    if (c->names[0].folder == number || (c->count == 2 && c->names[1].folder == number)) break;
  }
  commit(count);
}

void dst_inode_sync(int number) {
  dst_inode *inode = &inodes[number];
  if (inode->is_folder) {
    sync_folder(number);
    return;
  }
  dst_free(inode->durable);
  inode->durable_bytes = size_of(inode);
  inode->durable = dst_alloc(inode->durable_bytes + 1);
  read_all(inode, inode->durable, inode->durable_bytes);
}

void dst_tree_start(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  dst_inode_create(true, 0755, DST_ROOT);
}

/* ---- crashes ---- */

/* Chooses which bytes of a file survive: the durable bytes, the latest bytes, or blocks of both. */
static void keep_bytes(int number) {
  const dst_inode *inode = &inodes[number];
  const size_t latest_bytes = size_of(inode);
  const uint64_t mode = dst_choose(MODES, 0);
  const bool is_long = mode == 1 || (mode > 1 && dst_choose(2, 0));
  const size_t bytes = is_long ? latest_bytes : inode->durable_bytes;
  char *kept = dst_alloc(bytes + 1), *latest = dst_alloc(latest_bytes + 1);
  memset(kept, 0, bytes);
  memcpy(kept, inode->durable, inode->durable_bytes < bytes ? inode->durable_bytes : bytes);
  read_all(inode, latest, latest_bytes);
  for (size_t at = 0; at < bytes && at < latest_bytes && mode; at += BLOCK) {
    size_t count = latest_bytes - at < bytes - at ? latest_bytes - at : bytes - at;
    if (count > BLOCK) count = BLOCK;
    if (mode == 1 || dst_choose(2, 0)) memcpy(kept + at, latest + at, count);
  }
  dst_free(latest);
  remains[number] = (struct remains){kept, bytes};
}

static void crash(void) {
  const size_t kept = dst_choose(num_changes + 1, 0);
  has_crashed = true;
  copy_table(&left, &durable);
  for (size_t i = 0; i < kept; i++) apply(&left, &journal[i]);
  for (size_t i = 0; i < left.count; i++) {
    const int number = left.names[i].inode;
    if (!inodes[number].is_folder && !remains[number].bytes) keep_bytes(number);
  }
}

void dst_crash_count(void) {
  if (calls_until_crash && --calls_until_crash == 0) crash();
}

DST_EXPORT void dst_scheduler_crash_begin(uint64_t calls);
void dst_scheduler_crash_begin(uint64_t calls) {
  calls_until_crash = calls;
  has_crashed = false;
}

DST_EXPORT bool dst_scheduler_has_crashed(void);
bool dst_scheduler_has_crashed(void) { return has_crashed; }

/* Ends a section in which the file system may crash. If no crash has happened, one may happen now. After a crash, each
 * surviving file gets a new memfd, so the program's open descriptors refer to unlinked files. */
DST_EXPORT bool dst_scheduler_crash_end(void);
bool dst_scheduler_crash_end(void) {
  calls_until_crash = 0;
  if (!has_crashed && dst_choose(2, 0)) crash();
  if (!has_crashed) return false;
  has_crashed = false;
  num_changes = 0;
  copy_table(&now, &left);
  copy_table(&durable, &left);
  for (int i = 1; i < num_inodes; i++) {
    if (!remains[i].bytes) continue;
    DST_REAL(close)(inodes[i].fd);
    inodes[i].fd = create_memfd();
    write_all(&inodes[i], remains[i].bytes, remains[i].count);
    dst_free(inodes[i].durable);
    inodes[i].durable = remains[i].bytes;
    inodes[i].durable_bytes = remains[i].count;
    remains[i] = (struct remains){0};
  }
  return true;
}
