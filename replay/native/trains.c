/* Trains: kernels that follow each other as closely as kernels can, launched at once as a CUDA graph.

   A launch takes 4.7 us of the host's time, a kernel of a graph 0.35 us (H200, in a virtual machine:
   benchmarks/gpu/launching.c), and programs that use graphs run more than 200,000 kernels a second. Graphs are made once,
   as chains; each launch puts other kernels into one. */
#include <stdlib.h>

#include "inside.h"

static struct kernel_node node_of(struct enactor *enactor, const struct launch *launch, struct busy_parameters *parameters) {
  const uint32_t *grid = launch->grid, *block = launch->block;
  return (struct kernel_node){
      .function = enactor->functions[launch->function],
      .grid = {grid[0], grid[1], grid[2]},
      .block = {block[0], block[1], block[2]},
      .dynamic_shared = launch->dynamic_shared,
      .parameters = parameters->pointers,
      .context = enactor->context,
  };
}

static int64_t make_train(struct enactor *enactor, struct train *train, int count, const struct launch *any) {
  struct busy_parameters parameters;
  CUgraph graph;
  TRY(enactor, "cuGraphCreate", graph_create(&graph, 0));
  for (int at = 0; at < count; at++) {
    busy_parameters(enactor, 0, 0, &parameters);
    const struct kernel_node node = node_of(enactor, any, &parameters);
    TRY(enactor, "cuGraphAddKernelNode",
        graph_add(&train->nodes[at], graph, at ? &train->nodes[at - 1] : NULL, at ? 1 : 0, &node));
  }
  TRY(enactor, "cuGraphInstantiate", graph_instantiate(&train->made, graph, 0));
  return 0; /* the graph stays: its nodes name places in what was made of it */
}

int64_t make_trains(struct enactor *enactor, const struct launch *any) {
  enactor->trains = calloc((size_t)TRAIN_SIZES * TRAINS, sizeof *enactor->trains);
  if (!enactor->trains) return refused(enactor, "out of memory");
  for (int size = 0; size < TRAIN_SIZES; size++)
    for (int at = 0; at < TRAINS; at++)
      if (make_train(enactor, &enactor->trains[size * TRAINS + at], 2 << size, any) < 0) return -1;
  return 0;
}

/* CUDA lets a launch of a graph wait for the one before, in whatever stream that is. */
struct train *take_train(struct enactor *enactor, int count, CUstream stream) {
  const int size = __builtin_ctz((unsigned)count) - 1;
  const int64_t now_ns = host_ns();
  for (int tried = 0; tried < TRAINS; tried++) {
    struct train *train = &enactor->trains[size * TRAINS + enactor->next_train[size]++ % TRAINS];
    if (train->stream == stream || train->end_ns <= now_ns) return train;
  }
  return NULL;
}

int64_t put_in(struct enactor *enactor, struct train *train, int place, const struct launch *launch, int64_t duration_ns,
               long number) {
  struct busy_parameters parameters;
  busy_parameters(enactor, duration_ns, number, &parameters);
  const struct kernel_node node = node_of(enactor, launch, &parameters);
  TRY(enactor, "cuGraphExecKernelNodeSetParams", graph_set(train->made, train->nodes[place], &node));
  return 0;
}
