/* Replaces libc's file functions. Files below DST_FOLDER are in memory. /dev/null is the real file. No file exists
 * below /proc and /sys. Calls with any other path abort the run. Most calls for files in memory are decisions. */
#include "dst/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "dst/dst.h"

enum { MOST_FDS = 1 << 16, TMPFS = 0x01021994 };

static int handles[MOST_FDS]; /* the inode of each descriptor; 0: not a simulated file */

void dst_files_start(void) { dst_tree_start(); }

long dst_raw_open(const char *path, int flags, unsigned mode) { return DST_REAL(open)(path, flags, mode); }

static int fail(int code) {
  errno = code;
  return -1;
}

static int inode_of(int fd) { return fd >= 0 && fd < MOST_FDS && dst_active() ? handles[fd] : 0; }
static void begin(const char *call, void *site) {
  dst_decide(call, site);
  dst_crash_count();
}

/* ---- paths ---- */

/* A resolved path: a folder, a name in the folder, and the inode of this name (0: none). */
typedef struct place {
  int folder, inode;
  char name[NAME_MAX + 1];
} place;

static bool is_ours(int fd, const char *path) {
  const size_t length = sizeof DST_FOLDER - 1;
  if (!dst_active()) return false;
  if (path[0] != '/') return inode_of(fd) != 0;
  return strncmp(path, DST_FOLDER, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Resolves a path, whose last name need not exist. Returns an errno value, or 0. */
static int walk(int fd, const char *path, place *out) {
  int at = path[0] == '/' ? DST_ROOT : inode_of(fd);
  if (path[0] == '/') path += sizeof DST_FOLDER - 1;
  *out = (place){.folder = dst_inode_at(at)->parent, .inode = at};
  while (*path) {
    const size_t slashes = strspn(path, "/"), length = strcspn(path += slashes, "/");
    if (length == 0) break;
    if (length > NAME_MAX) return ENAMETOOLONG;
    if (!out->inode) return ENOENT;
    if (!dst_inode_at(out->inode)->is_folder) return ENOTDIR;
    const int folder = out->inode;
    *out = (place){.folder = folder};
    memcpy(out->name, path, length);
    path += length;
    if (strcmp(out->name, ".") == 0)
      *out = (place){.folder = dst_inode_at(folder)->parent, .inode = folder};
    else if (strcmp(out->name, "..") == 0)
      *out = (place){.folder = dst_inode_at(folder)->parent, .inode = dst_inode_at(folder)->parent};
    else
      out->inode = dst_name_find(folder, out->name);
  }
  return 0;
}

static bool begins_with(const char *path, const char *start) { return strncmp(path, start, strlen(start)) == 0; }

/* Returns true if the call may use the real file, and false if it must fail as if the file did not exist. */
static bool may_use(const char *path) {
  if (!dst_active() || strcmp(path, "/dev/null") == 0) return true;
  if (begins_with(path, "/proc/") || begins_with(path, "/sys/")) return false;
  dst_die("the real file %s is refused: the simulation has files below %s only", path, DST_FOLDER);
}

static void change_name(const place *p, int inode) {
  dst_name_change c = {.folder = p->folder, .inode = inode};
  memcpy(c.name, p->name, sizeof c.name);
  dst_names_change(&c, 1);
}

/* ---- open and close ---- */

static int open_inode(int number, int flags) {
  char path[32];
  const dst_inode *inode = dst_inode_at(number);
  snprintf(path, sizeof path, "/proc/self/fd/%d", inode->fd);
  const int fd = DST_REAL(open)(path, (flags & (O_ACCMODE | O_APPEND | O_TRUNC)) | O_CLOEXEC, 0);
  if (fd >= 0 && fd < MOST_FDS) handles[fd] = number;
  return fd;
}

static int open_at(int folder, const char *path, int flags, unsigned mode, void *site) {
  place p;
  if (!is_ours(folder, path)) return may_use(path) ? DST_REAL(openat)(folder, path, flags, mode) : fail(ENOENT);
  begin("open", site);
  const int code = walk(folder, path, &p);
  if (code) return fail(code);
  if (p.inode && flags & O_CREAT && flags & O_EXCL) return fail(EEXIST);
  if (!p.inode && !(flags & O_CREAT)) return fail(ENOENT);
  if (!p.inode) {
    p.inode = dst_inode_create(false, mode & 0777 & ~022u, 0);
    change_name(&p, p.inode);
  }
  const dst_inode *inode = dst_inode_at(p.inode);
  if (!inode->is_folder && flags & O_DIRECTORY) return fail(ENOTDIR);
  if (inode->is_folder && (flags & O_ACCMODE) != O_RDONLY) return fail(EISDIR);
  return open_inode(p.inode, flags);
}

#define READ_MODE(flags, mode)             \
  unsigned mode = 0;                       \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list args;                          \
    va_start(args, flags);                 \
    mode = va_arg(args, unsigned);         \
    va_end(args);                          \
  }

DST_EXPORT int open(const char *path, int flags, ...) {
  READ_MODE(flags, mode)
  return open_at(AT_FDCWD, path, flags, mode, DST_SITE);
}
DST_EXPORT int openat(int folder, const char *path, int flags, ...) {
  READ_MODE(flags, mode)
  return open_at(folder, path, flags, mode, DST_SITE);
}
int __open_2(const char *path, int flags);
DST_EXPORT int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0, DST_SITE); }
int __openat_2(int folder, const char *path, int flags);
DST_EXPORT int __openat_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0, DST_SITE); }

DST_EXPORT int close(int fd) {
  if (!inode_of(fd)) return DST_REAL(close)(fd);
  begin("close", DST_SITE);
  handles[fd] = 0;
  return DST_REAL(close)(fd);
}

DST_EXPORT FILE *fopen(const char *path, const char *mode) {
  if (!dst_active()) return DST_REAL(fopen)(path, mode);
  const int way = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  const int more = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
  const int fd = open_at(AT_FDCWD, path, way | more, 0666, DST_SITE);
  return fd < 0 ? NULL : fdopen(fd, mode);
}

DST_EXPORT int fclose(FILE *file) {
  const int fd = fileno(file);
  if (inode_of(fd)) {
    begin("fclose", DST_SITE);
    dst_inode_at(handles[fd])->changed_ns = dst_the.now_ns;
    handles[fd] = 0;
  }
  return DST_REAL(fclose)(file);
}

/* ---- bytes ---- */

/* Begins a read or a write. Returns false if an injected fault makes the call fail with EINTR. */
static bool begin_bytes(const char *call, size_t *bytes, void *site) {
  begin(call, site);
  if (dst_call_fails(DST_IO)) {
    errno = EINTR;
    return false;
  }
  *bytes = dst_shorten(*bytes);
  return true;
}

DST_EXPORT ssize_t read(int fd, void *to, size_t bytes) {
  if (inode_of(fd) && !begin_bytes("read", &bytes, DST_SITE)) return -1;
  return DST_REAL(read)(fd, to, bytes);
}
DST_EXPORT ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  if (inode_of(fd) && !begin_bytes("pread", &bytes, DST_SITE)) return -1;
  return DST_REAL(pread)(fd, to, bytes, offset);
}
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t most);
DST_EXPORT ssize_t __read_chk(int fd, void *to, size_t bytes, size_t most) {
  if (bytes > most) abort();
  return read(fd, to, bytes);
}
ssize_t __pread_chk(int fd, void *to, size_t bytes, off_t offset, size_t most);
DST_EXPORT ssize_t __pread_chk(int fd, void *to, size_t bytes, off_t offset, size_t most) {
  if (bytes > most) abort();
  return pread(fd, to, bytes, offset);
}

static void note_change(int fd) {
  if (inode_of(fd)) dst_inode_at(handles[fd])->changed_ns = dst_the.now_ns;
}

DST_EXPORT ssize_t write(int fd, const void *from, size_t bytes) {
  if (inode_of(fd) && !begin_bytes("write", &bytes, DST_SITE)) return -1;
  note_change(fd);
  return DST_REAL(write)(fd, from, bytes);
}
DST_EXPORT ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  if (inode_of(fd) && !begin_bytes("pwrite", &bytes, DST_SITE)) return -1;
  note_change(fd);
  return DST_REAL(pwrite)(fd, from, bytes, offset);
}

DST_EXPORT int ftruncate(int fd, off_t bytes) {
  if (inode_of(fd)) begin("ftruncate", DST_SITE);
  note_change(fd);
  return DST_REAL(ftruncate)(fd, bytes);
}
DST_EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (inode_of(fd)) begin("fallocate", DST_SITE);
  note_change(fd);
  return DST_REAL(fallocate)(fd, mode, offset, bytes);
}

DST_EXPORT int fsync(int fd) {
  if (!inode_of(fd)) return DST_REAL(fsync)(fd);
  begin("fsync", DST_SITE);
  dst_inode_sync(handles[fd]);
  return 0;
}
DST_EXPORT int fdatasync(int fd) { return fsync(fd); }

DST_EXPORT int flock(int fd, int operation) {
  if (!inode_of(fd)) return DST_REAL(flock)(fd, operation);
  for (;;) {
    begin("flock", DST_SITE);
    if (DST_REAL(flock)(fd, operation | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || operation & LOCK_NB) return -1;
    dst_wait(DST_SLEEP, NULL, dst_the.now_ns + 1000000, "flock", DST_SITE);
  }
}

DST_EXPORT int fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  void *argument = va_arg(args, void *);
  va_end(args);
  if (inode_of(fd)) begin("fcntl", DST_SITE);
  if (inode_of(fd) && command == F_SETLKW) command = F_SETLK;
  const int result = DST_REAL(fcntl)(fd, command, argument);
  if (inode_of(fd) && (command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0) handles[result] = handles[fd];
  return result;
}

/* ---- attributes ---- */

static int fill_stat(int number, struct stat *out) {
  const dst_inode *inode = dst_inode_at(number);
  const int result = DST_REAL(fstat)(inode->fd, out);
  out->st_dev = DST_DEVICE;
  out->st_ino = (ino_t)number;
  out->st_mode = (inode->is_folder ? S_IFDIR : S_IFREG) | inode->mode;
  out->st_nlink = 1;
  out->st_uid = 0;
  out->st_gid = 0;
  out->st_mtim = (struct timespec){inode->changed_ns / 1000000000, inode->changed_ns % 1000000000};
  out->st_ctim = out->st_atim = out->st_mtim;
  return result;
}

static int stat_at(int folder, const char *path, struct stat *out, int flags, void *site) {
  place p;
  if (!is_ours(folder, path)) return may_use(path) ? DST_REAL(fstatat)(folder, path, out, flags) : fail(ENOENT);
  begin("stat", site);
  const int code = walk(folder, path, &p);
  return code ? fail(code) : p.inode ? fill_stat(p.inode, out) : fail(ENOENT);
}

DST_EXPORT int fstat(int fd, struct stat *out) {
  if (!inode_of(fd)) return DST_REAL(fstat)(fd, out);
  begin("fstat", DST_SITE);
  return fill_stat(handles[fd], out);
}
DST_EXPORT int fstatat(int folder, const char *restrict path, struct stat *restrict out, int flags) {
  return stat_at(folder, path, out, flags, DST_SITE);
}
DST_EXPORT int stat(const char *restrict path, struct stat *restrict out) {
  return stat_at(AT_FDCWD, path, out, 0, DST_SITE);
}
DST_EXPORT int lstat(const char *restrict path, struct stat *restrict out) {
  return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW, DST_SITE);
}
DST_EXPORT int access(const char *path, int mode) {
  struct stat info;
  if (!dst_active()) return DST_REAL(access)(path, mode);
  return stat_at(AT_FDCWD, path, &info, 0, DST_SITE);
}

DST_EXPORT int fchmod(int fd, mode_t mode) {
  if (!inode_of(fd)) return DST_REAL(fchmod)(fd, mode);
  dst_inode_at(handles[fd])->mode = mode;
  return 0;
}
DST_EXPORT int fchown(int fd, uid_t owner, gid_t group) {
  return inode_of(fd) ? 0 : DST_REAL(fchown)(fd, owner, group);
}
DST_EXPORT int fstatfs(int fd, struct statfs *out) {
  const int result = DST_REAL(fstatfs)(fd, out);
  if (inode_of(fd)) out->f_type = TMPFS;
  return result;
}

/* ---- names ---- */

static bool is_empty(int folder) {
  size_t position = 0;
  return !dst_name_at(folder, &position);
}

static int make_folder(int folder, const char *path, unsigned mode, void *site) {
  place p;
  if (!is_ours(folder, path)) return may_use(path) ? DST_REAL(mkdirat)(folder, path, mode) : fail(EACCES);
  begin("mkdir", site);
  const int code = walk(folder, path, &p);
  if (code || p.inode) return fail(code ? code : EEXIST);
  change_name(&p, dst_inode_create(true, mode & 0777 & ~022u, p.folder));
  return 0;
}
DST_EXPORT int mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode, DST_SITE); }
DST_EXPORT int mkdirat(int folder, const char *path, mode_t mode) { return make_folder(folder, path, mode, DST_SITE); }

static int remove_name(int folder, const char *path, bool wants_folder, void *site) {
  place p;
  const int flags = wants_folder ? AT_REMOVEDIR : 0;
  if (!is_ours(folder, path)) return may_use(path) ? DST_REAL(unlinkat)(folder, path, flags) : fail(ENOENT);
  begin("unlink", site);
  const int code = walk(folder, path, &p);
  if (code || !p.inode) return fail(code ? code : ENOENT);
  if (!p.name[0]) return fail(EBUSY);
  const bool is_folder = dst_inode_at(p.inode)->is_folder;
  if (is_folder != wants_folder) return fail(is_folder ? EISDIR : ENOTDIR);
  if (is_folder && !is_empty(p.inode)) return fail(ENOTEMPTY);
  change_name(&p, 0);
  return 0;
}
DST_EXPORT int unlink(const char *path) { return remove_name(AT_FDCWD, path, false, DST_SITE); }
DST_EXPORT int rmdir(const char *path) { return remove_name(AT_FDCWD, path, true, DST_SITE); }
DST_EXPORT int unlinkat(int folder, const char *path, int flags) {
  return remove_name(folder, path, flags & AT_REMOVEDIR, DST_SITE);
}

/* Returns the errno value with which a rename must fail, or 0. */
static int check_rename(const place *from, const place *to, unsigned flags) {
  if (!from->inode || !from->name[0] || !to->name[0]) return from->inode ? EBUSY : ENOENT;
  if (flags & RENAME_EXCHANGE) return to->inode ? 0 : ENOENT;
  if (!to->inode) return 0;
  if (flags & RENAME_NOREPLACE) return EEXIST;
  const bool is_folder = dst_inode_at(from->inode)->is_folder, was_folder = dst_inode_at(to->inode)->is_folder;
  if (is_folder != was_folder) return was_folder ? EISDIR : ENOTDIR;
  return was_folder && !is_empty(to->inode) ? ENOTEMPTY : 0;
}

static int rename_at(const place *from, const place *to, unsigned flags) {
  const int code = check_rename(from, to, flags), other = flags & RENAME_EXCHANGE ? to->inode : 0;
  dst_name_change changes[2] = {{.folder = from->folder, .inode = other}, {.folder = to->folder, .inode = from->inode}};
  if (code) return fail(code);
  if (from->inode == to->inode) return 0;
  memcpy(changes[0].name, from->name, sizeof from->name);
  memcpy(changes[1].name, to->name, sizeof to->name);
  if (dst_inode_at(from->inode)->is_folder) dst_inode_at(from->inode)->parent = to->folder;
  if (other && dst_inode_at(other)->is_folder) dst_inode_at(other)->parent = from->folder;
  dst_names_change(changes, 2);
  return 0;
}

DST_EXPORT int renameat2(int from, const char *from_path, int to, const char *to_path, unsigned flags) {
  place a, b;
  if (!is_ours(from, from_path) || !is_ours(to, to_path)) {
    (void)may_use(is_ours(from, from_path) ? to_path : from_path);
    return DST_REAL(renameat2)(from, from_path, to, to_path, flags);
  }
  begin("rename", DST_SITE);
  int code = walk(from, from_path, &a);
  if (!code) code = walk(to, to_path, &b);
  return code ? fail(code) : rename_at(&a, &b, flags);
}
DST_EXPORT int renameat(int from, const char *from_path, int to, const char *to_path) {
  return renameat2(from, from_path, to, to_path, 0);
}
DST_EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* ---- the names of a folder ---- */

/* What a DIR * points to under the scheduler. The first readdir() reads all names. */
typedef struct listing {
  int fd;
  bool is_read;
  size_t count, position;
  char (*names)[NAME_MAX + 1];
  struct dirent entry;
} listing;

static void read_names(listing *l) {
  const char *name;
  size_t position = 0, count = 0;
  while (dst_name_at(handles[l->fd], &position)) count++;
  l->names = dst_alloc(count * sizeof *l->names + 1);
  for (position = 0; (name = dst_name_at(handles[l->fd], &position));) strcpy(l->names[l->count++], name);
  l->is_read = true;
}

DST_EXPORT DIR *fdopendir(int fd) {
  if (!inode_of(fd)) return DST_REAL(fdopendir)(fd);
  listing *l = dst_alloc(sizeof *l);
  *l = (listing){.fd = fd};
  return (DIR *)(void *)l;
}
DST_EXPORT DIR *opendir(const char *path) {
  if (!dst_active()) return DST_REAL(opendir)(path);
  const int fd = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, DST_SITE);
  return fd < 0 ? NULL : fdopendir(fd);
}
DST_EXPORT struct dirent *readdir(DIR *dir) {
  listing *l = (void *)dir;
  int number = 0;
  if (!dst_active()) return DST_REAL(readdir)(dir);
  begin("readdir", DST_SITE);
  if (!l->is_read) read_names(l);
  while (l->position < l->count && !(number = dst_name_find(handles[l->fd], l->names[l->position]))) l->position++;
  if (l->position == l->count) return NULL;
  strcpy(l->entry.d_name, l->names[l->position++]);
  l->entry.d_ino = (ino_t)number;
  l->entry.d_type = dst_inode_at(number)->is_folder ? DT_DIR : DT_REG;
  return &l->entry;
}
DST_EXPORT int closedir(DIR *dir) {
  listing *l = (void *)dir;
  if (!dst_active()) return DST_REAL(closedir)(dir);
  const int result = close(l->fd);
  if (l->is_read) dst_free(l->names);
  dst_free(l);
  return result;
}
DST_EXPORT int dirfd(DIR *dir) { return dst_active() ? ((listing *)(void *)dir)->fd : DST_REAL(dirfd)(dir); }
