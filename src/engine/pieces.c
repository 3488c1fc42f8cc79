/* Copies pieces between leaves and slots, and queues copies of slots. See pieces.h for ownership and threads. */
#include "engine/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/tensor/convert_tensor.h"
#include "engine/kinds/device_cast.h"
#include "engine/kinds/leaf_bytes.h"
#include "engine/kinds/pack.h"
#include "engine/kinds/windows.h"

/* Each memmove copies at most this many bytes. For more, memmove itself may bypass the cache, which the tuning table
 * must decide. */
#define MEMCPY_PIECE ((size_t)1 << 20)
enum { PAGE = 4096 };
#define SINK_BUFFER ((size_t)1 << 20) /* bytes of the buffer for a leaf that is not in C order */
/* Bytes of the buffer from which elements are packed. The buffer is large enough for efficient reads of files. */
enum { PACK_BUFFER = 8 * TDICT_PACK_BLOCK_BYTES };
/* Elements of a block that passes through a buffer: enough for efficient reads and writes of files. */
enum { CAST_BLOCK = 16384 };
/* Prefetch distance in bytes, a multiple of 256: most processors do not prefetch across pages. */
enum { AHEAD = 4096 };

typedef struct piece {
  const tdict_item *item;
  uint32_t number;
  size_t begin, end; /* byte range in the leaf, in C order; if the elements are converted, in the result's leaf */
  size_t at;         /* offset from the start of the chunk; for a chunk with a slot, offset in the slot */
  size_t wire_begin, wire_end; /* the same elements as bytes in the slot's dtype; if packed, wire_end - wire_begin is
                                * the size of the packed elements */
  const tdict_item_cast *cast; /* NULL: the elements are neither converted nor packed */
  const tdict_cast *host;      /* conversion by this thread; NULL: the thread copies the elements */
} piece;
/* The place of a walk through the pieces of a chunk. */
typedef struct walk {
  uint32_t number; /* the next item; begins with chunk->first */
  size_t filled;   /* bytes of the slot before the next piece */
  /* the slot, which has the sizes of packed elements. NULL while the slot is being filled; the walk then does not know
   * the places of pieces after packed elements */
  const char *slot;
} walk;

/* Returns the next multiple of the leaf alignment. */
static size_t next_place(size_t filled) {
  return (filled + TDICT_LEAF_ALIGNMENT - 1) / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
}

/* Sets the fields of a piece that depend on conversions. If the elements in slots can have other sizes than on the
 * line, places the pieces of a slot one after another, each at a multiple of 256 bytes. */
static void set_casts(const tdict_plan *plan, walk *w, piece *p) {
  const tdict_item_cast *c = p->cast = tdict_plan_cast(plan, p->number);
  if (c) {
    const size_t to = tdict_dtype_bytes(c->cast.to), wire = tdict_dtype_bytes(c->wire);
    p->host = c->by_host ? &c->host : NULL;
    p->wire_begin = p->begin / to * wire;
    p->wire_end = p->end / to * wire;
  }
  if (p->item->way != TDICT_WAY_STAGE_OUT && (p->item->way != TDICT_WAY_STAGE_IN || !plan->wire->slots_differ)) return;
  p->at = next_place(w->filled);
  if (c && c->is_packed && w->slot) p->wire_end = p->wire_begin + tdict_pack_size(w->slot + p->at);
  w->filled = p->at + p->wire_end - p->wire_begin;
}

/* Writes the next piece to *out and advances the walk. Returns false at the end. */
static bool next_piece(const tdict_plan *plan, const tdict_chunk *chunk, walk *w, piece *out) {
  for (; w->number < plan->num_items; ++w->number) {
    const tdict_item *item = &plan->items[w->number];
    if (item->offset >= chunk->end) return false;
    size_t begin = chunk->begin > item->offset ? chunk->begin - item->offset : 0;
    size_t end = chunk->end - item->offset < item->bytes ? chunk->end - item->offset : item->bytes;
    if (begin >= end) continue;
    *out = (piece){item, w->number, begin, end, item->offset + begin - chunk->begin, begin, end, NULL, NULL};
    if (plan->wire) set_casts(plan, w, out);
    ++w->number;
    return true;
  }
  return false;
}

/* The conversion of a piece. A buffer is NULL if the leaf is in memory in C order, or the elements are in a slot. */
typedef struct casting {
  const piece *piece;
  size_t first;     /* the first element of the piece */
  const char *from; /* the elements in the slot; NULL: the source leaf */
  char *to;         /* the elements in the slot; NULL: the destination leaf */
  char *from_buffer, *to_buffer;
} casting;

/* Converts the elements [first, first + count) of the item. If a buffer is used, they must fit into it. */
static tdict_status cast_block(const casting *c, size_t first, size_t count, tdict_error *err) {
  const tdict_item *item = c->piece->item;
  const tdict_cast *cast = c->piece->host;
  const size_t from_bytes = tdict_dtype_bytes(cast->from), to_bytes = tdict_dtype_bytes(cast->to);
  const size_t read = first * from_bytes, written = first * to_bytes, slot = first - c->first;
  const char *from = c->from ? c->from + slot * from_bytes : c->from_buffer ? c->from_buffer : item->src_data + read;
  char *to = c->to ? c->to + slot * to_bytes : c->to_buffer ? c->to_buffer : item->dst_data + written;
  if (c->from_buffer) {
    const tdict_pair_span span = {tdict_shift_back(from, read), item->src->data, read, read + count * from_bytes};
    tdict_status status = tdict_leaf_copy(item, false, true, &span, err);
    if (status != TDICT_OK) return status;
  }
  /* Threads of the library have the default environment already, but a hook can change it. */
  const tdict_float_env saved = tdict_float_env_enter();
  const size_t fitting = tdict_cast_elements(tdict_stream_best(), cast, to, from, count);
  tdict_float_env_leave(&saved);
  if (fitting < count)
    return tdict_convert_overflow("transfer", cast->to, item->src, first + fitting, from + fitting * from_bytes, err);
  if (!c->to_buffer) return TDICT_OK;
  if (tdict_leaf_goes_to_sink(item)) return tdict_leaf_write_sink(item, written, to, count * to_bytes, err);
  const tdict_pair_span span = {item->dst_data, tdict_shift_back(to, written), written, written + count * to_bytes};
  return tdict_leaf_copy(item, true, false, &span, err);
}

/* Converts a piece from the leaf or the slot `from` to the leaf or the slot `to`. A NULL address means the leaf. Leaves
 * that are not in memory in C order are copied through a buffer. */
static tdict_status cast_piece(const piece *p, void *to, const void *from, tdict_error *err) {
  const size_t item_bytes = tdict_dtype_bytes(p->cast->cast.to);
  const size_t first = p->begin / item_bytes, count = (p->end - p->begin) / item_bytes;
  if (p->cast->images) {
    tdict_windows_convert(p->item, p->cast, first, count);
    return TDICT_OK;
  }
  const bool buffers_from = !from && !p->item->src_plain, buffers_to = !to && !p->item->dst_plain;
  const size_t most = (buffers_from || buffers_to) && count > CAST_BLOCK ? CAST_BLOCK : count;
  casting c = {p, first, from, to, NULL, NULL};
  if (buffers_from) c.from_buffer = malloc(most * tdict_dtype_bytes(p->host->from));
  if (buffers_to) c.to_buffer = malloc(most * tdict_dtype_bytes(p->host->to));
  tdict_status status = TDICT_OK;
  if ((buffers_from && !c.from_buffer) || (buffers_to && !c.to_buffer))
    status = tdict_fail_memory(err, "transfer", NULL, "a buffer of %zu elements", most);
  for (size_t at = 0, some; at < count && status == TDICT_OK; at += some) {
    some = count - at < most ? count - at : most;
    status = cast_block(&c, first + at, some, err);
  }
  free(c.from_buffer);
  free(c.to_buffer);
  return status;
}

/* Copies with memmove, because the buffers may overlap. The bytes are then unspecified, but the behaviour is
 * defined. */
static void copy_bytes(char *dst, const char *src, size_t bytes) {
  for (size_t at = 0; at < bytes; at += MEMCPY_PIECE)
    memmove(dst + at, src + at, bytes - at < MEMCPY_PIECE ? bytes - at : MEMCPY_PIECE);
}

/* Reads a piece whose source is not in C order in memory. Passes the elements to `use` in blocks of at most `room`
 * bytes. `at` is the place of a block in the leaf. */
static tdict_status read_blocks(const piece *p, size_t room,
                                tdict_status (*use)(const piece *p, void *user, size_t at, const char *block,
                                                    size_t bytes, tdict_error *err),
                                void *user, tdict_error *err) {
  if (p->end - p->begin < room) room = p->end - p->begin;
  char *buffer = malloc(room);
  if (!buffer) return tdict_fail_memory(err, "transfer", NULL, "a buffer of %zu bytes", room);
  tdict_status status = TDICT_OK;
  for (size_t at = p->begin, end; at < p->end && status == TDICT_OK; at = end) {
    end = p->end - at < room ? p->end : at + room;
    const tdict_pair_span span = {tdict_shift_back(buffer, at), p->item->src->data, at, end};
    status = tdict_leaf_copy(p->item, false, true, &span, err);
    if (status == TDICT_OK) status = use(p, user, at, buffer, end - at, err);
  }
  free(buffer);
  return status;
}

static tdict_status write_block(const piece *p, void *user, size_t at, const char *block, size_t bytes,
                                tdict_error *err) {
  (void)user;
  return tdict_leaf_write_sink(p->item, at, block, bytes, err);
}

/* Writes a piece to its sink. If the source is not in C order, copies through a buffer, because a sink must not get
 * many small rows. */
static tdict_status write_piece(const piece *p, tdict_error *err) {
  if (!p->item->src_plain) return read_blocks(p, SINK_BUFFER, write_block, NULL, err);
  return write_block(p, NULL, p->begin, (const char *)p->item->src->data + p->begin, p->end - p->begin, err);
}

/* Returns the end of the padding: the next multiple of the leaf alignment, but at most `end`. */
static size_t padded_end(size_t filled, size_t end) { return next_place(filled) < end ? next_place(filled) : end; }

/* Returns where a thread will read a piece. NULL: no piece, a conversion, or not in C order in memory. */
static const char *start_of(const piece *p) {
  return p && !p->host && p->item->src_plain ? p->item->src_data + p->wire_begin : NULL;
}

static tdict_status pack_block(const piece *p, void *user, size_t at, const char *block, size_t bytes,
                               tdict_error *err) {
  (void)p, (void)at, (void)err;
  tdict_pack_add(user, block, bytes);
  return TDICT_OK;
}

/* Packs a piece into the slot for the option `narrow`, and sets *filled to the end of the packed elements. */
static tdict_status pack_piece(const piece *p, char *slot, tdict_stream_kind stores, size_t *filled, tdict_error *err) {
  tdict_packer packer = {.kind = tdict_stream_best(), .stores = stores};
  const size_t bytes = p->end - p->begin;
  tdict_status status = TDICT_OK;
  tdict_pack_begin(&packer, p->item->src->dtype, slot + p->at, bytes);
  if (p->item->src_plain)
    tdict_pack_add(&packer, p->item->src_data + p->begin, bytes);
  else
    status = read_blocks(p, PACK_BUFFER, pack_block, &packer, err);
  if (status == TDICT_OK) *filled = p->at + tdict_pack_end(&packer);
  return status;
}

/* Copies a contiguous piece into the slot, padded with zeros. Prefetches the next one during the last bytes. */
static void gather_plain(tdict_stream_kind stores, char *slot, const piece *p, size_t padded, const piece *following) {
  char *dst = slot + p->at;
  const char *src = p->item->src_data + p->wire_begin;
  const size_t bytes = p->wire_end - p->wire_begin, body = bytes > AHEAD ? (bytes - AHEAD) / 256 * 256 : 0;
  if (body) tdict_stream_copy_padded(stores, dst, src, body, body, src + AHEAD);
  tdict_stream_copy_padded(stores, dst + body, src + body, bytes - body, padded - body, start_of(following));
}

tdict_status tdict_pieces_gather(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_stream_kind stores,
                                 uint32_t *error_item, tdict_error *err) {
  walk w = {chunk->first, 0, NULL};
  /* if slots can have elements of other sizes than the line, all pieces with their padding fit into the slot */
  const bool differs = plan->wire && plan->wire->slots_differ;
  const size_t room = differs ? SIZE_MAX : chunk->end - chunk->begin;
  size_t filled = 0;
  tdict_status status = TDICT_OK;
  piece p, following;
  for (bool more = next_piece(plan, chunk, &w, &p); more; p = following) {
    more = next_piece(plan, chunk, &w, &following);
    if (differs) p.at = next_place(filled);
    if (p.at > filled) memset(slot + filled, 0, p.at - filled);
    filled = p.at + (p.wire_end - p.wire_begin);
    if (p.host) {
      status = cast_piece(&p, slot + p.at, NULL, err);
    } else if (p.cast && p.cast->is_packed) {
      status = pack_piece(&p, slot, stores, &filled, err);
    } else if (p.cast && p.cast->images) {
      tdict_windows_gather(p.item, p.cast->images, p.wire_begin, p.wire_end - p.wire_begin, slot + p.at, stores);
    } else if (p.item->src_plain) {
      if (stores != TDICT_STREAM_PLAIN) filled = padded_end(filled, room);
      gather_plain(stores, slot, &p, filled - p.at, more ? &following : NULL);
    } else {
      const tdict_pair_span span = {tdict_shift_back(slot + p.at, p.wire_begin), p.item->src->data, p.wire_begin,
                                    p.wire_end};
      status = tdict_leaf_copy(p.item, false, true, &span, err);
    }
    if (status == TDICT_OK) continue;
    *error_item = (uint32_t)(p.item - plan->items);
    break;
  }
  if (!differs) memset(slot + filled, 0, room - filled);
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
  walk w = {chunk->first, 0, NULL};
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &w, &p);) {
    if (p.host)
      status = cast_piece(&p, NULL, slot + p.at, err);
    else if (tdict_leaf_goes_to_sink(p.item))
      status = tdict_leaf_write_sink(p.item, p.begin, slot + p.at, p.end - p.begin, err);
    else if (p.item->dst_plain)
      copy_with_stores(stores, p.item->dst_data + p.begin, slot + p.at, p.end - p.begin);
    else
      (void)!tdict_leaf_copy(
          p.item, true, false,
          &(tdict_pair_span){p.item->dst_data, tdict_shift_back(slot + p.at, p.begin), p.begin, p.end}, NULL);
    if (status != TDICT_OK) *error_item = p.number;
  }
  if (stores != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

void tdict_pieces_touch(const tdict_plan *plan, const tdict_chunk *chunk) {
  walk w = {chunk->first, 0, NULL};
  for (piece p; next_piece(plan, chunk, &w, &p);) {
    if (p.item->dst) return;
    for (size_t at = p.begin; at < p.end; at += PAGE) ((volatile char *)p.item->dst_data)[at] = 0;
  }
}

tdict_status tdict_pieces_copy(const tdict_plan *plan, const tdict_chunk *chunk, tdict_stream_kind stores,
                               uint32_t *error_item, tdict_error *err) {
  walk w = {chunk->first, 0, NULL};
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &w, &p);) {
    const tdict_pair_span span = {p.item->dst_data, p.item->src->data, p.begin, p.end};
    if (p.host)
      status = cast_piece(&p, NULL, NULL, err);
    else if (p.item->src_plain && p.item->dst_plain)
      copy_with_stores(stores, p.item->dst_data + p.begin, (const char *)p.item->src->data + p.begin, p.end - p.begin);
    else
      status = tdict_leaf_goes_to_sink(p.item) ? write_piece(&p, err) : tdict_leaf_copy(p.item, true, true, &span, err);
    if (status != TDICT_OK) *error_item = p.number;
  }
  if (stores != TDICT_STREAM_PLAIN) tdict_stream_fence();
  return status;
}

static tdict_status queue_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  const tdict_pieces_queue *q = user;
  return tdict_gpu_queue_rect(q->gpu, q->kind, rect, q->stream, err);
}

/* One contiguous copy between the address `device` and the offset `at` of the slot. */
typedef struct stretch {
  char *device;
  size_t at, bytes;
  bool open_ended; /* true: on the device, the bytes between the stretch and the next leaf belong to no tensor */
  const tdict_storage *storage;
  uint32_t item; /* the first item of the stretch */
} stretch;

static tdict_status queue_stretch(tdict_pieces_queue *q, const stretch *s, tdict_error *err) {
  if (!s->bytes) return TDICT_OK;
  q->item = s->item;
  bool in = q->kind == TDICT_CU_H2D;
  tdict_rect line = {in ? (void *)s->device : q->slot + s->at,
                     in ? (void *)(q->slot + s->at) : s->device,
                     (int64_t)s->bytes,
                     (int64_t)s->bytes,
                     s->bytes,
                     1};
  return queue_rect(q, &line, err);
}

/* Returns true if one copy can cover both stretches. Both stretches must be in one storage, and as far apart on the
 * device as in the slot. If there is a gap between the stretches, the gap must belong to no tensor. */
static bool extends(const stretch *s, const stretch *next) {
  if (!s->bytes || next->storage != s->storage) return false;
  if ((uintptr_t)next->device - (uintptr_t)s->device != next->at - s->at) return false;
  return next->at == s->at + s->bytes || s->open_ended;
}

/* Returns the stretch of a piece whose leaf is contiguous on the device. */
static stretch make_stretch(const piece *p, bool in) {
  const tdict_item *item = p->item;
  const tdict_tensor *device_tensor = in ? item->dst : item->src;
  return (stretch){(in ? item->dst_data : (char *)item->src->data) + p->wire_begin,
                   p->at,
                   p->wire_end - p->wire_begin,
                   tdict_plan_gap_is_free(device_tensor),
                   device_tensor ? device_tensor->storage : NULL,
                   p->number};
}

static bool uses_kernel(const piece *p) { return p->cast && p->cast->by_device; }

/* Returns the stretch of a piece in the scratch memory of the slot, which has the layout of the slot. */
static stretch make_scratch_stretch(const tdict_pieces_queue *q, const piece *p) {
  return (stretch){q->scratch + p->at, p->at, p->wire_end - p->wire_begin, true, NULL, p->number};
}

/* Queues one launch for the pieces of the chunk: CONVERT between scratch memory and their leaves, UNPACK to restore
 * packed pieces, or WINDOW for images. */
static tdict_status queue_launch(const tdict_plan *plan, const tdict_chunk *chunk, tdict_kernel_op op,
                                 tdict_pieces_queue *q, tdict_error *err) {
  tdict_kernel_work work;
  walk w = {chunk->first, 0, q->slot};
  tdict_status status = TDICT_OK;
  tdict_kernel_work_init(&work, op);
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &w, &p);) {
    if (!uses_kernel(&p) || tdict_item_cast_op(p.cast) != op) continue;
    const tdict_item *item = p.item;
    const bool in = q->kind == TDICT_CU_H2D;
    const size_t to_bytes = tdict_dtype_bytes(p.cast->cast.to), first = p.begin / to_bytes;
    char *scratch = q->scratch + p.at;
    const char *leaf = (const char *)item->src_data + first * tdict_dtype_bytes(p.cast->cast.from);
    if (!work.num_entries) q->item = p.number;
    if (p.cast->is_packed) {
      status = tdict_kernel_add_unpack(&work, item->dst_data + p.begin, scratch, p.end - p.begin, to_bytes, err);
      q->packed_bytes += p.wire_end - p.wire_begin;
      continue;
    }
    if (p.cast->images) {
      const tdict_windows_range range = {first, p.wire_end - p.wire_begin, scratch};
      status = tdict_windows_add(&work, item, p.cast, &range, err);
      continue;
    }
    status = tdict_device_cast_add(&work, &p.cast->device, in ? item->dst_data + p.begin : scratch, in ? scratch : leaf,
                                   (p.end - p.begin) / to_bytes, err);
  }
  if (status == TDICT_OK && work.num_entries) status = tdict_gpu_queue_work(q->gpu, &work, q->stream, err);
  tdict_kernel_work_reset(&work);
  return status;
}

static tdict_status queue_launches(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *q,
                                   tdict_error *err) {
  tdict_status status = queue_launch(plan, chunk, TDICT_KERNEL_CONVERT, q, err);
  if (status == TDICT_OK && plan->wire->images) status = queue_launch(plan, chunk, TDICT_KERNEL_WINDOW, q, err);
  return status == TDICT_OK && plan->wire->packs ? queue_launch(plan, chunk, TDICT_KERNEL_UNPACK, q, err) : status;
}

bool tdict_pieces_as_copy(const tdict_plan *plan, const tdict_chunk *chunk, char *slot, tdict_cu_copy *out) {
  const bool in = plan->items[chunk->first].kind == TDICT_CU_H2D,
             arena = in && !plan->writes_existing && !(plan->wire && plan->wire->slots_differ);
  walk w = {chunk->first, 0, slot};
  stretch run = {0};
  for (piece p; next_piece(plan, chunk, &w, &p);) {
    if (!(in ? p.item->dst_plain : p.item->src_plain) || uses_kernel(&p)) return false;
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
  *out = in ? (tdict_cu_copy){run.device, slot_data, run.bytes} : (tdict_cu_copy){slot_data, run.device, run.bytes};
  return true;
}

static tdict_status queue_copies(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *q,
                                 tdict_error *err) {
  const bool in = q->kind == TDICT_CU_H2D;
  walk w = {chunk->first, 0, q->slot};
  stretch run = {0};
  tdict_status status = TDICT_OK;
  for (piece p; status == TDICT_OK && next_piece(plan, chunk, &w, &p);) {
    const tdict_item *item = p.item;
    if (uses_kernel(&p) && q->scratch == q->slot) continue;
    if (!uses_kernel(&p) && !(in ? item->dst_plain : item->src_plain)) {
      q->item = p.number;
      void *packed = tdict_shift_back(q->slot + p.at, p.wire_begin);
      tdict_pair pair;
      tdict_leaf_pair(&pair, item, in, !in);
      tdict_pair_span span = {in ? (void *)item->dst_data : packed, in ? packed : item->src->data, p.wire_begin,
                              p.wire_end};
      status = tdict_pair_walk(&pair, &span, queue_rect, q, err);
      continue;
    }
    stretch next = uses_kernel(&p) ? make_scratch_stretch(q, &p) : make_stretch(&p, in);
    if (extends(&run, &next)) {
      run.bytes = next.at + next.bytes - run.at;
      run.open_ended = next.open_ended;
      continue;
    }
    status = queue_stretch(q, &run, err);
    run = next;
  }
  return status == TDICT_OK ? queue_stretch(q, &run, err) : status;
}

tdict_status tdict_pieces_submit(const tdict_plan *plan, const tdict_chunk *chunk, tdict_pieces_queue *q,
                                 tdict_error *err) {
  const bool in = q->kind == TDICT_CU_H2D;
  if (!plan->wire || !plan->wire->slots_differ) return queue_copies(plan, chunk, q, err);
  tdict_status status = in ? queue_copies(plan, chunk, q, err) : queue_launches(plan, chunk, q, err);
  if (status != TDICT_OK) return status;
  return in ? queue_launches(plan, chunk, q, err) : queue_copies(plan, chunk, q, err);
}
