/* A small convolutional network for images of 10 x 10 pixels, trained with Adam. Two implementations, in plain C and in
 * CUDA, compute with the functions of net.h. Both add the gradients of the images of a batch in the same order in each
 * run, so a resumed training repeats the losses bit for bit.
 *
 * Thread rule: one thread at a time. */
#ifndef TRAIN_IMAGES_MODEL_H
#define TRAIN_IMAGES_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  NET_SIDE = 10, /* pixels of a row and of a column of the input */
  NET_K1 = 3,    /* first convolution: 3 x 3, 8 channels */
  NET_C1 = 8,
  NET_S1 = NET_SIDE - NET_K1 + 1,
  NET_K2 = 4, /* second convolution: 4 x 4, every second pixel, 16 channels */
  NET_C2 = 16,
  NET_S2 = (NET_S1 - NET_K2) / 2 + 1,
  NET_INNER = NET_S2 * NET_S2 * NET_C2, /* inputs of the last layer */
  NET_CLASSES = 10
};

/* The offset of each parameter in one array of floats. The last index of weights is the output channel. */
enum {
  NET_W1 = 0,                                          /* [K1, K1, C1] */
  NET_B1 = NET_W1 + NET_K1 * NET_K1 * NET_C1,          /* [C1] */
  NET_W2 = NET_B1 + NET_C1,                            /* [K2, K2, C1, C2] */
  NET_B2 = NET_W2 + NET_K2 * NET_K2 * NET_C1 * NET_C2, /* [C2] */
  NET_W3 = NET_B2 + NET_C2,                            /* [S2, S2, C2, CLASSES] */
  NET_B3 = NET_W3 + NET_INNER * NET_CLASSES,           /* [CLASSES] */
  NET_PARAMETERS = NET_B3 + NET_CLASSES,
  NET_LOSS = NET_PARAMETERS, /* in the array of gradients: the mean loss, */
  NET_RIGHT,                 /* and how many images were recognized */
  NET_SUMS                   /* the length of the array of gradients */
};

/* Arrays of the model, in the memory of the device that computes. */
typedef struct net_arrays {
  float *parameters, *gradients, *first, *second; /* first, second: Adam's moments */
} net_arrays;

/* Images: [rows, 1, SIDE, SIDE] of normalized floats. Labels: [rows] of 0 to 9. On the device that computes. */
typedef struct net_batch {
  const float *images;
  const int32_t *labels;
  int64_t rows;
} net_batch;

typedef struct net_model net_model;
/* An implementation. `stream` is a cudaStream_t, and ignored by plain C. */
typedef struct net_maker {
  const char *name;
  /* Copies the parameters to GPU number `gpu`. Returns NULL after a message, or without memory. */
  net_model *(*create)(int gpu, int64_t most_rows, const float *parameters);
  /* Queues the computation of the loss, of the number of recognized images, and of the gradients. */
  bool (*back)(net_model *model, const net_batch *batch, void *stream);
  /* Queues step number `step` of Adam, counted from 1. */
  bool (*update)(net_model *model, int64_t step, void *stream);
  /* Waits for the stream, and reads the loss and the number of recognized images. */
  bool (*finish)(net_model *model, void *stream, float *loss, float *right);
  const net_arrays *(*arrays)(const net_model *model); /* borrowed */
  void (*destroy)(net_model *model);
} net_maker;
extern const net_maker net_cpu;
extern const net_maker net_cuda; /* only in builds with nvcc */

#ifdef __cplusplus
}
#endif
#endif
