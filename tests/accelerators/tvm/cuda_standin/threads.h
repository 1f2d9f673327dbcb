/* What CUDA source needs to be compiled as C++ for the processor. The threads of a block are fibers: each runs up to a barrier,
   then the next one does. Blocks run one after the other. */

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN

struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b) { return b < a ? b : a; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

namespace fibers {
constexpr size_t STACK = 1 << 17;
enum Waits { Runs, ForBlock, ForWarp, Done };
struct Fiber {
    ucontext_t context;
    char *stack;
    Waits waits;
    Place place;
};
static Fiber all[1024];
static ucontext_t scheduler;
static size_t now;
static void (*body)(void **);
static void **given;
static char passed[1024][16];

static void start() {
    body(given);
    all[now].waits = Done;
    swapcontext(&all[now].context, &scheduler);
}

static void wait(Waits what) {
    all[now].waits = what;
    swapcontext(&all[now].context, &scheduler);
}

/* Where all that are left of these fibers wait for the same, they go on. */
static bool release(size_t from, size_t to, Waits what) {
    bool any = false;
    for (size_t i = from; i < to; i++) {
        if (all[i].waits != what && all[i].waits != Done) return false;
        any |= all[i].waits == what;
    }
    for (size_t i = from; any && i < to; i++)
        if (all[i].waits == what) all[i].waits = Runs;
    return any;
}

static void run_block(const unsigned *block) {
    size_t count = (size_t)block[0] * block[1] * block[2];
    for (size_t i = 0; i < count; i++) {
        Fiber &fiber = all[i];
        if (!fiber.stack) fiber.stack = static_cast<char *>(malloc(STACK));
        fiber.place = {unsigned(i % block[0]), unsigned(i / block[0] % block[1]), unsigned(i / block[0] / block[1])};
        fiber.waits = Runs;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack;
        fiber.context.uc_stack.ss_size = STACK;
        makecontext(&fiber.context, start, 0);
    }
    for (;;) {
        bool left = false, went = false;
        for (now = 0; now < count; now++) {
            left |= all[now].waits != Done;
            if (all[now].waits != Runs) continue;
            went = true;
            threadIdx = all[now].place;
            swapcontext(&scheduler, &all[now].context);
        }
        if (!left) return;
        for (size_t i = 0; i < count; i += 32) went |= release(i, min(i + 32, count), ForWarp);
        went |= release(0, count, ForBlock);
        if (!went) abort();  /* Some threads wait at a barrier that others never come to. */
    }
}

template <class... A, size_t... I> void call(void (*kernel)(A...), void **values, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_const_t<A> *>(values[I])...);
}
template <class... A> void invoke(void (*kernel)(A...), void **values) { call(kernel, values, std::index_sequence_for<A...>()); }
template <class... A> constexpr int count(void (*)(A...)) { return sizeof...(A); }

static void run(void (*kernel)(void **), void **values, const unsigned *grid, const unsigned *block) {
    body = kernel;
    given = values;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                run_block(block);
            }
}

template <class T> T exchanged(T value, size_t other) {
    memcpy(passed[now], &value, sizeof value);
    wait(ForWarp);
    memcpy(&value, passed[other], sizeof value);
    wait(ForWarp);
    return value;
}
}  // namespace fibers

static inline void __syncthreads() { fibers::wait(fibers::ForBlock); }
static inline void __syncwarp(unsigned = 0) { fibers::wait(fibers::ForWarp); }
static inline unsigned __activemask() { return ~0u; }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) { return fibers::exchanged(value, fibers::now ^ mask); }
template <class T> T __shfl_down_sync(unsigned, T value, int by, int width = 32) {
    size_t lane = fibers::now % width;
    return fibers::exchanged(value, lane + by < size_t(width) ? fibers::now + by : fibers::now);
}
template <class T> T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return fibers::exchanged(value, fibers::now / width * width + lane % width);
}

#define KERNEL(name) \
    extern "C" int count_##name; \
    int count_##name = fibers::count(name); \
    extern "C" void run_##name(void **values, const unsigned *grid, const unsigned *block) { \
        fibers::run([](void **given) { fibers::invoke(name, given); }, values, grid, block); \
    }
