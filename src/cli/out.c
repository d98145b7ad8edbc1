/* SPDX-License-Identifier: BSD-2-Clause */
/* A result as text or as JSON (RFC 8259). */
#include <inttypes.h>
#include <string.h>

#include "cli/format.h"
#include "cli/out.h"

/* How many bytes the UTF-8 character at s takes; 0 if it is none (RFC 3629's table). */
static int utf8_length(const unsigned char *s)
{
	unsigned char low = 0x80, high = 0xbf;
	int n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	if (s[1] < low || s[1] > high)
		return 0;
	for (int i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

/* File names are bytes, JSON is UTF-8: what is no UTF-8 becomes U+FFFD. */
static void json_string(FILE *f, const char *string)
{
	const unsigned char *s = (const unsigned char *)string;

	fputc('"', f);
	while (*s) {
		const int n = utf8_length(s);

		if (n == 0)
			fputs("\\ufffd", f);
		else if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			fprintf(f, "\\u%04x", *s);
		else
			fwrite(s, 1, (size_t)n, f);
		s += n ? n : 1;
	}
	fputc('"', f);
}

/* Text: what could move the cursor is not printed. */
static void plain_string(FILE *f, const char *s)
{
	for (; *s; s++)
		fputc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, f);
}

/* Before a value: true if it is to be written at all; indentation, comma and name have been. */
static bool begin(struct out *out, const char *key, const char *label)
{
	const int top = out->depth - 1;
	bool named;

	if (!out->json) {
		if (!label)
			return false;
		fprintf(out->file, "%*s%s", 2 * top, "", label);
		return true;
	}
	named = !out->list[top];
	if (named && !key)
		return false;
	if (!out->empty[top])
		fputs(", ", out->file);
	out->empty[top] = false;
	if (named) {
		json_string(out->file, key);
		fputs(": ", out->file);
	}
	return true;
}

static void push(struct out *out, bool list)
{
	out->list[out->depth] = list;
	out->empty[out->depth] = true;
	out->depth++;
	if (out->json)
		fputc(list ? '[' : '{', out->file);
}

void out_open(struct out *out, FILE *file, bool json)
{
	*out = (struct out){.file = file, .json = json};
	push(out, false);
}

void out_close(struct out *out)
{
	out->depth--;
	if (out->json)
		fputs("}\n", out->file);
	fflush(out->file);
}

static void nest(struct out *out, const char *key, const char *title, bool list)
{
	if (begin(out, key, title) && !out->json)
		fputc('\n', out->file);
	push(out, list);
}

void out_group(struct out *out, const char *key, const char *title)
{
	nest(out, key, title, false);
}

void out_list(struct out *out, const char *key, const char *title)
{
	nest(out, key, title, true);
}

void out_end(struct out *out)
{
	out->depth--;
	if (out->json)
		fputc(out->list[out->depth] ? ']' : '}', out->file);
}

void out_none(struct out *out, int n)
{
	if (n <= 0 && !out->json)
		fprintf(out->file, "%*snone\n", 2 * (out->depth - 1), "");
}

void out_str(struct out *out, const char *key, const char *label, const char *value)
{
	if (!begin(out, key, label))
		return;
	if (!out->json) {
		fputs(": ", out->file);
		plain_string(out->file, value ? value : "unknown");
		fputc('\n', out->file);
	} else if (value) {
		json_string(out->file, value);
	} else {
		fputs("null", out->file);
	}
}

void out_bool(struct out *out, const char *key, const char *label, bool value)
{
	if (!begin(out, key, label))
		return;
	if (out->json)
		fputs(value ? "true" : "false", out->file);
	else
		fprintf(out->file, ": %s\n", value ? "yes" : "no");
}

void out_u64(struct out *out, const char *key, const char *label, uint64_t value)
{
	if (!begin(out, key, label))
		return;
	if (out->json)
		fprintf(out->file, "%" PRIu64, value);
	else
		fprintf(out->file, ": %" PRIu64 "\n", value);
}

void out_bytes(struct out *out, const char *key, const char *label, uint64_t value)
{
	if (!begin(out, key, label))
		return;
	if (out->json && value != UINT64_MAX)
		fprintf(out->file, "%" PRIu64, value);
	else if (out->json)
		fputs("null", out->file);
	else
		fprintf(out->file, ": %s\n",
			value != UINT64_MAX ? format_bytes(value).text : "unlimited");
}

void out_double(struct out *out, const char *key, const char *label, double value)
{
	if (!begin(out, key, label))
		return;
	if (out->json)
		fprintf(out->file, "%.6f", value);
	else
		fprintf(out->file, ": %.3f\n", value);
}

void out_transfer(struct out *out, uint64_t bytes, double seconds, const char *digest,
		  const char *peer_digest, uint64_t registrations)
{
	out_u64(out, "bytes", "bytes", bytes);
	out_double(out, "seconds", "seconds", seconds);
	out_str(out, NULL, "rate", format_rate(bytes, seconds).text);
	out_double(out, "bytes_per_second", NULL, seconds > 0 ? (double)bytes / seconds : 0);
	out_str(out, "sha256", "sha256", digest);
	out_str(out, "peer_sha256", NULL, peer_digest);
	out_bool(out, "match", "the same at both ends", strcmp(digest, peer_digest) == 0);
	out_u64(out, "registrations", "registrations while data moved", registrations);
}
