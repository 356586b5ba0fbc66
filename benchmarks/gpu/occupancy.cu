// Kernels of known, different occupancy, each long enough that samples of the GPU's counters fall inside.
//
//   occupancy calibrate MS          how many iterations make each of them last so long, as JSON
//   occupancy run TIMES ITERATIONS… runs them one after the other, TIMES each; a line of JSON a launch, with the host's
//                                   Unix time before and after it
#include <mma.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define MUST(call)                                                                           \
  do {                                                                                       \
    cudaError_t error_ = (call);                                                             \
    if (error_ != cudaSuccess) {                                                             \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

// Occupancy by block size, grid and dynamic shared memory.
__global__ void occ_spin(long iterations, float *out) {
  float x = threadIdx.x;
  for (long i = 0; i < iterations; i++) x = fmaf(x, 1.0001f, 0.5f);
  if (x == -1.0f) *out = x;
}

// By registers: all N values live through the loop.
template <int N>
__global__ void __launch_bounds__(256) occ_registers(long iterations, float *out) {
  float x[N];
#pragma unroll
  for (int j = 0; j < N; j++) x[j] = threadIdx.x * 0.001f + j;
  for (long i = 0; i < iterations; i++) {
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = fmaf(x[j], 0.5f, x[(j + 1) % N]);
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < N; j++) sum += x[j];
  if (sum == -1.0f) *out = sum;
}

// Blocks of one to eight eighths of the work: fewer and fewer warps are left.
__global__ void occ_uneven(long iterations, float *out) {
  float x = threadIdx.x;
  long mine = iterations * (1 + blockIdx.x % 8) / 8;
  for (long i = 0; i < mine; i++) x = fmaf(x, 1.0001f, 0.5f);
  if (x == -1.0f) *out = x;
}

// Bound by memory.
__global__ void occ_stream(long iterations, float4 *data, long count) {
  for (long i = 0; i < iterations; i++)
    for (long at = blockIdx.x * (long)blockDim.x + threadIdx.x; at < count; at += (long)gridDim.x * blockDim.x) {
      float4 one = data[at];
      one.x += 1.0f;
      data[at] = one;
    }
}

// Bound by tensor cores.
__global__ void occ_tensor(long iterations, float *out) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> c, d;
  fill_fragment(a, __float2half(0.5f));
  fill_fragment(b, __float2half(0.25f));
  fill_fragment(c, 0.0f);
  fill_fragment(d, 0.0f);
  for (long i = 0; i < iterations; i++) {
    mma_sync(c, a, b, c);
    mma_sync(d, a, b, d);
  }
  if (c.x[0] + d.x[0] == -1.0f) *out = c.x[0];
}

struct Case {
  const char *name;
  std::function<void(long)> launch;
};

static std::vector<Case> cases() {
  int device = 0, sms = 0;
  MUST(cudaGetDevice(&device));
  MUST(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  MUST(cudaFuncSetAttribute(occ_spin, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  const long count = 1l << 26;  // 1 GiB
  float *out = nullptr;
  float4 *data = nullptr;
  MUST(cudaMalloc(&out, sizeof *out));
  MUST(cudaMalloc(&data, count * sizeof *data));
  auto spin = [=](int blocks, int threads, int kib) {
    return [=](long n) { occ_spin<<<blocks, threads, kib * 1024>>>(n, out); };
  };
  return {
      {"spin 32, 1 a SM", spin(sms, 32, 200)},
      {"spin 64, 1 a SM", spin(sms, 64, 200)},
      {"spin 128, 2 a SM", spin(2 * sms, 128, 100)},
      {"spin 384, 1 a SM", spin(sms, 384, 200)},
      {"spin 256, 2 a SM", spin(2 * sms, 256, 100)},
      {"spin 1024, 1 a SM", spin(sms, 1024, 120)},
      {"spin 512, 3 a SM", spin(3 * sms, 512, 70)},
      {"spin 1024, 2 a SM", spin(2 * sms, 1024, 0)},
      {"spin 1024, half of the SMs", spin(sms / 2, 1024, 120)},
      {"spin 256, 1.5 waves of 4", spin(6 * sms, 256, 50)},
      {"64 values", [=](long n) { occ_registers<64><<<16 * sms, 256>>>(n, out); }},
      {"160 values", [=](long n) { occ_registers<160><<<16 * sms, 256>>>(n, out); }},
      {"uneven", [=](long n) { occ_uneven<<<8 * sms, 256>>>(n, out); }},
      {"stream", [=](long n) { occ_stream<<<4 * sms, 512>>>(n, data, count); }},
      {"tensor", [=](long n) { occ_tensor<<<2 * sms, 256>>>(n, out); }},
  };
}

static long unix_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000000000l + now.tv_nsec;
}

static double milliseconds(const Case &one, long iterations) {
  long begun = unix_ns();
  one.launch(iterations);
  MUST(cudaGetLastError());
  MUST(cudaDeviceSynchronize());
  return (unix_ns() - begun) / 1e6;
}

static void calibrate(double target) {
  const char *comma = "[";
  for (const Case &one : cases()) {
    milliseconds(one, 1);
    long iterations = 1;
    double took = 0;
    while ((took = milliseconds(one, iterations)) < target / 8) iterations *= 2;
    iterations = (long)(iterations * target / took) + 1;
    printf("%s{\"name\": \"%s\", \"iterations\": %ld, \"ms\": %.1f}", comma, one.name, iterations,
           milliseconds(one, iterations));
    comma = ", ";
  }
  puts("]");
}

static void run(int times, char **iterations, int given) {
  std::vector<Case> all = cases();
  if (given != (int)all.size()) {
    fprintf(stderr, "%d numbers of iterations are given for %zu kernels\n", given, all.size());
    exit(2);
  }
  for (int at = 0; at < given; at++)
    for (int time = 0; time < times; time++) {
      usleep(5000);
      long begun = unix_ns();
      all[at].launch(atol(iterations[at]));
      MUST(cudaGetLastError());
      MUST(cudaDeviceSynchronize());
      printf("{\"case\": %d, \"begin\": %ld, \"end\": %ld}\n", at, begun, unix_ns());
    }
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "calibrate") == 0) {
    calibrate(atof(argv[2]));
  } else if (argc > 3 && strcmp(argv[1], "run") == 0) {
    run(atoi(argv[2]), argv + 3, argc - 3);
  } else {
    fprintf(stderr, "occupancy calibrate MS | occupancy run TIMES ITERATIONS...\n");
    return 2;
  }
  return 0;
}
