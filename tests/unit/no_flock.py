"""A file system without locks, for the processes that are started with its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from workspace import first_on_path

_PRELOADED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
static int refused(void) { errno = REFUSAL; return -1; }
int flock(int descriptor, int operation) { return refused(); }
static int control(const char *name, int descriptor, int command, void *argument) {
    switch (command) {
    case F_GETLK: case F_SETLK: case F_SETLKW:
    case F_OFD_GETLK: case F_OFD_SETLK: case F_OFD_SETLKW: return refused();
    }
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
    return real(descriptor, command, argument);
}
#define CONTROL(name) int name(int descriptor, int command, ...) { \\
    va_list rest; va_start(rest, command); void *argument = va_arg(rest, void *); va_end(rest); \\
    return control(#name, descriptor, command, argument); }
CONTROL(fcntl)
CONTROL(fcntl64)
"""
_IMPORTED = """
import fcntl, os
def refused(*_):
    raise OSError({number}, os.strerror({number}))
fcntl.flock = fcntl.lockf = refused
"""


def no_flock(folder: Path, number: int) -> dict[str, str]:
    """Environment of processes for which every lock fails with this error number.

    By a library that is loaded first, as C programs see it; where there is no compiler, by a module
    that each Python imports.
    """
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        (folder / "sitecustomize.py").write_text(_IMPORTED.format(number=number))
        return {**os.environ, "PYTHONPATH": first_on_path(folder)}
    source, library = folder / "no_flock.c", folder / "no_flock.so"
    source.write_text(_PRELOADED)
    options = ["-shared", "-fPIC", f"-DREFUSAL={number}", "-o", str(library), str(source), "-ldl"]
    subprocess.run([compiler, *options], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}
