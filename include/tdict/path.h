/* Writes paths (see tdict/tree.h) from keys that contain dots or backslashes. Thread rule: safe from any thread. */
#ifndef TDICT_PATH_H
#define TDICT_PATH_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** @brief Writes @p key to @p buffer with a backslash before each dot and backslash, cut to @p bytes and ended by 0.
 *  @return the length of the full text without the 0. */
TDICT_API size_t tdict_path_escape(const char *key, char *buffer, size_t bytes);
/** @brief Joins @p count keys to a path, as tdict_path_escape() writes one key. */
TDICT_API size_t tdict_path_join(const char *const *keys, size_t count, char *buffer, size_t bytes);

TDICT_END_DECLS
#endif
