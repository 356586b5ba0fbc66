/* What is used of the CUDA driver API, so that no CUDA header is needed to build. Names and values are those of cuda.h. */
#ifndef SPANLITE_CUDA_ABI_H
#define SPANLITE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct kernel_node {
  CUfunction function;
  unsigned grid[3], block[3], dynamic_shared;
  void **parameters, **extra;
  void *kernel;
  CUcontext context;
};

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_NOT_READY = 600,
  CU_STREAM_NON_BLOCKING = 1,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
};

/* result, name, symbol, arguments */
#define CUDA_FUNCTIONS(F)                                                                                             \
  F(init, "cuInit", (unsigned flags))                                                                                \
  F(driver_version, "cuDriverGetVersion", (int *version))                                                            \
  F(device_count, "cuDeviceGetCount", (int *count))                                                                  \
  F(device, "cuDeviceGet", (CUdevice * device, int ordinal))                                                         \
  F(device_name, "cuDeviceGetName", (char *name, int size, CUdevice device))                                         \
  F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))                          \
  F(retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))                                      \
  F(release, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                                                      \
  F(set_current, "cuCtxSetCurrent", (CUcontext context))                                                             \
  F(synchronize, "cuCtxSynchronize", (void))                                                                         \
  F(load, "cuModuleLoadData", (CUmodule * module, const void *image))                                                \
  F(function, "cuModuleGetFunction", (CUfunction * function, CUmodule module, const char *name))                     \
  F(function_attribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))                      \
  F(set_function_attribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))                   \
  F(blocks_per_sm, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                                    \
    (int *blocks, CUfunction function, int block_size, size_t dynamic_shared))                                       \
  F(stream_create, "cuStreamCreateWithPriority", (CUstream * stream, unsigned flags, int priority))                  \
  F(stream_synchronize, "cuStreamSynchronize", (CUstream stream))                                                    \
  F(stream_query, "cuStreamQuery", (CUstream stream))                                                                \
  F(launch, "cuLaunchKernel",                                                                                        \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
     unsigned block_z, unsigned dynamic_shared, CUstream stream, void **parameters, void **extra))                   \
  F(graph_create, "cuGraphCreate", (CUgraph * graph, unsigned flags))                                                \
  F(graph_add, "cuGraphAddKernelNode_v2",                                                                            \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode *behind, size_t count, const struct kernel_node *kernel))  \
  F(graph_instantiate, "cuGraphInstantiateWithFlags",                                                                \
    (CUgraphExec * made, CUgraph graph, unsigned long long flags))                                                   \
  F(graph_set, "cuGraphExecKernelNodeSetParams_v2",                                                                  \
    (CUgraphExec made, CUgraphNode node, const struct kernel_node *kernel))                                          \
  F(graph_launch, "cuGraphLaunch", (CUgraphExec made, CUstream stream))                                              \
  F(alloc, "cuMemAlloc_v2", (CUdeviceptr * address, size_t size))                                                    \
  F(free, "cuMemFree_v2", (CUdeviceptr address))                                                                     \
  F(set, "cuMemsetD8_v2", (CUdeviceptr address, unsigned char value, size_t size))                                   \
  F(host_alloc, "cuMemHostAlloc", (void **address, size_t size, unsigned flags))                                     \
  F(host_free, "cuMemFreeHost", (void *address))                                                                     \
  F(host_pointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr * device, void *host, unsigned flags))                \
  F(to_host, "cuMemcpyDtoHAsync_v2", (void *host, CUdeviceptr device, size_t size, CUstream stream))                 \
  F(to_device, "cuMemcpyHtoDAsync_v2", (CUdeviceptr device, const void *host, size_t size, CUstream stream))         \
  F(error_name, "cuGetErrorName", (CUresult error, const char **text))                                               \
  F(error_text, "cuGetErrorString", (CUresult error, const char **text))

struct cuda {
#define MEMBER(member, symbol, arguments) CUresult(*member) arguments;
  CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
};

#endif
