/* SPDX-License-Identifier: BSD-2-Clause */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define MOST_CONTENDERS 16
#define SLICE_MS        2 /* a contender's turn in a round, unless the program says more */

static struct {
	bool json, instructions;
	const char *only_case, *only_contender;
	size_t size, rounds, iterations;
} opt = {.rounds = 41};

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

void bench_missing(const char *contender, const char *why)
{
	static const char *told[MOST_CONTENDERS];

	for (size_t i = 0; i < MOST_CONTENDERS; i++) {
		if (told[i] && !strcmp(told[i], contender))
			return;
		if (!told[i]) {
			told[i] = contender;
			break;
		}
	}
	if (opt.json)
		printf("{\"missing\":\"%s\",\"why\":\"%s\"}\n", contender, why);
	else
		printf("missing: %s (%s)\n", contender, why);
}

/* ---- one contender ---- */

struct runner {
	const struct bench_contender *who;
	void *state;
	size_t n;       /* iterations that fill a slice */
	double *ns;     /* [rounds] an operation */
	double counted; /* instructions an operation; below 0: not counted */
	double cpu;     /* processor time an operation in ns; below 0: not told */
};

static double time_run(const struct runner *r)
{
	double start = now_ns();

	r->who->run(r->state, r->n);
	return now_ns() - start;
}

/* The shorter of two: one that was interrupted is not to pass for a long one. */
static double time_undisturbed(const struct runner *r)
{
	double first = time_run(r), second = time_run(r);

	return first < second ? first : second;
}

/*
 * Long enough, and not only because of what a run costs however short it is: on a busy machine the wake-up
 * of a second thread takes as long as ten thousand operations, and twice as many take no longer then.
 */
static void calibrate(const struct bench *b, struct runner *r)
{
	const double slice_ns = (b->slice_ms ? b->slice_ms : SLICE_MS) * 1e6;
	double before, now = 0;

	for (r->n = 8; r->n < SIZE_MAX / 4;) {
		r->n *= 2;
		before = now;
		now = time_undisturbed(r);
		if (now >= 16 * slice_ns ||
		    (now >= slice_ns / 2 && before > 0 && now >= 1.5 * before))
			break;
	}
}

/* What callgrind counts for a run of this program with so many iterations; below 0 on failure. */
static double collected(const char *which_case, const char *contender, size_t size,
			size_t iterations)
{
	char command[1024], self[512], line[256];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	double count = -1;
	FILE *out;

	if (len < 0)
		return -1;
	self[len] = '\0';
	snprintf(command, sizeof command,
		 "valgrind --tool=callgrind --callgrind-out-file=/dev/null %s --case %s --size %zu "
		 "--only %s --iterations %zu 2>&1 >/dev/null",
		 self, which_case, size, contender, iterations);
	out = popen(command, "r");
	if (!out)
		return -1;
	while (fgets(line, sizeof line, out)) {
		const char *at = strstr(line, "Collected : ");

		if (at)
			count = strtod(at + strlen("Collected : "), NULL);
	}
	return pclose(out) ? -1 : count;
}

static double count_instructions(const struct bench_case *c, const char *contender, size_t size)
{
	/* Far apart: what a start costs differs by some ten thousand from one to the next. */
	double few = collected(c->name, contender, size, 2000);
	double many = collected(c->name, contender, size, 102000);

	if (few < 0 || many < 0)
		return -1;
	return (many - few) / 100000 / (double)(c->operations ? c->operations : 1);
}

/* ---- one case ---- */

static void print_one(const struct bench_case *c, size_t size, const struct runner *r, int width,
		      double ns)
{
	printf("  %-*s %9.2f ns", width, r->who->name, ns);
	if (c->moves)
		printf(" %8.1f MB/s", (double)size / ns * 1e3);
	if (r->cpu >= 0)
		printf(" %9.1f ns cpu", r->cpu);
	if (r->counted >= 0)
		printf(" %7.1f instr", r->counted);
}

static void print_pair(const struct bench *b, const struct bench_case *c, size_t size,
		       const struct runner *ours, const struct runner *other)
{
	double *x = malloc(opt.rounds * sizeof *x), *v = malloc(opt.rounds * sizeof *v);
	double ratio, ns_ours, ns_other;

	for (size_t i = 0; i < opt.rounds; i++)
		x[i] = ours->ns[i] / other->ns[i];
	ratio = median(x, opt.rounds);
	memcpy(v, ours->ns, opt.rounds * sizeof *v);
	ns_ours = median(v, opt.rounds);
	memcpy(v, other->ns, opt.rounds * sizeof *v);
	ns_other = median(v, opt.rounds);
	free(x);
	free(v);
	if (!opt.json) {
		printf("%-16s %7zu", c->name, size);
		print_one(c, size, ours, 8, ns_ours);
		print_one(c, size, other, 16, ns_other);
		printf("   x %.3f\n", ratio);
		return;
	}
	printf("{\"bench\":\"%s\",\"case\":\"%s\",\"size\":%zu,\"ours\":\"%s\",\"contender\":\"%"
	       "s\","
	       "\"ns_ours\":%.3f,\"ns\":%.3f,\"instructions\":",
	       b->name, c->name, size, ours->who->name, other->who->name, ns_ours, ns_other);
	if (ours->counted >= 0)
		printf("%.1f", ours->counted);
	else
		printf("null");
	if (ours->cpu >= 0 && other->cpu >= 0)
		printf(",\"cpu_ours\":%.1f,\"cpu\":%.1f", ours->cpu, other->cpu);
	printf(",\"x\":%.4f}\n", ratio);
}

static double cpu_so_far(const struct runner *r)
{
	return r->who->cpu ? r->who->cpu(r->state) : -1;
}

/* All contenders in turn, round after round. */
static void run_rounds(struct runner *r, size_t n, double operations)
{
	double before[MOST_CONTENDERS];

	for (size_t i = 0; i < n; i++)
		before[i] = cpu_so_far(&r[i]);
	for (size_t round = 0; round < opt.rounds; round++)
		for (size_t i = 0; i < n; i++)
			r[i].ns[round] = time_run(&r[i]) / (double)r[i].n / operations;
	for (size_t i = 0; i < n; i++)
		if (before[i] >= 0)
			r[i].cpu = (cpu_so_far(&r[i]) - before[i]) /
				   ((double)r[i].n * (double)opt.rounds * operations);
}

static void run_case(const struct bench *b, const struct bench_case *c, size_t size)
{
	struct runner r[MOST_CONTENDERS];
	size_t n = 0;
	double operations = (double)(c->operations ? c->operations : 1);

	for (const struct bench_contender *who = c->contenders; who->name; who++) {
		if (opt.only_contender && strcmp(opt.only_contender, who->name))
			continue;
		r[n] = (struct runner){
			.who = who, .state = who->setup(c->name, size), .counted = -1, .cpu = -1};
		if (!r[n].state)
			continue;
		r[n++].ns = malloc(opt.rounds * sizeof(double));
	}
	if (opt.iterations) {
		for (size_t i = 0; i < n; i++)
			r[i].who->run(r[i].state, opt.iterations);
	} else {
		for (size_t i = 0; i < n; i++)
			calibrate(b, &r[i]); /* the warm-up too */
		run_rounds(r, n, operations);
		for (size_t i = 0; i < n && opt.instructions; i++)
			r[i].counted = count_instructions(c, r[i].who->name, size);
		for (size_t i = 0; i < n; i++)
			for (size_t j = 0; r[i].who->ours && j < n; j++)
				if (!r[j].who->ours)
					print_pair(b, c, size, &r[i], &r[j]);
		fflush(stdout);
	}
	for (size_t i = 0; i < n; i++) {
		r[i].who->teardown(r[i].state);
		free(r[i].ns);
	}
}

/* ---- the command ---- */

static int usage(const struct bench *b, FILE *to)
{
	fprintf(to,
		"usage: %s [--json] [--case C] [--size N] [--rounds N] [--instructions]\n\n%s\n"
		"  --json          one object a line\n"
		"  --case C        this case only:",
		b->name, b->about);
	for (const struct bench_case *c = b->cases; c->name; c++)
		fprintf(to, " %s", c->name);
	fprintf(to, "\n  --size N        this size only:");
	for (const size_t *s = b->sizes; *s; s++)
		fprintf(to, " %zu", *s);
	fprintf(to,
		"\n  --rounds N      interleaved rounds (default %zu)\n"
		"  --instructions  count them too (needs valgrind; slow)\n",
		opt.rounds);
	return to == stderr ? 2 : 0;
}

static size_t number(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	return *text == '-' || *end ? 0 : (size_t)n;
}

static bool known_case(const struct bench *b)
{
	for (const struct bench_case *c = b->cases; c->name; c++)
		if (!opt.only_case || !strcmp(opt.only_case, c->name))
			return true;
	return false;
}

static void print_machine(void)
{
	struct utsname u;
	char line[256], model[128] = "unknown processor";
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "model name : %127[^\n]", model) == 1)
			break;
	if (f)
		fclose(f);
	uname(&u);
	if (opt.json)
		printf("{\"machine\":\"%s\",\"processors\":%ld,\"kernel\":\"%s\",\"compiler\":\"%"
		       "s\","
		       "\"rounds\":%zu}\n",
		       model, sysconf(_SC_NPROCESSORS_ONLN), u.release, __VERSION__, opt.rounds);
	else
		printf("%s, %ld processors, Linux %s, compiler %s, %zu rounds\n", model,
		       sysconf(_SC_NPROCESSORS_ONLN), u.release, __VERSION__, opt.rounds);
}

int bench_main(const struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"case", required_argument, NULL, 'c'},
		{"size", required_argument, NULL, 's'},
		{"rounds", required_argument, NULL, 'r'},
		{"instructions", no_argument, NULL, 'i'},
		{"help", no_argument, NULL, 'h'},
		{"only", required_argument, NULL, 'o'},       /* for counting: this contender ... */
		{"iterations", required_argument, NULL, 'n'}, /* ... so often, nothing timed */
		{0}};
	bool some = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			opt.json = true;
			break;
		case 'i':
			opt.instructions = true;
			break;
		case 'c':
			opt.only_case = optarg;
			break;
		case 'o':
			opt.only_contender = optarg;
			break;
		case 's':
			opt.size = number(optarg);
			some = true;
			break;
		case 'r':
			opt.rounds = number(optarg);
			break;
		case 'n':
			opt.iterations = number(optarg);
			break;
		case 'h':
			return usage(b, stdout);
		default:
			return 2;
		}
	}
	if (optind != argc || !opt.rounds || (some && !opt.size) || !known_case(b)) {
		fprintf(stderr,
			"%s: an unknown case, a number that is none, or an argument too many; "
			"--help tells\n",
			b->name);
		return 2;
	}
	if (!opt.iterations)
		print_machine();
	for (const struct bench_case *k = b->cases; k->name; k++) {
		if (opt.only_case && strcmp(opt.only_case, k->name))
			continue;
		for (const size_t *s = b->sizes; *s && !opt.size; s++)
			run_case(b, k, *s);
		if (opt.size)
			run_case(b, k, opt.size);
	}
	return 0;
}
