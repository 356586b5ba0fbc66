// A plain C++ program: two streams, three kernels, a copy and a memory set, so many times as its argument says.
#include <cstdio>
#include <cstdlib>

__global__ void scale(float *x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}

template <typename T>
__global__ void add(T *x, T y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y;
}

int main(int argc, char **argv) {
  int times = argc > 1 ? atoi(argv[1]) : 1000, n = 1 << 16;
  float *a, *b, host[256];
  cudaStream_t one, two;
  if (cudaMalloc(&a, n * sizeof *a) || cudaMalloc(&b, n * sizeof *b) || cudaStreamCreate(&one) || cudaStreamCreate(&two)) return 1;
  for (int i = 0; i < times; i++) {
    cudaMemsetAsync(a, 0, n * sizeof *a, one);
    add<float><<<n / 256, 256, 0, one>>>(a, 1.0f, n);
    scale<<<n / 128, 128, 0, two>>>(b, 0.5f, n);
    add<int><<<n / 512, 512, 1024, one>>>((int *)a, 1, n);
    cudaMemcpyAsync(host, b, sizeof host, cudaMemcpyDeviceToHost, two);
  }
  int failed = cudaDeviceSynchronize();
  printf("%d times, error %d\n", times, failed);
  return failed;
}
