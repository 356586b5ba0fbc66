/* What the host needs for a launch: kernels one by one, and as nodes of a CUDA graph whose parameters are changed each time.

   python -c "from spanlite.replay.cuda.ptx import busy_text; open('busy.ptx', 'w').write(busy_text('busy', 32))"
   gcc -O2 -std=gnu11 -Ireplay/native -o launching benchmarks/gpu/launching.c replay/native/[a-z]*.c -ldl -lpthread
   ./launching busy.ptx

   Needs an NVIDIA GPU. Results on an H200: results/h200-launching.txt. */
#include <stdio.h>
#include <stdlib.h>

#include "inside.h"

enum { MOST = 512, REPEATS = 20 };

static char *text_of(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) exit(1);
  char *text = calloc(1, 1 << 20);
  if (!fread(text, 1, (1 << 20) - 1, file)) exit(1);
  fclose(file);
  return text;
}

static void check(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, result);
  exit(1);
}

static void graphs(struct enactor *enactor, const struct launch *launch, CUstream stream, int count) {
  struct cuda *cuda = &enactor->cuda;
  struct busy_parameters parameters;
  CUgraphNode nodes[MOST];
  CUgraphExec made;
  CUgraph graph;
  busy_parameters(enactor, 0, 0, &parameters);
  const struct kernel_node node = {.function = enactor->functions[launch->function],
                                   .grid = {launch->grid[0], 1, 1},
                                   .block = {launch->block[0], 1, 1},
                                   .parameters = parameters.pointers,
                                   .context = enactor->context};
  check(cuda->graph_create(&graph, 0), "cuGraphCreate");
  int64_t begin_ns = host_ns(), set_ns = 0, call_ns = 0, whole_ns = 0;
  for (int at = 0; at < count; at++)
    check(cuda->graph_add(&nodes[at], graph, at ? &nodes[at - 1] : NULL, at > 0, &node), "cuGraphAddKernelNode");
  const int64_t added_ns = host_ns() - begin_ns;
  begin_ns = host_ns();
  check(cuda->graph_instantiate(&made, graph, 0), "cuGraphInstantiate");
  const int64_t made_ns = host_ns() - begin_ns;
  check(cuda->graph_launch(made, stream), "cuGraphLaunch");
  check(cuda->stream_synchronize(stream), "a kernel");
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    begin_ns = host_ns();
    for (int at = 0; at < count; at++) check(cuda->graph_set(made, nodes[at], &node), "cuGraphExecKernelNodeSetParams");
    set_ns += host_ns() - begin_ns;
    begin_ns = host_ns();
    check(cuda->graph_launch(made, stream), "cuGraphLaunch");
    call_ns += host_ns() - begin_ns;
    check(cuda->stream_synchronize(stream), "a kernel");
    whole_ns += host_ns() - begin_ns;
  }
  const double nodes_in_all = (double)REPEATS * count;
  printf("graph of %d: add %.0f, instantiate %.0f, set %.0f ns a node; launch call %.0f ns; launch to end %.0f ns a node\n",
         count, (double)added_ns / count, (double)made_ns / count, (double)set_ns / nodes_in_all,
         (double)call_ns / REPEATS, (double)whole_ns / nodes_in_all);
}

int main(int count, char **words) {
  char why[512];
  int32_t registers;
  struct enactor *enactor = spanlite_enact_open("libcuda.so.1", 0, why, sizeof why);
  if (!enactor || count != 2) {
    fprintf(stderr, "%s\n", enactor ? "name a file of PTX" : why);
    return 1;
  }
  const int64_t function = spanlite_enact_function(enactor, text_of(words[1]), "busy", &registers);
  if (function < 0) return 1;
  const struct launch launch = {.function = (int32_t)function, .grid = {132, 1, 1}, .block = {128, 1, 1}};
  CUstream stream;
  check(enactor->cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  for (int repeat = 0; repeat < 3; repeat++) {
    const int64_t begin_ns = host_ns();
    for (long at = 0; at < 20000; at++)
      if (busy(enactor, &launch, stream, 0, at) < 0) return 1;
    check(enactor->cuda.stream_synchronize(stream), "a kernel");
    printf("20,000 launches: %.0f ns each\n", (double)(host_ns() - begin_ns) / 20000);
  }
  for (int size = 8; size <= MOST; size *= 4) graphs(enactor, &launch, stream, size);
  spanlite_enact_close(enactor);
  return 0;
}
