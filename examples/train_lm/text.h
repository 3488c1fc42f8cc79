/* A dataset of the program: each window of a text file is a sample. The dataset owns the text.
 * Thread rule: several threads may fetch at once. */
#ifndef TRAIN_LM_TEXT_H
#define TRAIN_LM_TEXT_H

#include <tdict/tdict.h>

/* Samples "tokens" and "targets" of `window` int64 each, one character further on; at random places everywhere. */
tdict_status text_dataset(const char *path, int64_t window, tdict_dataset **out, tdict_error *err);

#endif
