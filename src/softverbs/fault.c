/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls are counted and can be told to fail. The rules have a lock of their own, since a call is
 * counted before it takes the big one; while there is no rule the cost is one relaxed increment.
 * Chance comes from a generator with a seed, drawn in the order of the calls: the same seed and the
 * same calls give the same faults.
 */
#include "softverbs/sw.h"

#define SW_CALL_NAME(name) #name,
static const char *const names[SW_NTARGETS] = {SW_CALLS(SW_CALL_NAME) "any", "completion",
					       "message"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong calls[SW_NTARGETS];
static struct sw_rule *rules;
static size_t nrules;
atomic_uint sw_fault_rules; /* sv_fail_nth's included */
static uint64_t state = 1;
static struct sw_rule nth[SW_NCALLS + 1]; /* sv_fail_nth: one per name */
static bool struck[SW_NCALLS + 1];

int sw_target(const char *name, size_t len)
{
	for (int i = 0; i < SW_NTARGETS; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return i;
	return -1;
}

/* splitmix64: a number per call, well mixed from any seed. */
static double draw(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static bool strikes(struct sw_rule *r, enum sw_target target, uint64_t bytes)
{
	uint64_t n;

	if (r->target != target && !(r->target == SW_ANY && target < SW_NCALLS))
		return false;
	n = r->seen++;
	if (!r->times || (r->at != UINT64_MAX && n != r->at) || (r->every && (n + 1) % r->every) ||
	    bytes < r->above + (r->above != 0) || (r->chance < 1 && draw() >= r->chance))
		return false;
	if (r->times != UINT64_MAX)
		r->times--;
	return true;
}

/* The first rule that strikes; all of them count. */
static struct sw_rule ask(enum sw_target target, uint64_t bytes)
{
	struct sw_rule hit = {.action = SW_PASS};

	pthread_mutex_lock(&lock);
	for (int i = 0; i <= SW_NCALLS; i++)
		if (nth[i].action && strikes(&nth[i], target, bytes)) {
			struck[i] = true;
			hit = nth[i];
			nth[i].action = SW_PASS;
			atomic_fetch_sub(&sw_fault_rules, 1);
		}
	for (size_t i = 0; i < nrules; i++)
		if (strikes(&rules[i], target, bytes) && !hit.action)
			hit = rules[i];
	pthread_mutex_unlock(&lock);
	return hit;
}

struct sw_strike sw_strike(enum sw_target target, uint64_t bytes)
{
	struct sw_strike s = {SW_PASS};
	struct sw_rule hit;

	atomic_fetch_add_explicit(&calls[target], 1, memory_order_relaxed);
	if (!atomic_load_explicit(&sw_fault_rules, memory_order_relaxed))
		return s;
	hit = ask(target, bytes);
	if (hit.action == SW_REMOVE || hit.action == SW_DOWN || hit.action == SW_UP) {
		sw_device_happens(hit.name, hit.action, target >= SW_NCALLS);
		return s;
	}
	s.action = hit.action;
	s.err = hit.err;
	s.arg = hit.arg;
	return s;
}

int sw_fault(enum sw_target call)
{
	struct sw_strike s = sw_strike(call, 0);

	return s.action == SW_FAIL ? s.err : 0;
}

int sw_fault_add(const struct sw_rule *rule)
{
	struct sw_rule *r;

	pthread_mutex_lock(&lock);
	r = realloc(rules, (nrules + 1) * sizeof *r);
	if (r) {
		rules = r;
		rules[nrules++] = *rule;
		atomic_fetch_add(&sw_fault_rules, 1);
	}
	pthread_mutex_unlock(&lock);
	return r ? 0 : ENOMEM;
}

void sw_fault_seed(uint64_t seed)
{
	pthread_mutex_lock(&lock);
	state = seed;
	pthread_mutex_unlock(&lock);
}

/* ---- the calls of softverbs.h ---- */

static int call_named(const char *call)
{
	int i = sw_target(call, strlen(call));

	return i > SW_NCALLS ? -1 : i;
}

int sv_fail_nth(const char *call, uint64_t n, int err)
{
	int i = call_named(call);

	if (i < 0 || err < 0)
		return sw_fail(EINVAL);
	pthread_mutex_lock(&lock);
	if (nth[i].action)
		atomic_fetch_sub(&sw_fault_rules, 1);
	nth[i] = (struct sw_rule){.target = (enum sw_target)i,
				  .action = err ? SW_FAIL : SW_PASS,
				  .err = err,
				  .at = n,
				  .times = 1,
				  .chance = 1};
	struck[i] = false;
	if (err)
		atomic_fetch_add(&sw_fault_rules, 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

int sv_failed(const char *call)
{
	int i = call_named(call);
	bool yes;

	if (i < 0)
		return 0;
	pthread_mutex_lock(&lock);
	yes = struck[i];
	pthread_mutex_unlock(&lock);
	return yes;
}

uint64_t sv_calls(const char *call)
{
	uint64_t n = 0;
	int i = call_named(call);

	for (int k = 0; k < SW_NCALLS; k++)
		if (i == k || i == SW_NCALLS)
			n += atomic_load_explicit(&calls[k], memory_order_relaxed);
	return n;
}

int sv_faults(const char *text, const char **wrong)
{
	const char *at;
	int err = sw_fault_parse(text, &at);

	if (err && wrong)
		*wrong = at;
	return err ? sw_fail(err) : 0;
}

void sv_faults_clear(void)
{
	pthread_mutex_lock(&lock);
	free(rules);
	rules = NULL;
	nrules = 0;
	memset(nth, 0, sizeof nth);
	memset(struck, 0, sizeof struck);
	atomic_store(&sw_fault_rules, 0);
	pthread_mutex_unlock(&lock);
}
