/* Collects the moves of elements that an operation on a tree makes on devices. One launch for each memory then makes
 * the moves. Copies in host memory, and copies between the host and a device, are made at once. The caller owns the
 * struct. The struct borrows all storages until the moves have run. Thread rule: one thread at a time. */
#ifndef TDICT_CORE_OPS_DEVICE_MOVES_H
#define TDICT_CORE_OPS_DEVICE_MOVES_H

#include "core/kernel/work.h"
#include "core/memory/storage.h"
#include "core/tensor/affine.h"
#include "core/tree/node.h"

enum { TDICT_MOVE_FILL_BYTES = 16 }; /* the largest element that a launch can fill */

/* One move. Records belong to a tdict_moves. */
typedef struct tdict_move {
  tdict_kernel_op op;       /* COPY, FILL or CONVERT */
  tdict_memory *memory;     /* runs the move */
  tdict_storage *dst, *src; /* src is NULL for a fill */
  void *dst_data;
  const void *src_data;
  tdict_dtype dtype, src_dtype;                 /* of the destination and of the source */
  size_t entry;                                 /* CONVERT: number of the entry of the tree, for errors */
  unsigned char element[TDICT_MOVE_FILL_BYTES]; /* FILL */
  int ndim;
  /* Offset in the array of numbers: sizes, strides of destination and source in elements, and strides of lists */
  size_t numbers;
  int listed;   /* the listed dimension, whose stride is 0 on the indexed side; -1: none */
  bool scatter; /* true: the lists index the destination; false: the source */
  bool repeats; /* true: only the addresses and the storages differ from the move before */
} tdict_move;

/* Positions along one dimension, which replace the index of a listed dimension. */
typedef struct tdict_move_list {
  const int64_t *positions;   /* on the host; none is negative; borrowed; may be NULL if `tensor` is not NULL */
  int64_t step;               /* distance from one position to the next in `positions`, in elements */
  const tdict_tensor *tensor; /* the same positions on a device, adjacent; they may be negative. NULL: none. Borrowed */
  int64_t size;               /* size of the indexed dimension */
  bool is_unchecked;          /* true: positions in `tensor` may be outside the dimension; tdict_moves_run() checks */
} tdict_move_list;
/* The lists of an operation. Every listed move of the operation uses all of these lists. */
typedef struct tdict_move_lists {
  int count;
  int64_t num_positions;
  tdict_move_list list[TDICT_MAX_NDIM];
} tdict_move_lists;

/* All moves of one struct have the same operation. */
typedef struct tdict_moves {
  const char *what;
  const tdict_stream *stream; /* NULL: tdict_moves_run() waits until the moves are made */
  const tdict_move_lists *lists;
  /* True: if a position of an unchecked list is bad, tdict_moves_run() writes nothing. Operations that make new tensors
   * leave this false, because nobody sees what they have written. */
  bool checks_first;
  /* true: on a stream, the call waits for the copies. The call has waited for the check of the lists already, and with
   * many storages, a wait takes less time than a use for each storage */
  bool waits_for_copies;
  bool has_checked_lists;  /* true: a launch has checked all unchecked lists, and no position is bad */
  bool found_bad_position; /* true: a launch has found a bad position, so tdict_moves_run() has failed */
  tdict_move *moves;
  size_t count, cap;
  int64_t *numbers; /* shapes, strides and list strides of all moves */
  size_t num_numbers, cap_numbers;
  bool has_failed_entry; /* true: tdict_moves_run() has set failed_entry */
  size_t failed_entry;
  tdict_kernel_work built; /* the launch of the first num_built moves */
  size_t num_built;        /* 0: tdict_moves_build() has built no launch */
} tdict_moves;

/* Frees the arrays, and the launch of tdict_moves_build(). Also allowed if no move was ever added. */
void tdict_moves_reset(tdict_moves *moves);

/* Returns true if moves of this tensor are queued on a stream. The calling thread must then not wait for the bytes. */
static inline bool tdict_moves_are_queued(const tdict_moves *moves, const tdict_tensor *t) {
  return moves && moves->stream && !tdict_is_on_host(t);
}
/* Checks like tdict_tensor_check_copy(). Also returns TDICT_ENOTSUP or TDICT_EWRONGDEVICE if the copy cannot be queued
 * on the stream. `moves` may be NULL. */
tdict_status tdict_moves_check_devices(const tdict_moves *moves, const char *what, const tdict_tensor *dst,
                                       const tdict_tensor *src, tdict_error *err);
/* Checks like tdict_check_copy(), but does not wait if the moves are queued on a stream. Also returns the errors of
 * tdict_moves_check_devices(). `moves` may be NULL. */
tdict_status tdict_moves_check_copy(const tdict_moves *moves, const char *what, const tdict_tensor *dst,
                                    const tdict_tensor *src, tdict_error *err);
/* Returns TDICT_ENOTSUP if the moves are queued on a stream and the tree has an object other than text, numbers and
 * JSON. The reason is that hooks and elements of objects are not ordered with the stream. err->path is then the path of
 * the object. Also returns TDICT_EWRONGDEVICE for a stream of the cpu, and TDICT_ENOMEM. `moves` may be NULL. */
tdict_status tdict_moves_check_objects(const tdict_moves *moves, const tdict_tree *tree, tdict_error *err);
/* Returns true if tdict_moves_copy() adds copies between two storages on devices instead of copying at once. */
bool tdict_moves_can_launch(const tdict_storage *dst, const tdict_storage *src);
/* Adds the copy of a tensor, or copies at once. The dtypes and shapes are equal, and the destination is not read-only.
 * If `moves` is NULL, calls tdict_tensor_copy(). Returns TDICT_ENOMEM, TDICT_EINVAL for lost bytes, and the errors of
 * tdict_tensor_copy() and, on a stream, of tdict_moves_check_devices(). */
tdict_status tdict_moves_copy(tdict_moves *moves, tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);

/* Waits until the host can read a tensor on a device: for writes to it, and for the stream if it is of this device.
 * Returns the errors of the memory's operation `run`. */
tdict_status tdict_moves_await_source(const tdict_moves *moves, const tdict_tensor *t, tdict_error *err);
/* Returns true if a tensor of positions on a device can be a list of a move. */
bool tdict_moves_take_list(const tdict_tensor *list);
/* Checks the positions of a list on a device by a launch, after the work that tdict_moves_await_source() waits for.
 * Waits for the launch. Sets *bad to the index of the first position that is not in [-size, size), or to -1. Returns
 * TDICT_ENOMEM, TDICT_EOVERFLOW for too many positions, and the errors of the memory's operation `run`. */
tdict_status tdict_moves_check_list(const tdict_moves *moves, const tdict_tensor *list, int64_t size, int64_t *bad,
                                    tdict_error *err);
/* Returns true if moves between two tensors can use a list on a device. */
bool tdict_moves_reach_list(const tdict_tensor *a, const tdict_tensor *b, const tdict_tensor *list);
/* Checks that a tensor can be filled with an element: like tdict_element_check(), but a launch can write any element of
 * at most TDICT_MOVE_FILL_BYTES bytes. Also returns the errors of tdict_moves_check_devices(). */
tdict_status tdict_moves_check_fill(const tdict_moves *moves, const tdict_tensor *t, const void *element,
                                    tdict_error *err);
/* Adds the fill of a tensor that passes tdict_moves_check_fill(), or fills at once. All fills of one struct with one
 * dtype have the same element. Errors: tdict_element_fill(). */
tdict_status tdict_moves_fill(tdict_moves *moves, const tdict_tensor *t, const void *element, tdict_error *err);

/* Checks that a tensor can be converted to a new tensor in `memory`. NULL: for a tensor on a device the memory of that
 * tensor, else plain host memory. Returns the errors of tdict_convert_check() and tdict_convert_check_memory() for a
 * tensor in host memory. On a device, returns TDICT_ENOTSUP for an unsupported pair of dtypes, and TDICT_EWRONGDEVICE
 * if `memory` or the stream belongs to another device, or no launch of `memory` can read the tensor. */
tdict_status tdict_moves_check_convert(const tdict_moves *moves, tdict_dtype to, tdict_memory *memory,
                                       const tdict_tensor *from, tdict_error *err);
/* Adds the conversion of a tensor that passes tdict_moves_check_convert(), or converts at once. `entry` is the number
 * of the entry in cursor order. Returns TDICT_ENOMEM and the errors of tdict_convert_tensor(). */
tdict_status tdict_moves_convert(tdict_moves *moves, tdict_tensor *dst, const tdict_tensor *src, size_t entry,
                                 tdict_error *err);

/* A copy between elements that lists select, and another tensor. */
typedef struct tdict_listed_copy {
  const tdict_tensor *indexed, *other;
  bool writes_indexed;        /* true: copies from `other` to `indexed` */
  const tdict_made *position; /* the elements of `indexed` at index 0 of each dimension that a list indexes */
  int listed;                 /* dimension of `other` with one index for each position of the lists */
  const int64_t *strides;     /* stride of each list in elements of `indexed` */
} tdict_listed_copy;
/* Returns true if tdict_moves_add_listed() can add the copy. If not, the caller copies each position separately. */
bool tdict_moves_take_listed(const tdict_moves *moves, const tdict_tensor *indexed, const tdict_tensor *other);
/* Adds a copy by moves->lists. The caller has checked that no source bytes are lost. Returns TDICT_ENOMEM, and
 * TDICT_EWRONGDEVICE if the stream belongs to another device. */
tdict_status tdict_moves_add_listed(tdict_moves *moves, const tdict_listed_copy *copy, tdict_error *err);
/* Adds a copy that differs from the last move, which one of these two added, in its tensors only: dtypes, sizes,
 * strides and memories are equal. The first selected element begins `offset` bytes after the first element of
 * `indexed`. Returns TDICT_ENOMEM. */
tdict_status tdict_moves_repeat_listed(tdict_moves *moves, const tdict_tensor *indexed, const tdict_tensor *other,
                                       uintptr_t offset, tdict_error *err);

/* Builds the launch of all moves that were added, so that tdict_moves_run() only launches it. A caller that waits for
 * the bytes of the moves can build the launch during the wait. Allocates host memory only, and accesses no elements.
 * Builds nothing if the moves have a stream, lists or two memories, or are not copies. tdict_moves_run() then builds
 * the launches, as it also does if a move is added after the build. Returns TDICT_ENOMEM, and TDICT_EOVERFLOW for too
 * many elements. After an error, the moves are unchanged. */
tdict_status tdict_moves_build(tdict_moves *moves, tdict_error *err);
/* Makes all moves that were added, or queues them on the stream. The moves run after the transfers and uses of their
 * bytes. Later transfers, and calls that read or write the bytes, run after the moves. Written bytes are no longer
 * lost. The struct is then empty. Returns TDICT_EOVERFLOW for an element that the integer dtype of a conversion cannot
 * hold, and sets moves->failed_entry to the entry of this conversion. If a position of an unchecked list is bad,
 * returns TDICT_EINVAL and sets moves->found_bad_position. Returns TDICT_ENOMEM, TDICT_EOVERFLOW for too many elements,
 * and the errors of the memory's operation `run`. */
tdict_status tdict_moves_run(tdict_moves *moves, tdict_error *err);

#endif
