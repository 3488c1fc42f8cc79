/* Creates, locks and removes temporary files and directories. See temporary.h for ownership and threads. */
#include "services/io/output/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static const char locked_end[] = ".tmp", unlocked_end[] = ".unlocked.tmp", old_end[] = ".old";
/* DIGITS: of a number in a name; MOST_BASE: leaves room for two dots, the digits and the longest end */
enum { MOST_TRIES = 100, DIGITS = 16, MOST_BASE = NAME_MAX - 2 - DIGITS - (sizeof unlocked_end - 1) };
enum { DIRECTORY_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* Returns a number that, with high probability, no other call and no other process gets. */
static uint64_t make_unique(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  /* The address of a local variable differs between threads and, with address randomization, between processes. */
  uint64_t mixed = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
  mixed ^= (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&now << 16;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

/* Writes the part of a temporary name that stands before the digits: ".BASE.". Returns its length. */
static size_t write_start(char name[TDICT_OUTPUT_NAME_BYTES], const char *base) {
  const size_t length = strlen(base);
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  size_t kept = length;
  if (length > MOST_BASE) {
    kept = MOST_BASE - DIGITS;
    while (((unsigned char)base[kept] & 0xc0) == 0x80) kept--; /* not inside a character of UTF-8 */
  }
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)base[i]) * 0x100000001b3u;
  snprintf(name, TDICT_OUTPUT_NAME_BYTES, ".%.*s", (int)kept, base);
  if (kept < length) snprintf(name + 1 + kept, TDICT_OUTPUT_NAME_BYTES - 1 - kept, "%016" PRIx64, hash);
  return strlen(strcat(name, "."));
}

static void write_name(char name[TDICT_OUTPUT_NAME_BYTES], const char *base, uint64_t unique, const char *end) {
  const size_t start = write_start(name, base);
  snprintf(name + start, TDICT_OUTPUT_NAME_BYTES - start, "%016" PRIx64 "%s", unique, end);
}

void tdict_temporary_name_old(char name[TDICT_OUTPUT_NAME_BYTES], const char *base) {
  write_name(name, base, make_unique(), old_end);
}

static bool has_name(int folder, const char *name, int fd) {
  struct stat named, opened;
  return fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

static bool exists(int folder, const char *name) {
  struct stat info;
  return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

/* Locks a file. Returns the errno, or 0. */
static int lock(int fd, int kind) {
  while (flock(fd, kind | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

int tdict_temporary_lock(int fd) { return lock(fd, LOCK_SH); }

/* Creates and opens a file or a directory with the name out->name. Returns the errno, or 0. */
static int create_named(tdict_temporary *out, int folder, bool is_directory, mode_t mode) {
  if (is_directory && mkdirat(folder, out->name, mode) != 0) return errno;
  /* A lock on NFS needs a file that is open for reading and writing. */
  const int flags = is_directory ? DIRECTORY_FLAGS : O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  out->fd = openat(folder, out->name, flags, mode);
  const int code = out->fd < 0 ? errno : 0;
  if (code && is_directory) unlinkat(folder, out->name, AT_REMOVEDIR);
  return is_directory && code == ENOENT ? EEXIST : code; /* another save has removed the directory: try again */
}

int tdict_temporary_create(tdict_temporary *out, int folder, const char *base, bool is_directory, mode_t mode) {
  const char *end = locked_end;
  int code = EEXIST;
  for (int i = 0; i < MOST_TRIES && code == EEXIST; i++) {
    out->unique = make_unique();
    write_name(out->name, base, out->unique, end);
    code = create_named(out, folder, is_directory, mode);
    if (code) continue;
    const int why = end == locked_end ? lock(out->fd, LOCK_SH) : 0;
    if (!why && exists(folder, out->name)) return 0;
    /* Another save has locked or removed the file, or the file system has no locks. */
    if (why && why != EWOULDBLOCK) end = unlocked_end;
    unlinkat(folder, out->name, is_directory ? AT_REMOVEDIR : 0);
    close(out->fd);
    code = EEXIST;
  }
  out->fd = code ? -1 : out->fd;
  return code;
}

int tdict_names_visit(int folder, tdict_name_visitor visit, void *user) {
  struct dirent *entry;
  const int fd = openat(folder, ".", DIRECTORY_FLAGS);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  int code = dir ? 0 : errno;
  if (!dir && fd >= 0) close(fd);
  while (dir && !code) {
    errno = 0;
    entry = readdir(dir);
    if (!entry) code = errno;
    if (!entry) break;
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) code = visit(user, folder, entry->d_name);
  }
  if (dir) closedir(dir);
  return code;
}

static int remove_visited(void *user, int folder, const char *name) {
  (void)user;
  return tdict_entry_remove(folder, name);
}

/* Removes everything in a directory. Returns the first errno, or 0. */
static int empty_directory(int fd) {
  int code = tdict_names_visit(fd, remove_visited, NULL);
  if (code == EACCES && fchmod(fd, S_IRWXU) == 0) code = tdict_names_visit(fd, remove_visited, NULL);
  return code;
}

int tdict_entry_remove(int folder, const char *name) {
  if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return 0;
  int code = errno;
  if (code != EISDIR && code != EPERM) return code;
  const int fd = openat(folder, name, DIRECTORY_FLAGS);
  if (fd < 0) return errno == ENOENT ? 0 : errno == ENOTDIR || errno == ELOOP ? code : errno;
  code = empty_directory(fd);
  close(fd);
  if (code) return code;
  return unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

/* Returns true if no other machine can use the file system of a folder, so that the kernel knows all locks. */
static bool is_local(int folder) {
  /* ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, ZFS, F2FS, bcachefs, exFAT, FAT, NTFS, JFS */
  static const uint32_t kinds[] = {0xef53,     0x58465342, 0x9123683e, 0x01021994, 0x858458f6, 0x794c7630, 0x2fc12fc1,
                                   0xf2f52010, 0xca451a4e, 0x2011bab0, 0x4d44,     0x7366746e, 0x3153464a};
  struct statfs info;
  if (fstatfs(folder, &info) != 0) return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if ((uint32_t)info.f_type == kinds[i]) return true;
  return false;
}

/* What tdict_temporary_clean() looks for. */
typedef struct search {
  const char *base;
  tdict_temporary_remover remove_more; /* NULL: none */
  char start[TDICT_OUTPUT_NAME_BYTES];
  size_t length; /* of `start` */
} search;

/* Returns the end of a temporary name of the path, or NULL for another name. */
static const char *parse_name(const search *s, const char *name, uint64_t *unique) {
  if (strncmp(name, s->start, s->length) != 0) return NULL;
  const char *digits = name + s->length, *end = digits + DIGITS;
  if (strspn(digits, "0123456789abcdef") != DIGITS) return NULL;
  *unique = strtoull(digits, NULL, 16);
  return strcmp(end, locked_end) == 0 || strcmp(end, old_end) == 0 ? end : NULL;
}

/* Removes a file whose lock is free, and everything that belongs to the file. */
static void remove_free(const search *s, int folder, const char *name, const char *end, uint64_t unique) {
  if (strcmp(end, old_end) == 0) {
    /* A process was killed while no directory had the final name: the old directory gets its name back. */
    if (renameat(folder, name, folder, s->base) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) return;
  } else if (s->remove_more) {
    s->remove_more(folder, s->base, unique);
  }
  (void)!tdict_entry_remove(folder, name);
}

static int clean_visited(void *user, int folder, const char *name) {
  const search *s = user;
  uint64_t unique;
  struct stat info;
  const char *end = parse_name(s, name, &unique);
  if (!end || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  const bool is_directory = S_ISDIR(info.st_mode);
  if (!is_directory && (!S_ISREG(info.st_mode) || strcmp(end, old_end) == 0)) return 0;
  const int flags = is_directory ? DIRECTORY_FLAGS : O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  const int fd = openat(folder, name, flags);
  if (fd < 0) return 0;
  if (lock(fd, LOCK_EX) == 0 && has_name(folder, name, fd)) remove_free(s, folder, name, end, unique);
  close(fd);
  return 0;
}

void tdict_temporary_clean(int folder, const char *base, tdict_temporary_remover remove_more) {
  search s = {.base = base, .remove_more = remove_more};
  if (!is_local(folder)) return;
  s.length = write_start(s.start, base);
  (void)!tdict_names_visit(folder, clean_visited, &s);
}
