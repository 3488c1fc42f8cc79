/* Declares the parameters of a launch and the words of its entries. The host writes the words (work.c), and the kernels
 * read them (body.h). This header is also compiled as CUDA C, so it includes no header of the library.
 *
 * A launch has a table of 64-bit words. The table begins with TDICT_WORDS_PER_ENTRY words for each entry. The *body*
 * follows. Offsets and positions are counted from the start of the body. The body holds *layouts*. Entries that differ
 * only in their addresses share one layout. A layout has the words below, then TDICT_WORDS_PER_DIM words for each
 * dimension, then TDICT_WORDS_PER_LIST words for each list. The last dimension is the innermost. */
#ifndef TDICT_CORE_KERNEL_WORDS_H
#define TDICT_CORE_KERNEL_WORDS_H

#ifdef __CUDA__ /* the toolkit is not needed, so its headers are not used */
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT64_TYPE__ int64_t;
#else
#include <stdbool.h>
#include <stdint.h>
#endif

enum {
  TDICT_KERNEL_THREADS = 256,         /* threads of a block */
  TDICT_KERNEL_BATCH = 4,             /* units that a thread handles together, so that their loads overlap */
  TDICT_KERNEL_BLOCK_UNITS = 256 * 4, /* units of one batch of all threads; a block can handle several batches */
  TDICT_KERNEL_PARAM_WORDS = 509      /* words that fit the parameters of a launch, which are at most 4096 bytes */
};
enum { TDICT_QUAD = 4 };                      /* elements of a unit of TDICT_FLAG_QUADS */
#define TDICT_KERNEL_NO_RESULT (~(uint64_t)0) /* no position or element is bad */

/* The parameters of every kernel, passed by value. */
typedef struct tdict_kernel_params {
  uint64_t table;   /* device address of the table; 0: the table is in `words` */
  uint64_t results; /* address at which the kernel writes one result for each entry; 0: no results */
  uint64_t num_entries;
  uint64_t words[TDICT_KERNEL_PARAM_WORDS];
} tdict_kernel_params;

/* The words of an entry. */
enum {
  TDICT_ENTRY_BLOCK,  /* number of the entry's first block */
  TDICT_ENTRY_LAYOUT, /* offset of the layout */
  TDICT_ENTRY_DST,    /* address of the first destination */
  TDICT_ENTRY_SRC,    /* address of the first source; CHECK: a list's positions; UNPACK: packed elements */
  TDICT_WORDS_PER_ENTRY
};
/* The words of a layout. */
enum {
  TDICT_WORD_UNITS, /* number of units */
  TDICT_WORD_FORM,  /* see TDICT_FORM_* */
  TDICT_WORD_EXTRA, /* the first word of the operation, then its dimensions */
  TDICT_COPY_DIMS = TDICT_WORD_EXTRA,
  TDICT_CONVERT_SCALE = TDICT_WORD_EXTRA, /* low half: bits of the float32 scale; high half: bits of the offset */
  TDICT_CONVERT_DIMS,
  TDICT_FILL_PATTERN = TDICT_WORD_EXTRA,    /* 16 bytes */
  TDICT_FILL_PERIOD = TDICT_WORD_EXTRA + 2, /* number of units after which the pattern repeats, and its divider */
  TDICT_FILL_DIMS = TDICT_FILL_PERIOD + 3,
  TDICT_CHECK_SIZE = TDICT_WORD_EXTRA, /* size of the indexed dimension */
  TDICT_CHECK_END,
  TDICT_UNPACK_BYTES = TDICT_WORD_EXTRA, /* bytes of the elements */
  TDICT_UNPACK_END,
  /* Divisors have two words for a divider after them, as the count of a dimension. Strides are bytes. */
  TDICT_WINDOW_FIRST = TDICT_WORD_EXTRA, /* the elements [FIRST, LAST) are written */
  TDICT_WINDOW_LAST,
  TDICT_WINDOW_BASE,   /* number of the first unit; unit 0 begins with element 0 */
  TDICT_WINDOW_GROUPS, /* units of a row */
  TDICT_WINDOW_HEIGHT = TDICT_WINDOW_GROUPS + 3,
  TDICT_WINDOW_WIDTH = TDICT_WINDOW_HEIGHT + 3,
  TDICT_WINDOW_SRC_BEGIN, /* the bytes from here on, up to SRC_END, can be read */
  TDICT_WINDOW_SRC_END,
  TDICT_WINDOW_SRC_SAMPLE,
  TDICT_WINDOW_SRC_ROW,
  TDICT_WINDOW_DST_SAMPLE,
  TDICT_WINDOW_DST_ROW,
  TDICT_WINDOW_DST_PIXEL,
  TDICT_WINDOW_DST_CHANNEL,
  TDICT_WINDOW_SCALES, /* a word as CONVERT_SCALE for each channel. The place of each window follows, see below */
  TDICT_WINDOW_PLACES = TDICT_WINDOW_SCALES + 4
};
enum { TDICT_WINDOW_CHANNELS = 4, TDICT_WINDOW_GROUP = 4 }; /* most channels of an image; most pixels of a unit */
/* The place of a window: bit 0: flipped; bits 1 to 31: the first column; bits 32 to 62: the first row. */
enum { TDICT_PLACE_LEFT = 1, TDICT_PLACE_TOP = 32 };
/* Count, byte stride of the destination, byte stride of the source, and the two words of the count's divider: a
 * multiplier and a shift. If the count is at least 2 and the dividend is below 2^63, the quotient is the high word of
 * dividend * multiplier, shifted right by the shift. */
enum { TDICT_WORDS_PER_DIM = 5 };
enum { TDICT_WORDS_PER_LIST = 3 }; /* positions, size of the indexed dimension, byte stride of the indexed dimension */
/* Positions are the address of an array of int64 on the device. If bit 0 is set, the other bits are an offset in the
 * body. */

/* The 8-bit fields of TDICT_WORD_FORM: the position of each field's lowest bit. */
enum {
  TDICT_FORM_WIDTH = 0,    /* COPY, FILL: bytes of a unit: 1, 2, 4, 8 or 16; UNPACK: bytes of an element */
  TDICT_FORM_NDIM = 8,     /* WINDOW: number of channels */
  TDICT_FORM_LISTED = 16,  /* the dimension whose positions come from lists; TDICT_FORM_NO_LIST: none */
  TDICT_FORM_LISTS = 24,   /* number of lists */
  TDICT_FORM_BATCHES = 32, /* number of batches of a block */
  TDICT_FORM_TO = 40,      /* CONVERT: tdict_kernel_type */
  TDICT_FORM_FROM = 48,
  TDICT_FORM_FLAGS = 56
};
enum { TDICT_FORM_NO_LIST = 0xff };
enum {
  TDICT_FLAG_SCALED = 1,
  TDICT_FLAG_COMPLEX = 2,   /* an imaginary part of 0 follows each element */
  TDICT_FLAG_UNALIGNED = 4, /* the elements of a side are not aligned */
  TDICT_FLAG_SCATTER = 8,   /* set: the lists index the destination; not set: the source */
  TDICT_FLAG_ROWS = 16,     /* the entry has 1 or 2 dimensions, at most one list, and fewer than 2^31 units */
  TDICT_FLAG_CHECKED = 32,  /* the result is the smallest index of a position outside its dimension */
  TDICT_FLAG_GUARDED = 64,  /* each block checks all positions first, and copies nothing if a position is bad */
  TDICT_FLAG_QUADS = 128    /* CONVERT: a unit is a quad of elements, see tdict_convert_quads() */
};

/* The format of packed elements. The host packs elements (pack.c), and UNPACK restores the elements. Packed elements
 * begin at a multiple of 16 with a head of TDICT_PACK_HEAD words, and TDICT_WORDS_PER_BLOCK words for each packed
 * block. A packed block has TDICT_PACK_BLOCK_BYTES bytes of elements. The last packed block can have fewer elements.
 * Each element is stored as its difference from the base of its block. All differences of a packed block have the same
 * number of bits.
 *
 * The elements and the differences are rows of TDICT_PACK_ROW bytes, and begin at a multiple of TDICT_PACK_ROW from the
 * head. A row has lanes as wide as an element. Lane l holds the differences of the elements in lane l of all rows of
 * the block, one after another, from the lowest bit of the first row. So a difference is in one row or in two
 * neighbouring rows. The host fills up the last row of elements. */
enum {
  TDICT_PACK_BLOCK_UNITS = 2 * TDICT_KERNEL_BLOCK_UNITS, /* units of 16 bytes */
  TDICT_PACK_BLOCK_BYTES = 16 * TDICT_PACK_BLOCK_UNITS,
  TDICT_PACK_ROW = 64,
  TDICT_PACK_SIZE = 0, /* word of the head: size of the packed elements in bytes, including the head */
  TDICT_PACK_HEAD = 1
};
/* The words of a packed block. */
enum {
  TDICT_BLOCK_BASE,
  TDICT_BLOCK_PLACE, /* lowest 8 bits: number of bits of a difference. If it is 0, the block has no rows. Other bits:
                      * offset of the rows from the head, in bytes */
  TDICT_WORDS_PER_BLOCK
};
enum { TDICT_PLACE_OFFSET = 8 };

/* The element types of CONVERT. A complex element is converted as two floats. */
typedef enum tdict_kernel_type {
  TDICT_KERNEL_I8,
  TDICT_KERNEL_I16,
  TDICT_KERNEL_I32,
  TDICT_KERNEL_I64,
  TDICT_KERNEL_U8,
  TDICT_KERNEL_U16,
  TDICT_KERNEL_U32,
  TDICT_KERNEL_U64,
  TDICT_KERNEL_BOOL,
  TDICT_KERNEL_F16,
  TDICT_KERNEL_BF16,
  TDICT_KERNEL_F8E4M3,
  TDICT_KERNEL_F8E5M2,
  TDICT_KERNEL_F32,
  TDICT_KERNEL_F64,
  TDICT_KERNEL_NUM_TYPES
} tdict_kernel_type;

#endif
