/* Stands before the C library for files below one folder: records every write, sync, truncation and removal, and fails
   the n-th (removals never fail);
   or lets the disk be read-only from the n-th change on, as a kernel leaves it that met an error.
   Armed and switched by the test itself (shim_watch, shim_fail); does nothing until then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static int record = -1, fail_op, fail_left, failed;
enum { WRITE = 1, SYNC = 2, TRUNCATE = 3, READ_ONLY = 4, REMOVE = 5 };

int shim_watch(const char *below, int fd) { strncpy(folder, below, sizeof folder - 1); record = fd; return 0; }
int shim_fail(int op, int nth) { fail_op = op; fail_left = nth; failed = 0; return 0; }
int shim_failed(void) { return failed; }

static int watched(int fd, char *path) {
    char link[64];
    if (!folder[0] || fd == record) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    if (n < 0) return 0;
    path[n] = 0;
    return !strncmp(path, folder, strlen(folder)) && !strstr(path, "-shm");
}
static ssize_t real_write(int fd, const void *b, size_t n) {
    static ssize_t (*f)(int, const void *, size_t);
    if (!f) f = dlsym(RTLD_NEXT, "write");
    return f(fd, b, n);
}
static int note(int op, int fd, const void *data, uint64_t n, uint64_t at) {
    char path[4096];
    int kept = errno;
    if (!watched(fd, path)) { errno = kept; return 0; }
    if (fail_op == op && fail_left > 0 && --fail_left == 0) { failed = 1; errno = EIO; return -1; }
    if (fail_op == READ_ONLY && op != SYNC && (failed || (fail_left > 0 && --fail_left == 0))) {
        failed = 1;
        errno = EROFS;
        return -1;
    }
    if (record >= 0) {
        uint64_t head[4] = {op, strlen(path), at, op == WRITE ? n : 0};
        real_write(record, head, sizeof head);
        real_write(record, path, head[1]);
        if (op == WRITE) real_write(record, data, n);
    }
    errno = kept;
    return 0;
}
ssize_t write(int fd, const void *b, size_t n) {
    char path[4096];
    off_t at = folder[0] && watched(fd, path) ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
    return note(WRITE, fd, b, n, at) ? -1 : real_write(fd, b, n);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) {
    static ssize_t (*f)(int, const void *, size_t, off64_t);
    if (!f) f = dlsym(RTLD_NEXT, "pwrite64");
    return note(WRITE, fd, b, n, at) ? -1 : f(fd, b, n, at);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { return pwrite64(fd, b, n, at); }
int fsync(int fd) {
    static int (*f)(int);
    if (!f) f = dlsym(RTLD_NEXT, "fsync");
    return note(SYNC, fd, 0, 0, 0) ? -1 : f(fd);
}
int fdatasync(int fd) {
    static int (*f)(int);
    if (!f) f = dlsym(RTLD_NEXT, "fdatasync");
    return note(SYNC, fd, 0, 0, 0) ? -1 : f(fd);
}
int ftruncate64(int fd, off64_t to) {
    static int (*f)(int, off64_t);
    if (!f) f = dlsym(RTLD_NEXT, "ftruncate64");
    return note(TRUNCATE, fd, 0, 0, to) ? -1 : f(fd, to);
}
int ftruncate(int fd, off_t to) { return ftruncate64(fd, to); }
int unlink(const char *name) {
    static int (*f)(const char *);
    if (!f) f = dlsym(RTLD_NEXT, "unlink");
    int done = f(name);
    if (!done && folder[0] && record >= 0 && !strncmp(name, folder, strlen(folder)) && !strstr(name, "-shm")) {
        uint64_t head[4] = {REMOVE, strlen(name), 0, 0};
        real_write(record, head, sizeof head);
        real_write(record, name, head[1]);
    }
    return done;
}
