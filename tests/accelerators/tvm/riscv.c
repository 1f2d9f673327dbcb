/* Calls the kernels of a library (argument 1) as TVM does, one after another, as its standard input says: the length of a kernel's
   name, the name, the number of its arguments; for each of these the bytes of a tensor, or -1 and an integer; for a tensor its type,
   its number of dimensions, their sizes, and the bytes. The answer is what the kernel returns, and the bytes of all tensors. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  uint32_t dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct { int32_t type, zero; union { int64_t number; void *pointer; } value; } Any;
typedef int (*Kernel)(void *self, const Any *args, int32_t count, Any *result);
enum { MOST = 512, INTEGER = 1, TENSOR = 7, RANK = 16, GUARD = 4096, MARK = 0xA5 };

static void in(void *data, size_t size) {
  if (size && fread(data, 1, size, stdin) != size) exit(0);
}

static int64_t number(void) {
  int64_t value;
  in(&value, sizeof value);
  return value;
}

static void *workspace(int device, int id, uint64_t size, int code, int bits) {
  (void)device, (void)id, (void)code, (void)bits;
  return aligned_alloc(64, (size + 63) / 64 * 64);
}

static int release(int device, int id, void *data) {
  (void)device, (void)id;
  free(data);
  return 0;
}

/* An error that a kernel states: the library links to it. */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  fprintf(stderr, "%s: ", kind);
  for (int32_t i = 0; i < count; i++) fprintf(stderr, "%s", parts[i]);
  fprintf(stderr, "\n");
}

static void set(void *library, const char *slot, void *function) {
  void **found = dlsym(library, slot);
  if (found) *found = function;
}

int main(int count, char **names) {
  void *library = count > 1 ? dlopen(names[1], RTLD_NOW) : NULL;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
  void (*threads)(int32_t) = (void (*)(int32_t))dlsym(library, "partita_threads");
  if (threads) threads(2);
  set(library, "__TVMBackendParallelLaunch", dlsym(library, "partita_launch"));
  set(library, "__TVMBackendAllocWorkspace", (void *)workspace);
  set(library, "__TVMBackendFreeWorkspace", (void *)release);
  static Tensor tensors[MOST];
  static Any args[MOST];
  static int64_t sizes[MOST], shapes[MOST][RANK];
  for (;;) {
    char name[512] = {0};
    in(name, number());
    int64_t given = number();
    for (int64_t i = 0; i < given; i++) {
      sizes[i] = number();
      if (sizes[i] < 0) {
        args[i] = (Any){INTEGER, 0, {.number = number()}};
        continue;
      }
      Tensor *tensor = &tensors[i];
      uint32_t dtype = number();
      *tensor = (Tensor){aligned_alloc(64, (sizes[i] + GUARD) / 64 * 64 + 64), {1, 0}, 0, dtype, shapes[i], NULL, 0};
      memset((char *)tensor->data + sizes[i], MARK, GUARD);
      tensor->ndim = number();
      for (int32_t d = 0; d < tensor->ndim; d++) shapes[i][d] = number();
      in(tensor->data, sizes[i]);
      args[i] = (Any){TENSOR, 0, {.pointer = tensor}};
    }
    Any result = {0};
    Kernel kernel = (Kernel)dlsym(library, name);
    int64_t status = kernel ? kernel(NULL, args, given, &result) : -1;
    for (int64_t i = 0; i < given; i++)
      for (int64_t k = 0; sizes[i] >= 0 && k < GUARD; k++)
        if (((unsigned char *)tensors[i].data)[sizes[i] + k] != MARK) status = 1000 + i;
    fwrite(&status, sizeof status, 1, stdout);
    for (int64_t i = 0; i < given; i++)
      if (sizes[i] >= 0) fwrite(tensors[i].data, 1, sizes[i], stdout), free(tensors[i].data);
    fflush(stdout);
  }
}
