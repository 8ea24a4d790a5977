/* A file system without locks, and without mappings if NO_MMAP is set: every call on a file below NO_LOCKS_ROOT fails as
   on a network file system that lacks them. Preloaded into a process (LD_PRELOAD), so SQLite meets it, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_there(int descriptor) {
    char link[64], path[4096];
    const char *root = getenv("NO_LOCKS_ROOT");
    if (!root || descriptor < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, root, strlen(root)) == 0;
}

static int is_lock(int command) { return command == F_SETLK || command == F_SETLKW || command == F_GETLK; }

int flock(int descriptor, int operation) {
    if (is_there(descriptor)) { errno = ENOLCK; return -1; }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(descriptor, operation);
}

static int control(const char *name, int descriptor, int command, void *argument) {
    if (is_lock(command) && is_there(descriptor)) { errno = ENOLCK; return -1; }
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, name))(descriptor, command, argument);
}

int fcntl(int descriptor, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return control("fcntl", descriptor, command, argument);
}

int fcntl64(int descriptor, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return control("fcntl64", descriptor, command, argument);
}

void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    if (getenv("NO_MMAP") && !(flags & MAP_ANONYMOUS) && is_there(descriptor)) { errno = ENODEV; return MAP_FAILED; }
    return ((void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap"))(
        address, size, protection, flags, descriptor, offset);
}

void *mmap64(void *address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    return mmap(address, size, protection, flags, descriptor, offset);
}
