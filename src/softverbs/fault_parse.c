/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fault language. Statements are divided by ';' or a newline, '#' begins a comment:
 *
 *	statement:  seed N
 *	         |  set DEVICE NAME VALUE             a limit or habit, as sv_set
 *	         |  TARGET ACTION [WHEN ...]
 *	TARGET:     a call without its prefix (reg_mr, post_send, connect ...) | any
 *	         |  completion | message
 *	ACTION:     fail ERRNO | midway | doorbell ERRNO                      (calls)
 *	         |  drop | delay N | duplicate | echo N | swap | status N | opcode N
 *	                                                              (completions)
 *	         |  kill | late N                                             (messages)
 *	         |  remove DEVICE | down DEVICE | up DEVICE                   (calls, messages)
 *	WHEN:       at N       only number N, counted from 0
 *	         |  every N    the Nth, 2Nth ...
 *	         |  above N    only of more than N bytes (reg_mr)
 *	         |  chance P   with probability P
 *	         |  times N    no more than N times
 */
#include <ctype.h>
#include <stdio.h>

#include "softverbs/sw.h"

struct cursor {
	const char *at;
	const char *word; /* the last one read */
};
struct word {
	const char *s;
	size_t len;
};

static void skip(struct cursor *c)
{
	while (*c->at == ' ' || *c->at == '\t')
		c->at++;
	if (*c->at == '#')
		while (*c->at && *c->at != '\n')
			c->at++;
}

static bool ends(struct cursor *c)
{
	skip(c);
	return !*c->at || *c->at == ';' || *c->at == '\n';
}

static struct word word(struct cursor *c)
{
	struct word w;

	skip(c);
	w.s = c->word = c->at;
	while (*c->at && !isspace((unsigned char)*c->at) && *c->at != ';' && *c->at != '#')
		c->at++;
	w.len = (size_t)(c->at - w.s);
	return w;
}

static bool is(struct word w, const char *s)
{
	return w.len == strlen(s) && !memcmp(w.s, s, w.len);
}

static bool number(struct cursor *c, uint64_t *n)
{
	struct word w = word(c);
	char *end;

	if (!w.len || !isdigit((unsigned char)*w.s))
		return false;
	*n = strtoull(w.s, &end, 0);
	return end == w.s + w.len;
}

static bool probability(struct cursor *c, double *p)
{
	struct word w = word(c);
	char *end;

	if (!w.len)
		return false;
	*p = strtod(w.s, &end);
	return end == w.s + w.len && *p >= 0 && *p <= 1;
}

static bool name(struct cursor *c, char *to, size_t room)
{
	struct word w = word(c);

	if (!w.len || w.len >= room)
		return false;
	memcpy(to, w.s, w.len);
	to[w.len] = '\0';
	return true;
}

int sw_errno_named(const char *s, size_t len)
{
	static const struct {
		const char *name;
		int err;
	} table[] = {
		{"ENOMEM", ENOMEM},     {"EINVAL", EINVAL},         {"EAGAIN", EAGAIN},
		{"EIO", EIO},           {"EBUSY", EBUSY},           {"EFAULT", EFAULT},
		{"EPERM", EPERM},       {"EACCES", EACCES},         {"ENODEV", ENODEV},
		{"ENOSYS", ENOSYS},     {"EOPNOTSUPP", EOPNOTSUPP}, {"EMFILE", EMFILE},
		{"ENFILE", ENFILE},     {"ENOSPC", ENOSPC},         {"EINTR", EINTR},
		{"EEXIST", EEXIST},     {"EMSGSIZE", EMSGSIZE},     {"ETIMEDOUT", ETIMEDOUT},
		{"ENOTCONN", ENOTCONN}, {"EADDRINUSE", EADDRINUSE}, {"ENOBUFS", ENOBUFS},
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strlen(table[i].name) == len && !memcmp(table[i].name, s, len))
			return table[i].err;
	if (len && isdigit((unsigned char)*s)) {
		char *end;
		unsigned long n = strtoul(s, &end, 10);

		if (end == s + len && n > 0 && n < 4096)
			return (int)n;
	}
	return 0;
}

static bool error(struct cursor *c, int *err)
{
	struct word w = word(c);

	*err = sw_errno_named(w.s, w.len);
	return *err != 0;
}

static bool action(struct cursor *c, struct sw_rule *r)
{
	static const struct {
		const char *name;
		enum sw_action action;
		bool err, arg, dev;
		enum {
			CALL = 1,
			WC = 2,
			MSG = 4
		} on;
	} table[] = {
		{"fail", SW_FAIL, .err = true, .on = CALL},
		{"midway", SW_MIDWAY, .on = CALL},
		{"doorbell", SW_DOORBELL, .err = true, .on = CALL},
		{"drop", SW_DROP, .on = WC},
		{"delay", SW_DELAY, .arg = true, .on = WC},
		{"duplicate", SW_DUPLICATE, .on = WC},
		{"echo", SW_ECHO, .arg = true, .on = WC},
		{"swap", SW_SWAP, .on = WC},
		{"status", SW_STATUS, .arg = true, .on = WC},
		{"opcode", SW_OPCODE, .arg = true, .on = WC},
		{"kill", SW_KILL, .on = MSG},
		{"late", SW_LATE, .arg = true, .on = MSG},
		{"remove", SW_REMOVE, .dev = true, .on = CALL | MSG},
		{"down", SW_DOWN, .dev = true, .on = CALL | MSG},
		{"up", SW_UP, .dev = true, .on = CALL | MSG},
	};
	struct word w = word(c);
	int on = r->target == SW_COMPLETION ? WC : r->target == SW_MESSAGE ? MSG : CALL;

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (!is(w, table[i].name) || !(table[i].on & on))
			continue;
		r->action = table[i].action;
		return (!table[i].err || error(c, &r->err)) &&
		       (!table[i].arg || number(c, &r->arg)) &&
		       (!table[i].dev || name(c, r->name, sizeof r->name));
	}
	return false;
}

static bool when(struct cursor *c, struct sw_rule *r)
{
	struct word w = word(c);

	if (is(w, "at"))
		return number(c, &r->at);
	if (is(w, "every"))
		return number(c, &r->every) && r->every;
	if (is(w, "above"))
		return number(c, &r->above);
	if (is(w, "times"))
		return number(c, &r->times);
	if (is(w, "chance"))
		return probability(c, &r->chance);
	return false;
}

static bool setting(struct cursor *c)
{
	char device[64], what[64];
	uint64_t value;

	return name(c, device, sizeof device) && name(c, what, sizeof what) && number(c, &value) &&
	       !sv_set(device, what, value);
}

static int statement(struct cursor *c)
{
	struct sw_rule r = {.at = UINT64_MAX, .times = UINT64_MAX, .chance = 1};
	struct word w = word(c);
	uint64_t seed;
	int target;

	if (is(w, "seed")) {
		if (!number(c, &seed))
			return EINVAL;
		sw_fault_seed(seed);
		return 0;
	}
	if (is(w, "set"))
		return setting(c) ? 0 : EINVAL;
	target = sw_target(w.s, w.len);
	if (target < 0)
		return EINVAL;
	r.target = (enum sw_target)target;
	if (!action(c, &r))
		return EINVAL;
	while (!ends(c))
		if (!when(c, &r))
			return EINVAL;
	return sw_fault_add(&r);
}

int sw_fault_parse(const char *text, const char **wrong)
{
	struct cursor c = {text, text};
	int err = 0;

	while (!err) {
		while (ends(&c) && *c.at)
			c.at++;
		if (!*c.at)
			break;
		err = statement(&c);
		if (!err && !ends(&c)) {
			c.word = c.at;
			err = EINVAL;
		}
	}
	*wrong = err ? c.word : c.at;
	return err;
}
