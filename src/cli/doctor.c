/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool doctor: what this machine offers for RDMA and what stands in the way. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "sgpool/sgpool.h"

struct problem *doctor_problem(struct doctor *d, enum severity severity, const char *code,
			       const char *fmt, ...)
{
	/* More than the list takes is not expected; the last entry is overwritten then. */
	const int i = d->problems < PROBLEMS ? d->problems++ : PROBLEMS - 1;
	struct problem *p = &d->problem[i];
	va_list ap;

	*p = (struct problem){.severity = severity, .code = code};
	va_start(ap, fmt);
	vsnprintf(p->what, sizeof p->what, fmt, ap);
	va_end(ap);
	return p;
}

void doctor_mend(struct problem *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->mend, sizeof p->mend, fmt, ap);
	va_end(ap);
}

int doctor_read_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	char *got;

	line[0] = 0;
	if (!f)
		return -1;
	got = fgets(line, size, f);
	fclose(f);
	if (!got) {
		line[0] = 0;
		errno = ENODATA;
		return -1;
	}
	line[strcspn(line, "\n")] = 0;
	return 0;
}

static void write_system(struct doctor *d)
{
	struct utsname name;

	out_str(d->out, "version", "sgpool", sgp_version());
	if (uname(&name) == 0) {
		out_str(d->out, "kernel", "kernel", name.release);
		out_str(d->out, "machine", "machine", name.machine);
	}
}

/* A device's problem blocks only when no other device can be used. */
static bool blocks(const struct doctor *d, const struct problem *p)
{
	return p->severity == BLOCKS || (p->severity == BLOCKS_DEVICE && d->usable == 0);
}

static void write_problem(struct doctor *d, const struct problem *p)
{
	out_group(d->out, NULL, p->what);
	out_str(d->out, "code", NULL, p->code);
	out_bool(d->out, "blocks", NULL, blocks(d, p));
	out_str(d->out, "what", NULL, p->what);
	out_str(d->out, "mend", "mend", p->mend);
	out_end(d->out);
}

/* Returns how many problems block. */
static int write_problems(struct doctor *d)
{
	int blocking = 0;

	for (int i = 0; i < d->problems; i++)
		blocking += blocks(d, &d->problem[i]);
	out_list(d->out, "problems", blocking ? "what stands in the way" : NULL);
	for (int i = 0; i < d->problems; i++)
		if (blocks(d, &d->problem[i]))
			write_problem(d, &d->problem[i]);
	if (!d->out->json && blocking < d->problems) {
		out_end(d->out);
		out_list(d->out, NULL, "what could be better");
	}
	for (int i = 0; i < d->problems; i++)
		if (!blocks(d, &d->problem[i]))
			write_problem(d, &d->problem[i]);
	out_end(d->out);
	return blocking;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option none[] = {{NULL, 0, NULL, 0}};
	struct out out;
	struct doctor d = {.out = &out, .sudo = geteuid() == 0 ? "" : "sudo "};
	bool json = false, usable;

	while (cli_option(self, argc, argv, "", none, &json) != -1)
		;
	if (optind < argc)
		cli_usage(self, "'%s' is too much: it takes no arguments", argv[optind]);
	out_open(&out, stdout, json);
	write_system(&d);
	doctor_devices(&d);
	doctor_nodes(&d);
	doctor_modules(&d);
	doctor_limits(&d);
	doctor_memory(&d);
	doctor_numa(&d);
	usable = write_problems(&d) == 0;
	out_bool(&out, "usable", "RDMA can be used here", usable);
	out_close(&out);
	return cli_finish(self->name, usable ? CLI_OK : CLI_FAILED);
}

const struct cli_command cli_doctor = {
	.name = "doctor",
	.summary = "what this machine offers for RDMA, and what stands in the way",
	.usage = "[--json]",
	.help = "Shows the RDMA devices and their limits, the rights and limits of this process,\n"
		"memory and kernel modules, and for each problem the command that mends it. Opens\n"
		"each device and registers memory there to see that it can be; changes nothing.\n"
		"Exit status: 0 RDMA can be used here, 1 something stands in the way.\n",
	.run = run,
};
