/* A stand-in for NVIDIA's driver, whose "GPU" is this process: its memory lies between guard pages, its streams do nothing before
   somebody waits for them, and what a real driver refuses is refused. Every call is noted. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_ISOLATION = 905 };
enum { UPLOAD, DOWNLOAD, WITHIN, LAUNCH, RECORD, WAIT };

typedef struct { char *begin, *end, *map; size_t mapped; int pinned, live; } Piece;
typedef struct { void (*run)(void **, const unsigned *, const unsigned *); int count; char name[256]; } Function;
typedef struct Event Event;
typedef struct Stream Stream;
typedef struct {
    int kind;
    char *to, *from, *staged;
    size_t size;
    Function *function;
    unsigned grid[3], block[3];
    uint64_t values[64];
    Event *event;
    Stream *after;
    int until;
} Call;
typedef struct { Call *calls; int count, room; } Calls;
struct Stream { int number, done, capturing, spoilt; Calls calls, captured; };
struct Event { Stream *stream; int position; double time; };

static Piece pieces[65536];
static int piece_count, stream_count;
static size_t used, total = 64u << 20;
static __thread int contexts;
static char *notes, failing[64];
static size_t noted, notes_room;
static pthread_mutex_t lock;
static int dummy;

__attribute__((constructor)) static void begin(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &kind);
    if (getenv("STANDIN_MEMORY")) total = strtoull(getenv("STANDIN_MEMORY"), NULL, 10);
}

static void unlock(int *unused) { (void)unused; pthread_mutex_unlock(&lock); }

static void note(const char *format, ...) {
    char line[512];
    va_list rest;
    va_start(rest, format);
    size_t size = (size_t)vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    if (noted + size + 2 > notes_room) notes = realloc(notes, notes_room = 2 * (noted + size + 2));
    memcpy(notes + noted, line, size);
    noted += size;
    notes[noted++] = '\n';
}

static int fails(const char *name) {
    if (strcmp(failing, name)) return 0;
    failing[0] = 0;
    return 1;
}

/* Every function begins with one of these: it is alone, and fails where it was told to. */
#define ENTER(name) \
    pthread_mutex_lock(&lock); \
    int held __attribute__((cleanup(unlock), unused)) = 0; \
    if (fails(name)) return LAUNCH_FAILED
#define ENTER_CONTEXT(name) ENTER(name); if (!contexts) return INVALID_CONTEXT

/* -- for tests ---------------------------------------------------------------------------------------- */

/* The calls since the last time. */
size_t standin_notes(char *into, size_t room) {
    size_t size = noted < room ? noted : room;
    memcpy(into, notes, size);
    noted = 0;
    return size;
}

void standin_fail(const char *name) { snprintf(failing, sizeof failing, "%s", name); }

size_t standin_used(void) { return used; }

/* -- the device --------------------------------------------------------------------------------------- */

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? INVALID_VALUE : OK; }
int cuDeviceGetName(char *name, int room, int device) { (void)device; snprintf(name, room, "Stand-in"); return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 8 : 0;
    return attribute == 75 || attribute == 76 ? OK : INVALID_VALUE;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = total; return OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    (void)device;
    *context = &dummy;
    return OK;
}
int cuCtxPushCurrent_v2(void *context) { if (context != &dummy) return INVALID_CONTEXT; contexts++; return OK; }
int cuCtxPopCurrent_v2(void **context) { if (!contexts) return INVALID_CONTEXT; contexts--; *context = &dummy; return OK; }

int cuGetErrorName(int status, const char **text) {
    *text = status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : status == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
          : status == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : status == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : status == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : NULL;
    return *text ? OK : INVALID_VALUE;
}
int cuGetErrorString(int status, const char **text) { (void)status; *text = "the stand-in says so"; return OK; }

/* -- memory ------------------------------------------------------------------------------------------- */

/* The piece that holds all of these bytes. */
static Piece *piece_of(const char *begin, size_t size) {
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].live && pieces[i].begin <= begin && begin + size <= pieces[i].end) return &pieces[i];
    return NULL;
}

/* Bytes that end, up to the alignment, at a page that nobody may touch, and begin behind another. All are those of a NaN. */
static int take(char **address, size_t size, int pinned) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + 255) & ~(size_t)255, held = (whole + page - 1) & ~(page - 1);
    if (!size || piece_count == 65536) return INVALID_VALUE;
    if (!pinned && used + whole > total) return OUT_OF_MEMORY;
    char *map = mmap(NULL, held + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, held, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
    memset(map + page, 0xff, held);
    *address = map + page + held - whole;
    pieces[piece_count++] = (Piece){*address, *address + size, map, held + 2 * page, pinned, 1};
    if (!pinned) used += whole;
    return OK;
}

static void run_all(void);

/* Nobody may touch the piece any more. Bytes behind its end that were written are the end of the process. */
static int give(char *address, int pinned) {
    run_all();
    for (int i = 0; i < piece_count; i++) {
        Piece *piece = &pieces[i];
        if (!piece->live || piece->begin != address || piece->pinned != pinned) continue;
        size_t whole = (size_t)(piece->end - piece->begin + 255) & ~(size_t)255;
        for (char *byte = piece->end; byte < piece->begin + whole; byte++)
            if ((unsigned char)*byte != 0xff) abort();
        piece->live = 0;
        if (!pinned) used -= whole;
        return mprotect(piece->map, piece->mapped, PROT_NONE) ? INVALID_VALUE : OK;
    }
    return INVALID_VALUE;
}

int cuMemGetInfo_v2(size_t *free_, size_t *total_) { ENTER_CONTEXT("cuMemGetInfo_v2"); *free_ = total - used; *total_ = total; return OK; }
int cuMemAlloc_v2(char **address, size_t size) {
    ENTER_CONTEXT("cuMemAlloc_v2");
    note("allocate %zu", size);
    return take(address, size, 0);
}
int cuMemFree_v2(char *address) { ENTER_CONTEXT("cuMemFree_v2"); note("free"); return give(address, 0); }
int cuMemHostAlloc(char **address, size_t size, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuMemHostAlloc");
    note("pin %zu", size);
    return take(address, size, 1);
}
int cuMemFreeHost(char *address) { ENTER_CONTEXT("cuMemFreeHost"); note("unpin"); return give(address, 1); }

/* -- streams ------------------------------------------------------------------------------------------ */

static Stream *streams[1024];

static void run_call(Call *call);

static void run_until(Stream *stream, int count) {
    while (stream->done < count) run_call(&stream->calls.calls[stream->done++]);
}

static void run_all(void) {
    for (int i = 0; i < stream_count; i++)
        if (streams[i]) run_until(streams[i], streams[i]->calls.count);
}

static void run_call(Call *call) {
    struct timespec now;
    switch (call->kind) {
    case UPLOAD:
        memcpy(call->to, call->staged ? call->staged : call->from, call->size);
        free(call->staged);
        break;
    case DOWNLOAD:
    case WITHIN:
        memmove(call->to, call->from, call->size);
        break;
    case LAUNCH: {
        void *values[64];
        for (int i = 0; i < 64; i++) values[i] = &call->values[i];
        call->function->run(values, call->grid, call->block);
        break;
    }
    case RECORD:
        clock_gettime(CLOCK_MONOTONIC, &now);
        call->event->time = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
        break;
    case WAIT:
        run_until(call->after, call->until);
        break;
    }
}

static int add(Stream *stream, Call call) {
    Calls *calls = stream->capturing ? &stream->captured : &stream->calls;
    if (calls->count == calls->room) calls->calls = realloc(calls->calls, sizeof(Call) * (size_t)(calls->room = 2 * calls->room + 16));
    calls->calls[calls->count++] = call;
    return OK;
}

static int spoilt(Stream *stream) { stream->spoilt = 1; return CAPTURE_UNSUPPORTED; }

int cuStreamCreate(Stream **stream, unsigned flags) {
    ENTER_CONTEXT("cuStreamCreate");
    if (flags != 1 || stream_count == 1024) return INVALID_VALUE;
    *stream = streams[stream_count] = calloc(1, sizeof(Stream));
    (*stream)->number = ++stream_count;
    note("stream %d", stream_count);
    return OK;
}
int cuStreamDestroy_v2(Stream *stream) {
    ENTER_CONTEXT("cuStreamDestroy_v2");
    run_until(stream, stream->calls.count);
    note("end of stream %d", stream->number);
    return OK;
}
int cuStreamSynchronize(Stream *stream) {
    ENTER_CONTEXT("cuStreamSynchronize");
    note("wait for %d", stream->number);
    if (stream->capturing) return spoilt(stream);
    run_until(stream, stream->calls.count);
    return OK;
}
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    ENTER_CONTEXT("cuStreamWaitEvent");
    if (flags || !event->stream) return flags ? INVALID_VALUE : OK;
    note("%d after %d", stream->number, event->stream->number);
    if (stream->capturing) return CAPTURE_ISOLATION;
    return add(stream, (Call){.kind = WAIT, .after = event->stream, .until = event->position});
}

int cuMemcpyHtoDAsync_v2(char *to, char *from, size_t size, Stream *stream) {
    ENTER_CONTEXT("cuMemcpyHtoDAsync_v2");
    Piece *target = piece_of(to, size), *source = piece_of(from, size);
    note("%d up %zu%s", stream->number, size, source ? "" : " pageable");
    if (!target || target->pinned || (source && !source->pinned)) return INVALID_VALUE;
    if (!source && stream->capturing) return spoilt(stream);
    char *staged = source ? NULL : memcpy(malloc(size), from, size);
    return add(stream, (Call){.kind = UPLOAD, .to = to, .from = from, .staged = staged, .size = size});
}
int cuMemcpyDtoHAsync_v2(char *to, char *from, size_t size, Stream *stream) {
    ENTER_CONTEXT("cuMemcpyDtoHAsync_v2");
    Piece *target = piece_of(to, size), *source = piece_of(from, size);
    note("%d down %zu%s", stream->number, size, target ? "" : " pageable");
    if (!source || source->pinned || (target && !target->pinned)) return INVALID_VALUE;
    if (!target && stream->capturing) return spoilt(stream);
    add(stream, (Call){.kind = DOWNLOAD, .to = to, .from = from, .size = size});
    if (!target) run_until(stream, stream->calls.count);
    return OK;
}
int cuMemcpyDtoDAsync_v2(char *to, char *from, size_t size, Stream *stream) {
    ENTER_CONTEXT("cuMemcpyDtoDAsync_v2");
    Piece *target = piece_of(to, size), *source = piece_of(from, size);
    note("%d within %zu", stream->number, size);
    if (!target || !source || target->pinned || source->pinned) return INVALID_VALUE;
    return add(stream, (Call){.kind = WITHIN, .to = to, .from = from, .size = size});
}

int cuEventCreate(Event **event, unsigned flags) {
    ENTER_CONTEXT("cuEventCreate");
    (void)flags;
    *event = calloc(1, sizeof(Event));
    return OK;
}
int cuEventRecord(Event *event, Stream *stream) {
    ENTER_CONTEXT("cuEventRecord");
    add(stream, (Call){.kind = RECORD, .event = event});
    *event = (Event){stream, stream->calls.count, 0};
    return OK;
}
int cuEventDestroy_v2(Event *event) { ENTER_CONTEXT("cuEventDestroy_v2"); return event ? OK : INVALID_VALUE; }
int cuEventElapsedTime(float *ms, Event *start, Event *end) {
    ENTER_CONTEXT("cuEventElapsedTime");
    if (!start->time || !end->time) return INVALID_VALUE;
    *ms = (float)(end->time - start->time);
    return OK;
}

/* -- code: a "cubin" is a shared library ---------------------------------------------------------------- */

int cuModuleLoadData(void **module, const void *image) {
    ENTER_CONTEXT("cuModuleLoadData");
    size_t size;
    char path[] = "/tmp/standin-XXXXXX.so";
    memcpy(&size, image, sizeof size);
    int file = mkstemps(path, 3);
    if (file < 0 || write(file, (const char *)image + sizeof size, size) != (ssize_t)size) return INVALID_VALUE;
    close(file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    note("load");
    return *module ? OK : INVALID_VALUE;
}
int cuModuleUnload(void *module) {
    ENTER_CONTEXT("cuModuleUnload");
    run_all();
    note("unload");
    return dlclose(module) ? INVALID_VALUE : OK;
}
int cuModuleGetFunction(Function **function, void *module, const char *name) {
    ENTER_CONTEXT("cuModuleGetFunction");
    char symbol[300];
    snprintf(symbol, sizeof symbol, "run_%s", name);
    void *run = dlsym(module, symbol);
    snprintf(symbol, sizeof symbol, "count_%s", name);
    int *count = dlsym(module, symbol);
    if (!run || !count) return NOT_FOUND;
    *function = calloc(1, sizeof(Function));
    (*function)->run = (void (*)(void **, const unsigned *, const unsigned *))run;
    (*function)->count = *count;
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return OK;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
    (void)function;
    return attribute == 8 && value <= 232448 ? OK : INVALID_VALUE;
}
int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Stream *stream, void **values, void **extra) {
    ENTER_CONTEXT("cuLaunchKernel");
    note("%d launch %s %ux%ux%u", stream->number, f->name, gx, gy, gz);
    uint64_t threads = (uint64_t)bx * by * bz;
    if (!gx || !gy || !gz || gx > 2147483647u || gy > 65535 || gz > 65535 || !threads || threads > 1024 || bz > 64) return INVALID_VALUE;
    if (extra || shared > 49152 || f->count > 64) return INVALID_VALUE;
    Call call = {.kind = LAUNCH, .function = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
    for (int i = 0; i < f->count; i++) memcpy(&call.values[i], values[i], 8);
    return add(stream, call);
}

/* -- recorded calls ------------------------------------------------------------------------------------- */

int cuStreamBeginCapture_v2(Stream *stream, int mode) {
    ENTER_CONTEXT("cuStreamBeginCapture_v2");
    note("record %d", stream->number);
    if (mode != 2 || stream->capturing) return INVALID_VALUE;
    stream->captured = (Calls){0};
    stream->capturing = 1;
    stream->spoilt = 0;
    return OK;
}
int cuStreamEndCapture(Stream *stream, Calls **graph) {
    ENTER_CONTEXT("cuStreamEndCapture");
    if (!stream->capturing) return INVALID_VALUE;
    stream->capturing = 0;
    *graph = NULL;
    if (stream->spoilt) return CAPTURE_UNSUPPORTED;
    *graph = malloc(sizeof(Calls));
    **graph = stream->captured;
    return OK;
}
int cuGraphInstantiateWithFlags(Calls **executable, Calls *graph, unsigned long long flags) {
    ENTER_CONTEXT("cuGraphInstantiateWithFlags");
    if (flags || !graph) return INVALID_VALUE;
    *executable = malloc(sizeof(Calls));
    **executable = *graph;
    return OK;
}
int cuGraphDestroy(Calls *graph) { ENTER_CONTEXT("cuGraphDestroy"); free(graph); return OK; }
int cuGraphLaunch(Calls *executable, Stream *stream) {
    ENTER_CONTEXT("cuGraphLaunch");
    note("%d replay %d", stream->number, executable->count);
    for (int i = 0; i < executable->count; i++) add(stream, executable->calls[i]);
    return OK;
}
int cuGraphExecDestroy(Calls *executable) { ENTER_CONTEXT("cuGraphExecDestroy"); note("forget"); free(executable); return OK; }
