/* A text file as a dataset of the program's own: every window of the text is a sample. */
#ifndef TRAIN_LM_TEXT_H
#define TRAIN_LM_TEXT_H

#include <tdict/tdict.h>

/* Samples "tokens" and "targets" of `window` int64 each, one character further on; at random places everywhere. */
tdict_status text_dataset(const char *path, int64_t window, tdict_dataset *out, tdict_error *err);

#endif
