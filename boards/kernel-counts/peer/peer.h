/* What both peers have in common: layers as `src/peer.rs` describes them, and what it calls. */

#ifndef PEER_H
#define PEER_H

#include <stdint.h>

enum { CONVOLUTION, DEPTHWISE, LINEAR, AVERAGE, LARGEST, SUM, PRODUCT, SOFTMAX };

/* As in src/peer.rs. Sizes are rows, columns and channels; kernels, strides and paddings are down and across. */
typedef struct {
    int32_t kind;
    int32_t from[3];
    int32_t to[3];
    int32_t kernel[2];
    int32_t stride[2];
    int32_t padding[2];
    int32_t outputs_of_each;
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

/* What is done once, when a network is loaded. Whether the workspace is large enough. */
int32_t peer_prepare(const peer_layer *layer);

/* Whether it succeeded. */
int32_t peer_run(const peer_layer *layer);

#ifdef __cplusplus
}
#endif

#endif
