/* Tests segments: seals, and every way in which a received segment can be wrong. */
#include "services/share/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "rig.h"

typedef struct head {
  uint32_t magic, version, kind, num_slots, max_workers, unused;
  uint64_t blob_bytes, slot_bytes;
} head;
enum { ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, BLOB_AT = 4096 };

/* Returns the bytes of a good segment. The caller frees them. */
static unsigned char *good_image(size_t *bytes) {
  scoped_tree shared = rig_shared();
  const tdict_segment *segment = tdict_segment_of(shared);
  *bytes = segment->layout.total_bytes;
  unsigned char *image = td_alloc(*bytes);
  assert_int_equal(pread(segment->fd, image, *bytes, 0), *bytes);
  return image;
}
static int make_file(const void *image, size_t bytes, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0);
  if (bytes) rig_write(fd, image, bytes);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}
/* Checks that a file is refused as a segment, and that the descriptor is closed. */
static void refuse(int fd, tdict_status status, const char *text) {
  const rig_resources before = rig_resources_now();
  tdict_segment *out = NULL;
  td_fails(status, text, tdict_segment_open("test", fd, TDICT_SEGMENT_TREE, &out, err));
  assert_null(out);
  assert_int_equal(td_count_descriptors(), before.fds - 1);
  assert_int_equal(rig_count_maps(), before.maps);
}

CASE(share_segment_is_sealed) {
  scoped_tree shared = rig_shared();
  const tdict_segment *segment = tdict_segment_of(shared);
  const off_t bytes = (off_t)segment->layout.total_bytes;
  assert_int_equal(fcntl(segment->fd, F_GET_SEALS) & ALL_SEALS, ALL_SEALS);
  assert_int_equal(ftruncate(segment->fd, bytes - 1), -1);
  assert_int_equal(errno, EPERM);
  assert_int_equal(ftruncate(segment->fd, bytes + 1), -1);
  assert_int_equal(errno, EPERM);
  assert_int_equal(fcntl(segment->fd, F_GETFD), FD_CLOEXEC);
}

/* On older systems, a signal undoes the allocation that it interrupts. Making a segment must succeed even with a signal
 * every millisecond. */
CASE(share_segment_is_made_among_signals) {
  enum { BYTES = 64 << 20 };
  scoped_tree like = help_tree_without_batch(), shared = NULL;
  td_put(like, "x", td_made(tensor, tdict_tensor_empty(TDICT_U8, COUNTS(BYTES), NULL, &made, err)));
  rig_signals_begin();
  td_ok(tdict_share_create(like, td_options(tdict_share_options, is_zero = true), &shared, err));
  rig_signals_end();
  struct stat file;
  assert_int_equal(fstat(tdict_segment_of(shared)->fd, &file), 0);
  assert_true(file.st_size > BYTES);
  assert_true(file.st_blocks * 512 >= file.st_size); /* all pages are allocated */
}

CASE(share_segment_refuses_files) {
  size_t bytes;
  scoped_bytes image = good_image(&bytes);
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  close(ends[1]);
  refuse(ends[0], TDICT_EFORMAT, "not a memfd");
  refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), TDICT_EFORMAT, "not a memfd");
  refuse(make_file(image, bytes, F_SEAL_SHRINK | F_SEAL_GROW), TDICT_EFORMAT, "the seals 0x6");
  refuse(make_file(image, bytes, F_SEAL_SHRINK | F_SEAL_SEAL), TDICT_EFORMAT, "the seals 0x3");
  refuse(make_file(image, bytes, F_SEAL_GROW | F_SEAL_SEAL), TDICT_EFORMAT, "the seals 0x5");
  refuse(make_file(image, 0, ALL_SEALS), TDICT_EFORMAT, "0 bytes, wanted at least 4096");
  refuse(make_file(image, 4095, ALL_SEALS), TDICT_EFORMAT, "4095 bytes, wanted at least 4096");
  refuse(make_file(image, 4096, ALL_SEALS), TDICT_EFORMAT, "wanted those of its head");
  refuse(make_file(image, bytes - 4096, ALL_SEALS), TDICT_EFORMAT, "wanted those of its head");
  refuse(make_file(image, bytes - 1, ALL_SEALS), TDICT_EFORMAT, "wanted those of its head");
  /* A segment whose seals forbid writing is refused. */
  refuse(make_file(image, bytes, ALL_SEALS | F_SEAL_WRITE), TDICT_EIO, "mmap");
}

CASE(share_segment_refuses_heads) {
  size_t bytes;
  scoped_bytes image = good_image(&bytes);
  head *h = (head *)image;
  const head kept = *h;
  const struct {
    head h;
    tdict_status status;
    const char *text;
  } wrong[] = {
      {{1, 1, 1, 1, 0, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_EFORMAT, "begins with 0x00000001"},
      {{kept.magic, 2, 1, 1, 0, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_ENOTSUP, "version 2"},
      {{kept.magic, 1, 2, 1, 0, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_EFORMAT, "kind 2, wanted 1"},
      {{kept.magic, 1, 1, 0, 0, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_EFORMAT, "0 slots"},
      {{kept.magic, 1, 1, 2, 0, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_EFORMAT, "2 slots"},
      {{kept.magic, 1, 1, 1, 1, 0, kept.blob_bytes, kept.slot_bytes}, TDICT_EFORMAT, "1 workers"},
      {{kept.magic, 1, 1, 1, 0, 0, UINT64_MAX, kept.slot_bytes}, TDICT_EFORMAT, "those of its head"},
      {{kept.magic, 1, 1, 1, 0, 0, (uint64_t)INT32_MAX + 1, kept.slot_bytes}, TDICT_EFORMAT, "those of its head"},
      {{kept.magic, 1, 1, 1, 0, 0, kept.blob_bytes, UINT64_MAX}, TDICT_EFORMAT, "those of its head"},
      {{kept.magic, 1, 1, 1, 0, 0, kept.blob_bytes, UINT64_MAX - 8192}, TDICT_EFORMAT, "those of its head"},
      {{kept.magic, 1, 1, 1, 0, 0, 0, kept.slot_bytes}, TDICT_EFORMAT, "those of its head"},
      {{kept.magic, 1, 1, 1, 0, 0, kept.blob_bytes - 1, kept.slot_bytes}, TDICT_EFORMAT, "ends"},
      {{kept.magic, 1, 1, 1, 0, 0, kept.blob_bytes, kept.slot_bytes + 256}, TDICT_EFORMAT, "but its schema needs"},
      {{kept.magic, 1, 1, 1, 0, 0, kept.blob_bytes, kept.slot_bytes - 256}, TDICT_EFORMAT, "but its schema needs"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    *h = wrong[i].h;
    refuse(make_file(image, bytes, ALL_SEALS), wrong[i].status, wrong[i].text);
  }
}

/* Opens segments whose blob describes a different tree or an object, or has a changed byte. */
CASE(share_segment_refuses_blobs) {
  size_t bytes;
  scoped_bytes image = good_image(&bytes);
  head *h = (head *)image;
  const head kept = *h;
  /* Batch size [], and an object "x" of type "t". */
  static const unsigned char object[] = {'t', 'd', 's', 'c', 1, 0, 0, 0, 0, 3, 'x', 0, 't', 0, 0};
  scoped_bytes blob = td_alloc(kept.blob_bytes);
  memcpy(blob, image + BLOB_AT, kept.blob_bytes);
  memcpy(image + BLOB_AT, object, sizeof object);
  h->blob_bytes = sizeof object;
  refuse(make_file(image, bytes, ALL_SEALS), TDICT_ENOTSUP, "an object of type t");
  assert_string_equal(td_last_error.path, "x");
  *h = kept;
  int num_refused = 0;
  for (size_t i = 0; i < kept.blob_bytes; i++) {
    tdict_segment *out = NULL;
    const rig_resources before = rig_resources_now();
    memcpy(image + BLOB_AT, blob, kept.blob_bytes);
    td_fill_random(image + BLOB_AT + i, 1, i);
    /* A blob with only a changed key is still valid. */
    if (tdict_segment_open("test", make_file(image, bytes, ALL_SEALS), TDICT_SEGMENT_TREE, &out, NULL) == TDICT_OK) {
      tdict_tree *made = NULL;
      td_ok(tdict_segment_make_tree(out, 0, &made, err));
      tdict_release(made);
      tdict_segment_release(out);
    } else {
      num_refused++;
    }
    rig_nothing_leaked(before);
  }
  assert_true(num_refused > 10);
}
