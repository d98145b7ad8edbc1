/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A result written once, read twice: by people as indented lines, by programs as JSON.
 *
 * Each value has a key (JSON's) and a label (the text's). A NULL key is for elements of a list; a
 * value with a NULL label is left out of the text, one with a NULL key inside a group out of JSON.
 */
#ifndef SGP_CLI_OUT_H
#define SGP_CLI_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	OUT_DEPTH = 8
};

struct out {
	FILE *file;
	bool json;
	int depth;             /* open groups and lists */
	bool list[OUT_DEPTH];  /* what each is */
	bool empty[OUT_DEPTH]; /* nothing was written into it yet */
};

/* Begin a result: one object. out_close() ends it and its line. */
void out_open(struct out *out, FILE *file, bool json);
void out_close(struct out *out);

/* Begin an object or an array under the innermost open one; title heads it in the text, if not
 * NULL. */
void out_group(struct out *out, const char *key, const char *title);
void out_list(struct out *out, const char *key, const char *title);
void out_end(struct out *out);

/* In a list of n things: "none" in the text if n is not positive. */
void out_none(struct out *out, int n);

/* NULL is null in JSON, "unknown" in the text. */
void out_str(struct out *out, const char *key, const char *label, const char *value);
void out_bool(struct out *out, const char *key, const char *label, bool value);
void out_u64(struct out *out, const char *key, const char *label, uint64_t value);
/* A number in JSON, "8 MiB" in the text; UINT64_MAX: null and "unlimited". */
void out_bytes(struct out *out, const char *key, const char *label, uint64_t value);
void out_double(struct out *out, const char *key, const char *label, double value);

/* How a file's transfer went, at either end. */
void out_transfer(struct out *out, uint64_t bytes, double seconds, const char *digest,
		  const char *peer_digest, uint64_t registrations);

#endif
