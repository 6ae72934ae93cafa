"""A name service that fails as the test wants: a library that looks names up before the C library does."""

import subprocess
from pathlib import Path

from tests.services.find import program, require

VARIABLE = "OUTBOXD_TEST_NAMES"

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints, struct addrinfo **found) {
    const char *directory = getenv("OUTBOXD_TEST_NAMES");
    if (name && !strcmp(name, "slow.invalid")) { sleep(8); return EAI_AGAIN; }
    if (name && directory && !strcmp(name, "moody.invalid")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/asked", directory);
        int asked = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (asked >= 0 && hints && hints->ai_family != AF_INET6) { if (write(asked, "x", 1) < 0) abort(); }
        if (asked >= 0) close(asked);
        snprintf(path, sizeof path, "%s/answers", directory);
        if (access(path, F_OK)) return EAI_AGAIN;
        name = "127.0.0.1";
    }
    return ((look_up *)dlsym(RTLD_NEXT, "getaddrinfo"))(name, port, hints, found);
}
"""


def name_service(directory: Path) -> dict[str, str]:
    """The environment of a process in which `slow.invalid` takes 8 s to fail, and `moody.invalid` is 127.0.0.1 while a
    file `answers` is in the directory, and cannot be found otherwise. `asked` there grows by a byte each time.
    """
    compiler = require("cc", program("cc", "gcc"), "no C compiler is installed")
    source, library = directory / "names.c", directory / "names.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library), VARIABLE: str(directory)}
