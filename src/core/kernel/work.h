/* Declares works. A work describes one launch of a kernel: a list of entries of one operation, usually one entry for
 * each leaf of a tree. The functions of this header only build a work. The operation `run` of a memory launches the
 * work, see core/memory/memory.h.
 *
 * Addresses are addresses of the memory that runs the work. The functions of this header never dereference these
 * addresses. Sizes are counts, and strides are in bytes. The caller owns a work, and keeps the memory at its addresses
 * alive. Thread rule: a work belongs to one thread at a time. */
#ifndef TDICT_CORE_KERNEL_WORK_H
#define TDICT_CORE_KERNEL_WORK_H

#include "core/kernel/words.h"
#include "tdict/values.h"

typedef enum tdict_kernel_op {
  TDICT_KERNEL_COPY,    /* copies elements */
  TDICT_KERNEL_CONVERT, /* converts elements to another dtype */
  TDICT_KERNEL_FILL,    /* writes one element to all places */
  TDICT_KERNEL_CHECK,   /* finds positions outside of a dimension */
  TDICT_KERNEL_UNPACK,  /* restores packed elements, see pack.h */
  TDICT_KERNEL_WINDOW,  /* converts windows of images to floats */
  TDICT_KERNEL_NUM_OPS
} tdict_kernel_op;

enum { TDICT_KERNEL_MAX_LISTS = 8 };

/* A work. The entries are in the order in which they were added. */
typedef struct tdict_kernel_work {
  tdict_kernel_op op;
  /* True: the launch reports results, for CHECK, checked lists, and conversions to types that cannot hold all */
  bool has_results;
  size_t num_entries, cap_entries;
  uint64_t *entries; /* TDICT_WORDS_PER_ENTRY words for each entry, as in words.h */
  /* `run` sets one result for each entry. The result of CHECK and COPY is the smallest index of a position outside its
   * dimension. The result of CONVERT is the index, in C order, of the first element that the integer type cannot hold.
   * TDICT_KERNEL_NO_RESULT: there is no such position or element. */
  uint64_t *results;
  size_t num_words, cap_words;
  uint64_t *body;      /* layouts and positions */
  uint64_t num_blocks; /* 0: the work does nothing */
} tdict_kernel_work;

void tdict_kernel_work_init(tdict_kernel_work *work, tdict_kernel_op op);
/* Frees the arrays of the work. The work is then empty, and can be used again. */
void tdict_kernel_work_reset(tdict_kernel_work *work);

/* A list of positions for one indexed dimension. A negative position p means p + size. */
typedef struct tdict_kernel_list {
  uint64_t positions; /* of tdict_kernel_add_positions() or tdict_kernel_positions_at() */
  int64_t size;       /* size of the indexed dimension */
  int64_t stride;     /* bytes between two positions of the indexed dimension */
} tdict_kernel_list;

/* Copies positions of the host into the work. Several entries may use them. *out is for tdict_kernel_list. Returns
 * TDICT_ENOMEM. */
tdict_status tdict_kernel_add_positions(tdict_kernel_work *work, const int64_t *positions, int64_t count, uint64_t *out,
                                        tdict_error *err);
/* Returns the tdict_kernel_list of int64 positions in the memory that runs the work, at a multiple of 8. */
static inline uint64_t tdict_kernel_positions_at(const void *address) { return (uint64_t)(uintptr_t)address; }

/* The elements of an entry. `dst` and `src` are the addresses of the elements with index 0. Element [i, j, ...] of the
 * destination is written from element [i, j, ...] of the source, which must not overlap it. If a stride of 0 or
 * repeated positions give elements of the destination one address, it holds one of their values, which is
 * unspecified. */
typedef struct tdict_kernel_move {
  void *dst;
  const void *src; /* ignored by FILL */
  int ndim;        /* at most TDICT_KERNEL_MAX_NDIM; 0: one element */
  const int64_t *shape;
  const int64_t *dst_strides, *src_strides; /* FILL ignores src_strides */
  size_t item_bytes;                        /* bytes of an element; ignored by CONVERT */
  /* If num_lists is not 0, lists index dimension `listed` of one side, whose stride is ignored. Index i adds, for each
   * list, its position number i times its stride. Each list has shape[listed] positions, which must be in range, or are
   * checked by CHECK or `is_checked`. */
  int listed;
  bool scatter; /* true: the lists index the destination; false: the source */
  /* True: the launch checks the positions of the lists. The result of the entry is the smallest index of a position
   * outside its dimension. In place of such a position, the launch uses position 0. No list may have the size 0. */
  bool is_checked;
  bool is_guarded; /* true: the launch copies no element if a checked position is outside its dimension */
  int num_lists;
  const tdict_kernel_list *lists;
} tdict_kernel_move;
enum { TDICT_KERNEL_MAX_NDIM = 33 };

/* Adds the copy of elements of any type. Returns TDICT_EOVERFLOW if the work needs more blocks than a launch can have,
 * TDICT_ENOMEM, or TDICT_EINVAL if a member of the move is out of range. After an error, the work is unchanged. */
tdict_status tdict_kernel_add_copy(tdict_kernel_work *work, const tdict_kernel_move *move, tdict_error *err);

/* Adds the last copy, conversion or fill again, with other addresses. For a fill, `src` is NULL. All else must be
 * equal. If the work is empty or the addresses have another alignment, sets *done to false and adds nothing. Returns
 * the errors of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_repeat(tdict_kernel_work *work, void *dst, const void *src, bool *done, tdict_error *err);
/* Makes space for `entries` more, so that adding them does not copy the array. Returns TDICT_ENOMEM. */
tdict_status tdict_kernel_work_reserve(tdict_kernel_work *work, size_t entries, tdict_error *err);

/* A conversion of elements, by a kernel or by the host. */
typedef struct tdict_cast {
  tdict_dtype to, from; /* tdict_cast_elements() copies the elements if the dtypes are equal */
  bool is_scaled;       /* true: an element x becomes x * scale + offset, computed in float32 and rounded twice */
  float scale, offset;
} tdict_cast;
/* Returns true if elements convert: both dtypes are known, of one lane, and complex ones only to complex. */
bool tdict_kernel_converts(tdict_dtype to, tdict_dtype from);
/* Returns true if `to` is an integer type that cannot hold all numbers of `from`. */
bool tdict_kernel_cast_can_fail(const tdict_cast *cast);
/* Adds the conversion of elements. Results are those of tdict_convert(). Elements that an integer type cannot hold are
 * not written. Returns TDICT_ENOTSUP if tdict_kernel_converts() returns false for the pair, or if is_scaled is true and
 * `to` is complex. Also returns the errors of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_add_convert(tdict_kernel_work *work, const tdict_kernel_move *move, const tdict_cast *cast,
                                      tdict_error *err);
/* Adds a fill with a copy of an element of 1 to 16 bytes. Returns the errors of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_add_fill(tdict_kernel_work *work, const tdict_kernel_move *move, const void *element,
                                   tdict_error *err);
/* Adds the check that `count` positions, as in tdict_kernel_list, are at least -size and below size. Returns the errors
 * of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_add_check(tdict_kernel_work *work, uint64_t positions, int64_t count, int64_t size,
                                    tdict_error *err);

/* Adds an entry that restores packed elements. An element has `item_bytes` bytes: 1, 2, 4 or 8. The restored elements
 * are adjacent at `dst`, and have `bytes` bytes together. `packed` is an address of the memory that runs the work, and
 * a multiple of 16. Returns the errors of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_add_unpack(tdict_kernel_work *work, void *dst, const void *packed, size_t bytes,
                                     size_t item_bytes, tdict_error *err);

/* Windows of images of bytes, which become images of floats. A pixel has adjacent channels, and the pixels of a row are
 * adjacent in the source. The elements of the windows are numbered by sample, row, column and channel. Strides of the
 * destination are in bytes. */
typedef struct tdict_kernel_windows {
  void *dst;          /* the first element of the result */
  const void *src;    /* the first image; if is_cut is true, the element number `first` */
  tdict_dtype to;     /* TDICT_F16, TDICT_BF16 or TDICT_F32 */
  bool is_cut;        /* true: the source has only the elements of the windows, without gaps */
  bool is_on_host;    /* true: the source is in host memory. Few blocks then read it, because the link is slow */
  size_t first, last; /* the elements [first, last) are written */
  uint64_t channels, height, width;       /* of a window; 1 to TDICT_WINDOW_CHANNELS channels */
  uint64_t image_height, image_width;     /* not used if is_cut is true */
  uint64_t sample, row, pixel, channel;   /* strides of the destination */
  const uint64_t *places;                 /* for each sample the place of its window, see TDICT_PLACE_TOP */
  uint64_t scales[TDICT_WINDOW_CHANNELS]; /* for each channel, see TDICT_CONVERT_SCALE */
} tdict_kernel_windows;
/* Adds windows. The source has at least one element. Returns the errors of tdict_kernel_add_copy(). */
tdict_status tdict_kernel_add_windows(tdict_kernel_work *work, const tdict_kernel_windows *w, tdict_error *err);

static inline size_t tdict_kernel_table_words(const tdict_kernel_work *work) {
  return TDICT_WORDS_PER_ENTRY * work->num_entries + work->num_words;
}
void tdict_kernel_write_table(const tdict_kernel_work *work, uint64_t *out);
/* Returns the name of the kernel of an operation, in the module of device/kernels/image.h. */
const char *tdict_kernel_name(tdict_kernel_op op);

#endif
