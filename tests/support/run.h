/* Macros for arguments of type tdict_run or tdict_pad_options: pointers that are valid until the end of the block. */
#ifndef TDICT_TESTS_SUPPORT_RUN_H
#define TDICT_TESTS_SUPPORT_RUN_H

#include "support/expressions.h"
#include "tdict/combine.h"

#define TD_RUN(on_stream, in_memory) td_options(tdict_run, stream = on_stream, memory = in_memory)
#define TD_ON(on_stream) td_options(tdict_run, stream = on_stream)
#define TD_IN(in_memory) td_options(tdict_run, memory = in_memory)
/* A tdict_run argument for the stream *on_stream, or NULL (the call blocks) if `on_stream` is NULL. */
#define TD_ON_IF(on_stream) ((on_stream) ? TD_ON(*(on_stream)) : NULL)
#define TD_THREADS(count) td_options(tdict_run, num_threads = count)
#define TD_PAD(padding, names) td_options(tdict_pad_options, value = padding, masks = names)

#endif
