/* Writes the rows of an append, and ends or undoes interrupted appends. See append.h for ownership and threads. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "services/io/contents/below.h"
#include "services/io/output/output.h"
#include "services/io/tensordict/append.h"

static const char meta_name[] = "meta.json", temporary_name[] = ".meta.json.append.tmp";

static tdict_status fail_io(const tdict_contents *c, const char *name, const char *verb, tdict_error *err) {
  return tdict_fail_errno(err, errno, c->path, "%s: %.150s cannot be %s", c->what, name, verb);
}

/* Opens the folder of a path. out->name becomes the last name of the path, or "" for a path of a folder itself. */
static tdict_status open_folder(const tdict_contents *c, const char *path, tdict_folder *out, tdict_error *err) {
  char folder[4096];
  const char *slash = strrchr(path, '/');
  const size_t length = slash ? (size_t)(slash - path) : 0;
  *out = (tdict_folder){.what = c->what, .path = c->path, .name = slash ? slash + 1 : path, .fd = -1, .old_fd = -1};
  if (length >= sizeof folder) {
    errno = ENAMETOOLONG;
    return fail_io(c, path, "opened", err);
  }
  memcpy(folder, path, length);
  folder[length] = 0;
  tdict_status status = tdict_below_open_folder(c->what, c->root, folder, &out->fd, err);
  return status == TDICT_OK ? TDICT_OK : tdict_error_at(err, status, c->path);
}

/* Waits until the names in a folder are on the disk. */
static tdict_status flush_folder(const tdict_td_append *a, const tdict_folder *folder, tdict_error *err) {
  return a->flushes ? tdict_folder_flush(folder, err) : TDICT_OK;
}

static tdict_status open_leaf(const tdict_td_append *a, tdict_td_grown *leaf, const tdict_folder *folder, int *out,
                              tdict_error *err) {
  struct stat info;
  const int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | (leaf->is_new ? O_CREAT | O_EXCL : 0);
  const int fd = openat(folder->fd, folder->name, flags, 0666);
  if (fd < 0) return fail_io(&a->contents, leaf->path, "opened", err);
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size >= leaf->offset) {
    leaf->is_changed = true;
    *out = fd;
    return TDICT_OK;
  }
  close(fd);
  return tdict_fail_at(err, TDICT_EIO, a->contents.path, "%s: %.150s was changed during the call", a->contents.what,
                       leaf->path);
}

/* Closes a file. Waits until its bytes are on the disk, unless the option `without_flush` is true. */
static tdict_status close_file(const tdict_td_append *a, tdict_output *to, const char *path, tdict_error *err) {
  if (a->flushes) return tdict_output_close(to, err);
  const int fd = to->file.fd, code = tdict_access_give(&to->old, fd);
  if (code) errno = code;
  if (code) return fail_io(&a->contents, path, "given its permissions", err);
  to->file.fd = -1; /* Linux closes the descriptor also if close() fails */
  to->is_whole = close(fd) == 0;
  return to->is_whole ? TDICT_OK : fail_io(&a->contents, path, "closed", err);
}

/* Writes the rows of a leaf after its saved elements. */
static tdict_status write_leaf(const tdict_td_append *a, tdict_td_grown *leaf, tdict_error *err) {
  tdict_folder folder;
  tdict_status status = open_folder(&a->contents, leaf->path, &folder, err);
  if (status != TDICT_OK) return status;
  tdict_output to = {.folder = &folder, .offset = leaf->offset};
  status = open_leaf(a, leaf, &folder, &to.file.fd, err);
  if (status == TDICT_OK) {
    status = tdict_output_write_tensor(&to, leaf->rows, leaf->name, err);
    if (status == TDICT_OK) status = close_file(a, &to, leaf->path, err);
    if (to.file.fd >= 0) close(to.file.fd);
  }
  if (status == TDICT_OK && leaf->is_new) status = flush_folder(a, &folder, err);
  tdict_folder_close(&folder);
  return status;
}

static tdict_status write_text(const tdict_td_append *a, const char *folder_path, const char *text, size_t length,
                               tdict_error *err) {
  tdict_folder folder;
  tdict_output to;
  tdict_status status = open_folder(&a->contents, folder_path, &folder, err);
  if (status != TDICT_OK) return status;
  folder.old = tdict_access_of_file(folder.fd, meta_name);
  status = tdict_output_create(&to, &folder, temporary_name, err);
  if (status == TDICT_OK) {
    status = tdict_output_write(&to, text, length, err);
    if (status == TDICT_OK) status = close_file(a, &to, to.file.name, err);
    tdict_output_end(&to);
    if (status == TDICT_OK) status = flush_folder(a, &folder, err);
  }
  tdict_folder_close(&folder);
  return status;
}

/* Renames the temporary file to meta.json. *is_renamed: this succeeded, even if the folder cannot be flushed. */
static tdict_status rename_meta(const tdict_td_append *a, const char *folder_path, bool *is_renamed, tdict_error *err) {
  tdict_folder folder;
  *is_renamed = false;
  tdict_status status = open_folder(&a->contents, folder_path, &folder, err);
  if (status != TDICT_OK) return status;
  *is_renamed = renameat(folder.fd, temporary_name, folder.fd, meta_name) == 0;
  status = *is_renamed ? flush_folder(a, &folder, err) : fail_io(&a->contents, temporary_name, "renamed", err);
  tdict_folder_close(&folder);
  return status;
}

/* Removes the temporary file of a folder. Returns true if the file is removed or did not exist. */
static bool remove_temporary(const tdict_contents *c, const char *folder_path) {
  tdict_folder folder;
  if (open_folder(c, folder_path, &folder, NULL) != TDICT_OK) return false;
  const bool is_removed = unlinkat(folder.fd, temporary_name, 0) == 0 || errno == ENOENT;
  tdict_folder_close(&folder);
  return is_removed;
}

/* Puts the old text of a meta.json back. Returns true on success. */
static bool restore_meta(const tdict_td_append *a, const tdict_td_new_meta *meta) {
  bool is_renamed = false;
  if (write_text(a, meta->folder, meta->old_text, meta->old_length, NULL) == TDICT_OK)
    (void)!rename_meta(a, meta->folder, &is_renamed, NULL);
  if (!is_renamed) (void)remove_temporary(&a->contents, meta->folder);
  return is_renamed;
}

/* Gives the files of the leaves their old sizes. */
static void shrink_leaves(tdict_td_append *a) {
  for (size_t i = 0; i < a->num_leaves; i++) {
    tdict_td_grown *leaf = &a->leaves[i];
    tdict_folder folder;
    if (!leaf->is_changed || open_folder(&a->contents, leaf->path, &folder, NULL) != TDICT_OK) continue;
    const int fd = leaf->is_new ? -1 : openat(folder.fd, folder.name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (leaf->is_new) unlinkat(folder.fd, folder.name, 0);
    if (fd >= 0) {
      /* Shrinking only saves space, since readers ignore bytes after the shape. */
      (void)!ftruncate(fd, (off_t)leaf->old_bytes);
      close(fd);
    }
    tdict_folder_close(&folder);
  }
}

/* Removes the temporary files, and puts the old texts back. Returns false if files meta.json with different numbers of
 * rows can remain, which readers refuse. A process that is killed while texts are put back also leaves such files. */
static bool undo(tdict_td_append *a, size_t num_temporary, size_t num_renamed) {
  bool is_removed = true, is_restored = true;
  for (size_t i = num_temporary; i > num_renamed; i--) {
    /* The root's file comes last. If another file remains, keep it, so that the next call removes both. */
    if (i == 1 && !is_removed) break;
    is_removed = remove_temporary(&a->contents, a->metas[i - 1].folder) && is_removed;
  }
  for (size_t i = num_renamed; i > 0; i--) is_restored = restore_meta(a, &a->metas[i - 1]) && is_restored;
  if (is_restored) shrink_leaves(a);
  return is_restored && (is_removed || num_renamed == 0);
}

/* Changes the message of an append after which not every meta.json could be restored. */
static void report_mixed_rows(const tdict_contents *c, tdict_error *err) {
  char cause[sizeof err->message];
  if (!err) return;
  memcpy(cause, err->message, sizeof cause);
  snprintf(err->message, sizeof err->message,
           "%s: meta.json was not restored in every folder, so numbers of rows may differ; the error was: %.130s",
           c->what, cause);
}

tdict_status tdict_td_append_write(tdict_td_append *append, tdict_error *err) {
  size_t num_temporary = 0, num_renamed = 0;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < append->num_leaves && status == TDICT_OK; i++)
    status = write_leaf(append, &append->leaves[i], err);
  while (num_temporary < append->num_metas && status == TDICT_OK) {
    const tdict_td_new_meta *meta = &append->metas[num_temporary++]; /* counted even if the call fails, so that undo()
                                                                      * removes the file */
    status = write_text(append, meta->folder, meta->text, meta->length, err);
  }
  while (num_renamed < append->num_metas && status == TDICT_OK) {
    bool is_renamed;
    status = rename_meta(append, append->metas[num_renamed].folder, &is_renamed, err);
    num_renamed += is_renamed;
  }
  if (status != TDICT_OK && !undo(append, num_temporary, num_renamed)) report_mixed_rows(&append->contents, err);
  return status;
}

/* Ends or undoes the append in the folder `fd` and in the folders below. Takes over the descriptor. */
static tdict_status recover_folder(const tdict_contents *c, int fd, bool ends, int depth, tdict_error *err) {
  DIR *folder = fdopendir(fd);
  struct dirent *entry;
  tdict_status status = TDICT_OK;
  if (!folder) {
    status = fail_io(c, "a folder", "read", err);
    close(fd);
    return status;
  }
  while (status == TDICT_OK && (entry = readdir(folder)) != NULL) {
    if (entry->d_name[0] == '.' && (!entry->d_name[1] || strcmp(entry->d_name, "..") == 0)) continue;
    if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) continue;
    const int child = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (child < 0) continue; /* no folder */
    if (depth < TDICT_IO_MAX_DEPTH)
      status = recover_folder(c, child, ends, depth + 1, err);
    else
      close(child);
  }
  /* The folders below come first: the temporary file of the root decides what to do, so that file is removed last. */
  if (status == TDICT_OK &&
      (ends ? renameat(fd, temporary_name, fd, meta_name) : unlinkat(fd, temporary_name, 0)) != 0 && errno != ENOENT)
    status = fail_io(c, temporary_name, ends ? "renamed" : "removed", err);
  closedir(folder);
  return status;
}

tdict_status tdict_td_recover(const tdict_contents *contents, tdict_error *err) {
  struct stat info;
  const int fd = openat(contents->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_io(contents, "the directory", "opened", err);
  const bool ends = fstatat(fd, temporary_name, &info, AT_SYMLINK_NOFOLLOW) != 0;
  return recover_folder(contents, fd, ends, 0, err);
}
