/* SPDX-License-Identifier: BSD-2-Clause */
/* Strings and topics of MQTT, see mqtt.h. */
#include <string.h>

#include "mqtt.h"

/*
 * How many bytes the well-formed sequence at p takes, of n > 0 there; 0 if it's none (The Unicode
 * Standard, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF; nor is U+0000 one.
 */
static size_t sequence(const uint8_t *p, size_t n)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t length;

	if (p[0] < 0x80)
		return p[0] != 0;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (n < length)
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool mqtt_utf8(const uint8_t *p, size_t n)
{
	while (n) {
		const size_t used = sequence(p, n);

		if (!used)
			return false;
		p += used;
		n -= used;
	}
	return true;
}

bool mqtt_topic_name(const uint8_t *p, size_t n)
{
	return n && !memchr(p, '+', n) && !memchr(p, '#', n) && mqtt_utf8(p, n);
}

bool mqtt_topic_filter(const uint8_t *p, size_t n)
{
	if (n == 0 || !mqtt_utf8(p, n))
		return false;
	for (size_t i = 0; i < n; i++) {
		const bool first = i == 0 || p[i - 1] == '/', last = i + 1 == n;

		if (p[i] == '#' && !(first && last))
			return false;
		if (p[i] == '+' && !(first && (last || p[i + 1] == '/')))
			return false;
	}
	return true;
}

static struct mqtt_bytes after(struct mqtt_bytes b, size_t n)
{
	return (struct mqtt_bytes){.p = b.p + n, .n = (uint16_t)(b.n - n)};
}

/* Bytes up to the next '/' or the end. */
static size_t level(struct mqtt_bytes b)
{
	const uint8_t *slash = b.n ? memchr(b.p, '/', b.n) : NULL;

	return slash ? (size_t)(slash - b.p) : b.n;
}

bool mqtt_matches(struct mqtt_bytes filter, struct mqtt_bytes topic)
{
	if (topic.n && topic.p[0] == '$' && filter.p[0] != '$')
		return false; /* [MQTT-4.7.2-1] */
	for (;;) {
		const size_t f = level(filter), t = level(topic);

		if (f == 1 && filter.p[0] == '#')
			return true;
		if (!(f == 1 && filter.p[0] == '+') &&
		    (f != t || (f && memcmp(filter.p, topic.p, f) != 0)))
			return false;
		if (t == topic.n) /* "a/#" matches "a" too */
			return f == filter.n || (filter.n == f + 2 && filter.p[f + 1] == '#');
		if (f == filter.n)
			return false;
		filter = after(filter, f + 1);
		topic = after(topic, t + 1);
	}
}
