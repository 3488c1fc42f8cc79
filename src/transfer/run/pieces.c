/* Copies the pieces of a chunk between leaves and slots, and queues copies between slots and devices. See pieces.h for
 * ownership and threads. */
#include "transfer/run/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/layout.h"

/* Each memmove copies at most this many bytes. For larger sizes memmove itself may use stores that bypass the cache,
 * but the tuning table must choose the stores. */
#define MEMCPY_PIECE ((size_t)1 << 20)
enum { PAGE = 4096 };
#define SINK_BUFFER ((size_t)1 << 20) /* bytes of the buffer for a leaf that is not in C order */
/* Prefetch distance in bytes of a thread that fills a slot, a multiple of 256. Most processors do not prefetch across a
 * page border by themselves. */
enum { AHEAD = 4096 };

typedef struct piece {
  const tdict_item *item;
  uint32_t number;
  size_t begin, end; /* byte range of the leaf, in C order */
  size_t at;         /* offset from the start of the chunk */
} piece;

/* Writes the next piece to *out and advances *number, which starts at chunk->first. Returns false at the end. */
static bool next_piece(const tdict_plan *plan, const tdict_chunk *chunk, uint32_t *number, piece *out) {
  for (; *number < plan->num_items; ++*number) {
    const tdict_item *item = &plan->items[*number];
    if (item->offset >= chunk->end) return false;
    size_t begin = chunk->begin > item->offset ? chunk->begin - item->offset : 0;
    size_t end = chunk->end - item->offset < item->bytes ? chunk->end - item->offset : item->bytes;
    if (begin >= end) continue;
    *out = (piece){item, *number, begin, end, item->offset + begin - chunk->begin};
    ++*number;
    return true;
  }
  return false;
}

/* Copies with memmove, because the buffers may overlap. If the buffers overlap, the copied bytes are unspecified, but
 * the behaviour is defined. */
static void copy_bytes(char *dst, const char *src, size_t bytes) {
  for (size_t at = 0; at < bytes; at += MEMCPY_PIECE)
    memmove(dst + at, src + at, bytes - at < MEMCPY_PIECE ? bytes - at : MEMCPY_PIECE);
}

static tdict_status copy_host_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)user, (void)err;
  tdict_rect_copy(rect);
  return TDICT_OK;
}

/* Subtracts from an address as an integer. A leaf may begin before the slot, and pointer arithmetic outside the slot
 * would be undefined. */
static void *shift_back(const void *address, size_t back) { return (void *)((uintptr_t)address - back); }

static void init_pair(tdict_pair *pair, const tdict_item *item, bool use_dst, bool use_src) {
  const tdict_tensor *t = item->src;
  const int64_t *dst = use_dst && item->dst ? tdict_tensor_dims_strides(item->dst) : NULL;
  const int64_t *src = use_src ? tdict_tensor_dims_strides(t) : NULL;
  tdict_pair_init(pair, t->ndim, t->dims, dst, src, tdict_dtype_bytes(t->dtype));
}

/* Reads the rows of a rectangle from an unloaded storage. */
static tdict_status read_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const tdict_storage *s = user;
  uintptr_t dst = (uintptr_t)rect->dst, src = (uintptr_t)rect->src;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < rect->height && status == TDICT_OK; i++) {
    status = tdict_storage_read(s, src - (uintptr_t)s->data, (void *)dst, rect->width, err);
    dst += (uintptr_t)rect->dst_pitch, src += (uintptr_t)rect->src_pitch;
  }
  return status;
}

/* Copies a strided piece, or reads a piece of an unloaded storage. Only reading can fail. */
static tdict_status copy_rows(const tdict_item *item, bool use_dst, bool use_src, const tdict_pair_part *part,
                              tdict_error *err) {
  tdict_storage *s = item->src->storage;
  const bool reads = use_src && tdict_storage_is_unloaded(s);
  tdict_pair pair;
  init_pair(&pair, item, use_dst, use_src);
  return tdict_pair_walk(&pair, part, reads ? read_rect : copy_host_rect, s, err);
}

static bool goes_to_sink(const tdict_item *item) { return item->dst && tdict_storage_is_sink(item->dst->storage); }

/* Writes bytes of a leaf to the leaf's sink. The bytes begin `at` bytes after the start of the leaf. */
static tdict_status write_sink(const tdict_item *item, size_t at, const char *bytes, size_t count, tdict_error *err) {
  const tdict_storage *s = item->dst->storage;
  return tdict_storage_write(s, (uintptr_t)item->dst_data - (uintptr_t)s->data + at, bytes, count, err);
}

/* Writes a piece of a host leaf to the leaf's sink. If the elements are not in memory in C order, fills a buffer first,
 * because a sink must not get many small rows. */
static tdict_status write_piece(const piece *p, tdict_error *err) {
  const tdict_item *item = p->item;
  const size_t bytes = p->end - p->begin, room = bytes < SINK_BUFFER ? bytes : SINK_BUFFER;
  if (item->src_plain) return write_sink(item, p->begin, (const char *)item->src->data + p->begin, bytes, err);
  char *buffer = malloc(room);
  if (!buffer) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for a buffer of %zu bytes", room);
  tdict_status status = TDICT_OK;
  for (size_t at = p->begin, end; at < p->end && status == TDICT_OK; at = end) {
    end = p->end - at < room ? p->end : at + room;
    status = copy_rows(item, false, true, &(tdict_pair_part){shift_back(buffer, at), item->src->data, at, end}, err);
    if (status == TDICT_OK) status = write_sink(item, at, buffer, end - at, err);
  }
  free(buffer);
  return status;
}

/* Returns the end of the padding: the next multiple of the leaf alignment, but at most `end`. */
static size_t padded_end(size_t filled, size_t end) {
  size_t next = (filled + TDICT_LEAF_ALIGNMENT - 1) / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
  return next < end ? next : end;
}

/* Copies a contiguous piece into the slot. Pads the piece with zeros to `padded` bytes. Prefetches the following piece
 * while the last bytes are copied. */
static void gather_plain(tdict_stream_kind stores, char *slot, const piece *p, size_t padded, const piece *following) {
  char *dst = slot + p->at;
  const char *src = p->item->src_data + p->begin, *next = NULL;
  const size_t bytes = p->end - p->begin, body = bytes > AHEAD ? (bytes - AHEAD) / 256 * 256 : 0;
  if (following && following->item->src_plain) next = following->item->src_data + following->begin;
  if (body) tdict_stream_copy_padded(stores, dst, src, body, body, src + AHEAD);
  tdict_stream_copy_padded(stores, dst + body, src + body, bytes - body, padded - body, next);
}

tdict_status tdict_pieces_gather(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_stream_kind stores,
                                 uint32_t *error_item, tdict_error *err) {
  uint32_t number = chunk->first;
  size_t filled = 0;
  tdict_status status = TDICT_OK;
  piece p, following;
  for (bool more = next_piece(plan, chunk, &number, &p); more; p = following) {
    more = next_piece(plan, chunk, &number, &following);
    if (p.at > filled) memset(slot + filled, 0, p.at - filled);
    filled = p.at + (p.end - p.begin);
    if (p.item->src_plain) {
      if (stores != TDICT_STREAM_PLAIN) filled = padded_end(filled, chunk->end - chunk->begin);
      gather_plain(stores, slot, &p, filled - p.at, more ? &following : NULL);
      continue;
    }
    status = copy_rows(p.item, false, true,
                       &(tdict_pair_part){shift_back(slot + p.at, p.begin), p.item->src->data, p.begin, p.end}, err);
    if (status == TDICT_OK) continue;
    *error_item = (uint32_t)(p.item - plan->items);
    break;
  }
  memset(slot + filled, 0, chunk->end - chunk->begin - filled);
  if (stores != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

/* Copies with stores of the given kind, or with memmove if the buffers overlap. */
static void copy_with_stores(tdict_stream_kind stores, char *dst, const char *src, size_t bytes) {
  bool apart = (uintptr_t)dst + bytes <= (uintptr_t)src || (uintptr_t)src + bytes <= (uintptr_t)dst;
  if (stores == TDICT_STREAM_PLAIN || !apart)
    copy_bytes(dst, src, bytes);
  else
    tdict_stream_copy(stores, dst, src, bytes);
}

tdict_status tdict_pieces_scatter(const tdict_plan *plan, const tdict_chunk *chunk, const char *slot,
                                  tdict_stream_kind stores, uint32_t *error_item, tdict_error *err) {
  uint32_t number = chunk->first;
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &number, &p);) {
    if (goes_to_sink(p.item))
      status = write_sink(p.item, p.begin, slot + p.at, p.end - p.begin, err);
    else if (p.item->dst_plain)
      copy_with_stores(stores, p.item->dst_data + p.begin, slot + p.at, p.end - p.begin);
    else
      (void)!copy_rows(p.item, true, false,
                       &(tdict_pair_part){p.item->dst_data, shift_back(slot + p.at, p.begin), p.begin, p.end}, NULL);
    if (status != TDICT_OK) *error_item = p.number;
  }
  if (stores != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

void tdict_pieces_touch(const tdict_plan *plan, const tdict_chunk *chunk) {
  uint32_t number = chunk->first;
  for (piece p; next_piece(plan, chunk, &number, &p);) {
    if (p.item->dst) return;
    for (size_t at = p.begin; at < p.end; at += PAGE) ((volatile char *)p.item->dst_data)[at] = 0;
  }
}

tdict_status tdict_pieces_copy(const tdict_plan *plan, const tdict_chunk *chunk, tdict_stream_kind stores,
                               uint32_t *error_item, tdict_error *err) {
  uint32_t number = chunk->first;
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &number, &p);) {
    if (p.item->src_plain && p.item->dst_plain) {
      copy_with_stores(stores, p.item->dst_data + p.begin, (const char *)p.item->src->data + p.begin, p.end - p.begin);
      continue;
    }
    const tdict_pair_part part = {p.item->dst_data, p.item->src->data, p.begin, p.end};
    status = goes_to_sink(p.item) ? write_piece(&p, err) : copy_rows(p.item, true, true, &part, err);
    if (status != TDICT_OK) *error_item = p.number;
  }
  if (stores != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

static tdict_status queue_rect_in(void *user, const tdict_rect *rect, tdict_error *err) {
  tdict_pieces_queue *q = user;
  return tdict_gpu_queue_rect(q->gpu, TDICT_CU_H2D, rect, q->stream, err);
}
static tdict_status queue_rect_out(void *user, const tdict_rect *rect, tdict_error *err) {
  tdict_pieces_queue *q = user;
  return tdict_gpu_queue_rect(q->gpu, TDICT_CU_D2H, rect, q->stream, err);
}

/* One contiguous copy between the address `device` and the offset `at` of the slot. */
typedef struct stretch {
  char *device;
  size_t at, bytes;
  bool open_ended; /* true: on the device, the bytes between the stretch and the next leaf belong to no tensor */
  const tdict_storage *storage;
  uint32_t item; /* the first item of the stretch */
} stretch;

static tdict_status queue_stretch(tdict_pieces_queue *q, tdict_cu_kind kind, const stretch *s, tdict_error *err) {
  if (!s->bytes) return TDICT_OK;
  q->item = s->item;
  bool in = kind == TDICT_CU_H2D;
  tdict_rect line = {in ? (void *)s->device : q->slot + s->at,
                     in ? (void *)(q->slot + s->at) : s->device,
                     (int64_t)s->bytes,
                     (int64_t)s->bytes,
                     s->bytes,
                     1};
  return tdict_gpu_queue_rect(q->gpu, kind, &line, q->stream, err);
}

/* Returns true if one copy can cover both stretches. Both must be in one storage, at the same distance on the device as
 * in the slot. Between them, the copy may overwrite only bytes that belong to no tensor. */
static bool extends(const stretch *s, const stretch *next) {
  if (!s->bytes || next->storage != s->storage) return false;
  if ((uintptr_t)next->device - (uintptr_t)s->device != next->at - s->at) return false;
  return next->at == s->at + s->bytes || s->open_ended;
}

/* Returns the stretch of a piece whose leaf is contiguous on the device. */
static stretch make_stretch(const piece *p, bool in) {
  const tdict_item *item = p->item;
  const tdict_tensor *device_tensor = in ? item->dst : item->src;
  return (stretch){(in ? item->dst_data : (char *)item->src->data) + p->begin,
                   p->at,
                   p->end - p->begin,
                   tdict_plan_gap_is_free(device_tensor),
                   device_tensor ? device_tensor->storage : NULL,
                   p->number};
}

bool tdict_pieces_line(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_cu_line *out) {
  const bool in = plan->items[chunk->first].kind == TDICT_CU_H2D, arena = in && !plan->writes_existing;
  uint32_t number = chunk->first;
  stretch run = {0};
  for (piece p; next_piece(plan, chunk, &number, &p);) {
    if (!(in ? p.item->dst_plain : p.item->src_plain)) return false;
    stretch next = make_stretch(&p, in);
    if (run.bytes && !extends(&run, &next)) return false;
    if (!run.bytes) run = next;
    run.bytes = next.at + next.bytes - run.at;
    run.open_ended = next.open_ended;
    if (!arena) continue;
    /* a new result has the layout of the line, so one copy covers the whole chunk */
    run.bytes = chunk->end - chunk->begin - run.at;
    break;
  }
  if (!run.bytes) return false;
  char *slot_data = slot + run.at;
  *out = in ? (tdict_cu_line){run.device, slot_data, run.bytes} : (tdict_cu_line){slot_data, run.device, run.bytes};
  return true;
}

tdict_status tdict_pieces_submit(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *q,
                                 tdict_error *err) {
  uint32_t number = chunk->first;
  stretch run = {0};
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &number, &p);) {
    const tdict_item *item = p.item;
    bool in = item->kind == TDICT_CU_H2D;
    if (!(in ? item->dst_plain : item->src_plain)) {
      q->item = p.number;
      void *packed = shift_back(q->slot + p.at, p.begin);
      tdict_pair pair;
      init_pair(&pair, item, in, !in);
      tdict_pair_part part = {in ? (void *)item->dst_data : packed, in ? packed : item->src->data, p.begin, p.end};
      status = tdict_pair_walk(&pair, &part, in ? queue_rect_in : queue_rect_out, q, err);
      continue;
    }
    stretch next = make_stretch(&p, in);
    if (extends(&run, &next)) {
      run.bytes = next.at + next.bytes - run.at;
      run.open_ended = next.open_ended;
      continue;
    }
    status = queue_stretch(q, (tdict_cu_kind)item->kind, &run, err);
    run = next;
  }
  if (status != TDICT_OK || !run.bytes) return status;
  return queue_stretch(q, (tdict_cu_kind)plan->items[run.item].kind, &run, err);
}
