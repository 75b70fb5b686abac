/* CMSIS-NN implementation of the layers for `src/peer.rs`. */

#include <arm_nnfunctions.h>
#include <arm_nnsupportfunctions.h>

#include "peer.h"

static const cmsis_nn_activation ALL = {-128, 127};

static cmsis_nn_tile tile(const int32_t *sides)
{
    const cmsis_nn_tile made = {.w = sides[1], .h = sides[0]};
    return made;
}

static cmsis_nn_dims dims(const int32_t *sizes)
{
    const cmsis_nn_dims made = {.n = 1, .h = sizes[0], .w = sizes[1], .c = sizes[2]};
    return made;
}

static cmsis_nn_conv_params convolution(const peer_layer *layer)
{
    const cmsis_nn_conv_params made = {
        INPUT_OFFSET, OUTPUT_OFFSET, tile(layer->stride), tile(layer->padding), {1, 1}, ALL};
    return made;
}

static cmsis_nn_dw_conv_params depthwise(const peer_layer *layer)
{
    const cmsis_nn_dw_conv_params made = {
        INPUT_OFFSET, OUTPUT_OFFSET, layer->depth_multiplier, tile(layer->stride),
        tile(layer->padding), {1, 1}, ALL};
    return made;
}

static cmsis_nn_dims filter(const peer_layer *layer)
{
    cmsis_nn_dims made = {.n = 1, .h = layer->kernel[0], .w = layer->kernel[1], .c = layer->to[2]};
    if (layer->kind == CONVOLUTION) {
        made.n = layer->to[2];
        made.c = layer->from[2];
    } else if (layer->kind == LINEAR) {
        made.n = layer->from[2];
        made.h = made.w = 1;
    }
    return made;
}

int32_t peer_prepare(const peer_layer *layer)
{
    const cmsis_nn_dims from = dims(layer->from), to = dims(layer->to), weights = filter(layer);
    int32_t needed = 0;
    if (layer->kind == CONVOLUTION) {
        const cmsis_nn_conv_params params = convolution(layer);
        needed = arm_convolve_wrapper_s8_get_buffer_size(&params, &from, &weights, &to);
    } else if (layer->kind == DEPTHWISE) {
        const cmsis_nn_dw_conv_params params = depthwise(layer);
        needed = arm_depthwise_conv_wrapper_s8_get_buffer_size(&params, &from, &weights, &to);
    } else if (layer->kind == AVERAGE) {
        needed = arm_avgpool_s8_get_buffer_size(to.w, from.c);
    } else if (layer->kind == LINEAR) {
        needed = arm_fully_connected_s8_get_buffer_size(&weights);
        const int32_t sums = to.c * (int32_t)sizeof(int32_t);
        needed = needed > sums ? needed : sums;
    }
    if (needed > layer->workspace_bytes)
        return 0;
    if (layer->kind == LINEAR)
        arm_vector_sum_s8(layer->workspace, from.c, to.c, layer->second, INPUT_OFFSET, 0,
                          layer->bias);
    return 1;
}

int32_t peer_run(const peer_layer *layer)
{
    static const int32_t zeros[] = ZEROS;
    const cmsis_nn_context context = {layer->workspace, layer->workspace_bytes};
    const cmsis_nn_dims from = dims(layer->from), to = dims(layer->to), weights = filter(layer);
    const cmsis_nn_dims bias = {.n = 1, .h = 1, .w = 1, .c = to.c};
    const cmsis_nn_per_channel_quant_params scales = {layer->multipliers, layer->shifts};
    const int32_t count = to.h * to.w * to.c;
    const cmsis_nn_pool_params pool = {tile(layer->stride), tile(layer->padding), ALL};
    switch (layer->kind) {
    case CONVOLUTION: {
        const cmsis_nn_conv_params params = convolution(layer);
        return arm_convolve_wrapper_s8(&context, &params, &scales, &from, layer->input, &weights,
                                       layer->second, &bias, layer->bias, &to,
                                       layer->out) == ARM_CMSIS_NN_SUCCESS;
    }
    case DEPTHWISE: {
        const cmsis_nn_dw_conv_params params = depthwise(layer);
        return arm_depthwise_conv_wrapper_s8(&context, &params, &scales, &from, layer->input,
                                             &weights, layer->second, &bias, layer->bias, &to,
                                             layer->out) == ARM_CMSIS_NN_SUCCESS;
    }
    case LINEAR: {
        const cmsis_nn_fc_params params = {INPUT_OFFSET, 0, OUTPUT_OFFSET, ALL};
        const cmsis_nn_per_tensor_quant_params scale = {MULTIPLIER, layer->shift};
        return arm_fully_connected_s8(&context, &params, &scale, &from, layer->input, &weights,
                                      layer->second, &bias, layer->bias, &to,
                                      layer->out) == ARM_CMSIS_NN_SUCCESS;
    }
    case AVERAGE:
        return arm_avgpool_s8(&context, &pool, &from, layer->input, &weights, &to,
                              layer->out) == ARM_CMSIS_NN_SUCCESS;
    case LARGEST:
        return arm_max_pool_s8(&context, &pool, &from, layer->input, &weights, &to,
                               layer->out) == ARM_CMSIS_NN_SUCCESS;
    case SUM:
        return arm_elementwise_add_s8(layer->input, layer->second, -zeros[0], MULTIPLIER, 0,
                                      -zeros[1], 0x48000000, -1, 20, layer->out, OUTPUT_OFFSET,
                                      0x60000000, -19, -128, 127, count) == ARM_CMSIS_NN_SUCCESS;
    case PRODUCT:
        return arm_elementwise_mul_s8(layer->input, layer->second, -zeros[0], -zeros[1],
                                      layer->out, OUTPUT_OFFSET, 0x60000000, -7, -128, 127,
                                      count) == ARM_CMSIS_NN_SUCCESS;
    case SOFTMAX:
        arm_softmax_s8(layer->input, to.w, to.c, MULTIPLIER, 22, -200, layer->out);
        return 1;
    }
    return 0;
}
