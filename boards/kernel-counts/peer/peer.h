/* Interface between `src/peer.rs` and the peer libraries. */

#ifndef PEER_H
#define PEER_H

#include <stdint.h>

enum { CONVOLUTION, DEPTHWISE, LINEAR, AVERAGE, LARGEST, SUM, PRODUCT, SOFTMAX };

/* As in src/peer.rs. Sizes are rows, columns and channels; kernels, strides and paddings are
   vertical and horizontal. */
typedef struct {
    int32_t kind;
    int32_t from[3];
    int32_t to[3];
    int32_t kernel[2];
    int32_t stride[2];
    int32_t padding[2];
    int32_t depth_multiplier;
    int32_t shift;
    const int8_t *input;
    const int8_t *second;
    int8_t *out;
    int32_t *multipliers;
    int32_t *shifts;
    const int32_t *bias;
    void *workspace;
    int32_t workspace_bytes;
} peer_layer;

#define INPUT_OFFSET 3
#define OUTPUT_OFFSET (-5)
#define ZEROS {3, -5}

#define MULTIPLIER 0x50000000

#ifdef __cplusplus
extern "C" {
#endif

/* One-time preparation of loading a network. Returns whether the workspace is large enough. */
int32_t peer_prepare(const peer_layer *layer);

/* Returns whether it succeeded. */
int32_t peer_run(const peer_layer *layer);

#ifdef __cplusplus
}
#endif

#endif
