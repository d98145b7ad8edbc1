#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The manual pages of section 3 say what the headers say.

usage: pages.py HEADERS BUILD CC PAGE... -- LIBRARY...

HEADERS is the folder sgpool/ of the headers, BUILD the folder of the build. Each SYNOPSIS is compiled
against the headers that it names, and compared with them word for word; so are the structures that a
page shows, member by member. Each EXAMPLE compiles. Everything that a LIBRARY exports for programs, and
every macro, flag and member of a structure that the headers have for them, is on a page, is found by
its name in what is installed, and every name of ours on a page is in the headers. The errors of a
function are those of its comment in the headers. Every page of ours that is referred to is there. At the
end pages are spoilt in several ways, each of which must be noticed: a test
that finds nothing wrong in them would find nothing at all.
"""
import errno
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

headers, build, cc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
INTERNAL = {"inline.h", "export.h", "version.h"}  # not for direct use
# What programs may use of these all the same, and what only the inline functions use.
PUBLIC = {"SGP_SGL", "SGP_NO_INLINE", "SGP_VERSION", "SGP_VERSION_MAJOR", "SGP_VERSION_MINOR", "SGP_VERSION_PATCH"}
HIDDEN = {"sgp_thread", "sgp_sgl_fill"}
# Pages of concepts all of whose displays are code.
CODE = {"sgpool.7", "sgpool-heap.7"}
ERRNO = re.compile(r"\b(?:%s)\b" % "|".join([*errno.errorcode.values(), "EOPNOTSUPP"]))
COMMENTED = re.compile(r"/\*((?:[^*]|\*(?!/))*)\*/\n(?:#ifndef \w+\n)?SGP_(?:HOT_)?API [^;(]*?\b(\w+)\(")
OURS = re.compile(r"\b(?:sgp|sv)_\w+|\bSGP_\w+|\bSV_\w+")

# What a fragment of a program in an EXAMPLE may take for granted.
PRELUDE = """
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/sgpool.h>
#include <sgpool/heap.h>
#include <sgpool/softverbs.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"
void example(struct ibv_pd *pd, struct sgp_pool *pool, struct sgp_heap *heap, struct sgp_cq *cq,
	     struct sgp_wc *wc, struct rdma_cm_id *id, struct sgp_ep *ep, struct sgp_ep **eps, struct sgp_chunk *header,
	     struct sgp_chunk *body, struct sgp_sgl *message, struct sgp_sgl *note,
	     struct sgp_sgl *payload, struct sgp_sgl *lists, const struct ibv_sge *sge, int nsge, int n,
	     int fd, size_t bytes, uint64_t remote_addr, uint32_t rkey, void *context,
	     const struct sgp_pool_attr attr)
{
	{%s}
}
"""


def strip(text):
    """Headers without comments."""
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def squeeze(text):
    """One way to write a declaration."""
    text = " ".join(text.split())
    return re.sub(r"\s*([*,();{}\[\]])\s*", r"\1", text)


class Headers:
    every_error = set()

    def __init__(self):
        self.prototypes, self.structures, self.names, self.types, self.errors = {}, {}, set(), set(), {}
        for file in sorted(headers.glob("*.h")):
            text = file.read_text()
            for comment, name in COMMENTED.findall(text):
                comment = re.sub(r"^ \*\t.*$", "", comment, flags=re.M)  # an example
                self.errors[name] = set(ERRNO.findall(comment))
            self.every_error |= set(ERRNO.findall(text))
            text = strip(text)
            self.types |= set(re.findall(r"\b(?:struct|enum) (\w+)", text))
            for found in re.findall(r"^SGP_(?:HOT_)?API\s+(?!extern)([^;{]+?)\s*;", text, re.M | re.S):
                name = re.search(r"(\w+)\((?!\()", found)
                if name:
                    self.prototypes[name.group(1)] = squeeze(found)
            if file.name not in INTERNAL:
                self.structures |= dict(re.findall(r"^struct (\w+) \{\n(.*?)^\}", text, re.M | re.S))
                self.names |= self.declared(text)
        self.names |= PUBLIC

    @staticmethod
    def declared(text):
        """Flags, constants, and macros: what a program writes besides calls."""
        enums = re.findall(r"\benum\s*\w*\s*\{(.*?)\}", text, re.S)
        names = {n for body in enums for n in re.findall(r"\bS(?:GP|V)_\w+", body)}
        names |= set(re.findall(r"^#define (SGP_\w+)", text, re.M))
        return names - {"SV_NCOUNTERS"}


class Page:
    def __init__(self, name, text):
        self.name, self.text = name, text
        self.names = re.findall(r"^\.Nm (\S+)", text[: text.index(".Nd ")], re.M)

    def section(self, title):
        found = re.search(rf"^\.Sh {title}\n(.*?)(?=^\.Sh |\Z)", self.text, re.M | re.S)
        return found.group(1) if found else ""

    def displays(self, text):
        shown = re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", text, re.M | re.S)
        return [d.replace("\\e", "\\").replace("\\-", "-") for d in shown]

    def synopsis(self):
        """Its includes, its prototypes by name, and its macros."""
        includes, prototypes, macros, ret, call = [], [], [], None, None
        for line in self.section("SYNOPSIS").splitlines():
            macro, _, rest = line.partition(" ")
            rest = rest.strip('"')
            if macro == ".In":
                includes.append(rest)
            elif macro == ".Ft":
                ret = rest
            elif macro == ".Fn":
                macros.append(rest.split()[0])
            elif macro == ".Fo":
                call = [rest]
            elif macro == ".Fa":
                call.append(rest)
            elif macro == ".Fc":
                prototypes.append((call[0], f"{ret} {call[0]}({', '.join(call[1:])})"))
                ret = call = None
        return includes, prototypes, macros


def compile_text(what, text):
    done = subprocess.run([cc, "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
                           f"-I{headers.parent}", f"-I{build}/include", "-xc", "-"],
                          input=text, capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"{what}:\n{done.stderr}"]


def members(body):
    """Declarators of a structure's members: their names, with what makes sense of them in offsetof."""
    body = re.sub(r"\bunion \{(.*?)\};", r"\1", body, flags=re.S)
    names = []
    for declaration in body.split(";"):
        pointer = re.search(r"\(\*(\w+)\)", declaration)
        if pointer:
            names.append(pointer.group(1))
            continue
        for part in declaration.split(","):
            name = re.search(r"(\w+)\s*(\[[^\]]*\])?\s*$", part.strip())
            if name:
                names.append(name.group(1))
    return names


def check_declarations(page, there):
    """The SYNOPSIS and the structures: compared as text, then compiled beside the headers'."""
    includes, prototypes, macros = page.synopsis()
    wrong = []
    code = ["#define SGP_NO_INLINE", "#include <stddef.h>"] + [f"#include <{i}>" for i in includes]
    for name, prototype in prototypes:
        # The name must be known before: else this would be its first declaration.
        code += [f"__typeof__({name}) *before_{name};", f"{prototype};"]
        if squeeze(prototype) != there.prototypes.get(name):
            wrong.append(f"{page.name}: {prototype}\n  the headers: {there.prototypes.get(name)}")
    for name in macros:
        code += [f"#ifndef {name}", f"#error {name} is no macro", "#endif"]
    listed = [name for name, _ in prototypes] + macros
    if sorted(listed) != sorted(page.names):
        wrong.append(f"{page.name}: NAME and SYNOPSIS differ: {set(listed) ^ set(page.names)}")
    for shown in page.displays(page.section("DESCRIPTION")):
        structure = re.match(r"struct (\w+) \{\n(.*)\};\n", shown, re.S)
        if structure:
            code += same_structure(*structure.groups())
        else:
            wrong.append(f"{page.name}: a display that is no structure:\n{shown}")
    return wrong + compile_text(f"{page.name}: SYNOPSIS and structures", "\n".join(code) + "\n")


def same_structure(name, body):
    """C that compiles if the headers' structure has these members, there and of these types."""
    code = [f"struct page_{name} {{\n{body}}};",
            f'_Static_assert(sizeof(struct page_{name}) == sizeof(struct {name}), "{name}");']
    for member in members(body):
        of_page, of_headers = [f"__typeof__(((struct {s} *)0)->{member})" for s in (f"page_{name}", name)]
        code.append(f"_Static_assert(offsetof(struct page_{name}, {member}) == offsetof(struct {name}, {member}) && "
                    f'__builtin_types_compatible_p({of_page}, {of_headers}), "{name}.{member}");')
    return code


def check_examples(page, where):
    wrong = []
    for shown in page.displays(where):
        wrong += compile_text(f"{page.name}: EXAMPLE", shown if "int main(" in shown else PRELUDE % shown)
    return wrong


def check_names(page, there):
    """What a page names of ours is there."""
    text = re.sub(r"^\.(?:Xr|Dt|Ev|It Ev) .*$", "", page.text, flags=re.M)
    known = set(there.prototypes) | there.types | there.names
    return [f"{page.name}: the headers don't have {n}" for n in sorted(set(OURS.findall(text)) - known)]


def check_errors(page, there):
    """The errors that the headers give for its functions, and no others that they never speak of."""
    listed = {e for line in re.findall(r"^\..*\bEr (.*)$", page.text, re.M) for e in ERRNO.findall(line)}
    due = set().union(*(there.errors.get(name, set()) for name in page.names))
    return [f"{page.name}: nothing on {e}, which the headers have" for e in sorted(due - listed)] + [
        f"{page.name}: {e}, of which the headers have nothing" for e in sorted(listed - there.every_error)]


def check_page(page, there):
    wrong = check_names(page, there)
    if page.name.split(" ")[0].endswith(".3"):
        wrong += check_declarations(page, there) + check_errors(page, there)
    return wrong + check_examples(page, page.text if page.name in CODE else page.section("EXAMPLE"))


def exported(library):
    """What a library exports for programs: not what libsgpool-heap alone may use, nor verbs' own names."""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in lines.splitlines()}
    return {n.split("@")[0] for n in names if re.match(r"sgp_|sv_", n) and not n.endswith("@SGPOOL_PRIVATE")}


def check_installed(names):
    """man(1) finds each function where the pages are installed."""
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-P", f"{build}/man/cmake_install.cmake"],
                       check=True, capture_output=True)
        wrong = []
        for name in sorted(names):
            found = list(pathlib.Path(prefix).glob(f"**/man3/{name}.3"))
            text = found[0].read_text() if found else ""
            if text.startswith(".so "):
                target = found[0].parent.parent / text.split()[1]
                text = target.read_text() if target.exists() else ""
            if f".Nm {name}" not in text:
                wrong.append(f"{name}(3) is not found when it's installed")
        return wrong


def check_all_are_there(pages, there, libraries):
    wrong = []
    named = {n for p in pages for n in p.names}
    functions = set(there.prototypes).union(*map(exported, libraries)) - HIDDEN
    for name in sorted(functions - named):
        wrong.append(f"{name} has no page")
    wrong += check_installed(functions)
    text = "\n".join(p.text for p in pages)
    for name in sorted(there.names):
        if not re.search(rf"\b{name}\b", text):
            wrong.append(f"{name} is on no page")
    for name, body in there.structures.items():
        if f"struct {name} {{" not in text:
            wrong.append(f"struct {name} is on no page")
            continue
        page = next(p for p in pages if f"struct {name} {{" in p.text)
        described = " ".join(re.findall(r"^\.(?:It )?Fa (.*)$", page.text, re.M))
        for member in members(body):
            if not re.search(rf"\b{member}\b", described) and name != "sgp_waiter":
                wrong.append(f"{page.name}: struct {name}: nothing on {member}")
    return wrong


def check_references(pages):
    """Each page of ours that is referred to is there, in its section."""
    there = {(n, p.name[-1]) for p in pages for n in p.names}
    wrong = []
    for page in pages:
        for name, section in re.findall(r"^\.Xr (\S+) (\d)", page.text, re.M):
            if re.match(r"(sgp|sv)_|SGP_|sgpool|softverbs", name) and (name, section) not in there:
                wrong.append(f"{page.name}: there is no {name}({section})")
    return wrong


def spoil(pages):
    """Pages of ours, each with one mistake that somebody may make."""
    by_name = {p.name: p.text for p in pages}

    def spoilt(name, old, new):
        text = by_name[name]
        assert old in text, (name, old)
        return Page(f"{name} with {old!r} -> {new!r}", text.replace(old, new, 1))

    return [
        spoilt("sgp_pool_get.3", '.Fa "size_t size"\n.Fa "int flags"\n.Fc', '.Fa "int size"\n.Fa "int flags"\n.Fc'),
        spoilt("sgp_pool_get.3", '.Fa "int flags"\n', ""),
        spoilt("sgp_pool_get.3", ".Ft void\n", ".Ft int\n"),
        spoilt("sgp_pool_get.3", ".In sgpool/pool.h", ".In sgpool/export.h"),
        spoilt("sgp_pool_get.3", ".Fo sgp_chunk_ref", ".Fo sgp_chunk_refer"),
        spoilt("sgp_pool_get.3", "sgp_chunk_put(one);", "sgp_chunk_put(one, 1);"),
        spoilt("sgp_pool_get.3", ".Dv SGP_MAY_GROW", ".Dv SGP_MAY_GROWS"),
        spoilt("sgp_cq_create.3", "    int max_sge;\n", "    unsigned int max_sge;\n"),
        spoilt("sgp_cq_create.3", "    int cqe;\n    int cqe_fixed;\n", "    int cqe_fixed;\n    int cqe;\n"),
        spoilt("sgp_cq_create.3", "    int max_chunk;\n", ""),
        spoilt("sgp_pool_get.3", ".It Bq Er ENOBUFS", ".It Bq Er ENOSPC"),
        spoilt("sgp_sgl_init.3", ".Fn SGP_SGL name n", ".Fn SGP_SGLS name n"),
    ]


def main():
    at = sys.argv.index("--")
    libraries = sys.argv[at + 1 :]
    there = Headers()
    pages = [Page(pathlib.Path(p).name, pathlib.Path(p).read_text()) for p in sys.argv[4:at]]
    functions = [p for p in pages if p.name.endswith(".3")]
    assert len(there.prototypes) > 100 and len(there.names) > 60 and len(functions) > 20 and libraries
    wrong = check_all_are_there(functions, there, libraries) + check_references(pages)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda p: check_page(p, there), pages):
            wrong += found
        for page, found in pool.map(lambda p: (p, check_page(p, there)), spoil(functions)):
            if not found:
                wrong.append(f"{page.name}: not noticed")
    for line in wrong:
        print("FAILED:", line)
    print(len(functions), "pages,", len(there.prototypes), "functions,", len(wrong), "failures")
    return bool(wrong)


sys.exit(main())
