/* TFLite Micro reference kernels of the layers for `src/peer.rs`. They have no preparation and no
   workspace. */

#include "peer.h"

#include "tensorflow/lite/kernels/internal/reference/integer_ops/add.h"
#include "tensorflow/lite/kernels/internal/reference/integer_ops/conv.h"
#include "tensorflow/lite/kernels/internal/reference/integer_ops/depthwise_conv.h"
#include "tensorflow/lite/kernels/internal/reference/integer_ops/fully_connected.h"
#include "tensorflow/lite/kernels/internal/reference/integer_ops/mul.h"
#include "tensorflow/lite/kernels/internal/reference/integer_ops/pooling.h"
#include "tensorflow/lite/kernels/internal/reference/softmax.h"

using tflite::RuntimeShape;

namespace {

template <int Rank>
RuntimeShape shape(const int32_t (&sizes)[Rank])
{
    return RuntimeShape(Rank, sizes);
}

/* The shape of one image. */
RuntimeShape picture(const int32_t (&sizes)[3])
{
    return shape({1, sizes[0], sizes[1], sizes[2]});
}

/* Strides, padding and offsets, which have the same names for plain and depthwise convolutions. */
template <typename Params>
Params convolution(const peer_layer &layer)
{
    Params made = {};
    made.padding_values.height = static_cast<int16_t>(layer.padding[0]);
    made.padding_values.width = static_cast<int16_t>(layer.padding[1]);
    made.stride_height = static_cast<int16_t>(layer.stride[0]);
    made.stride_width = static_cast<int16_t>(layer.stride[1]);
    made.dilation_height_factor = made.dilation_width_factor = 1;
    made.input_offset = INPUT_OFFSET;
    made.output_offset = OUTPUT_OFFSET;
    made.quantized_activation_min = -128;
    made.quantized_activation_max = 127;
    return made;
}

tflite::PoolParams pool(const peer_layer &layer)
{
    tflite::PoolParams made = {};
    made.padding_values.height = static_cast<int16_t>(layer.padding[0]);
    made.padding_values.width = static_cast<int16_t>(layer.padding[1]);
    made.stride_height = layer.stride[0];
    made.stride_width = layer.stride[1];
    made.filter_height = layer.kernel[0];
    made.filter_width = layer.kernel[1];
    made.quantized_activation_min = -128;
    made.quantized_activation_max = 127;
    return made;
}

/* Parameters of elementwise addition and multiplication. */
tflite::ArithmeticParams arithmetic(int32_t multiplier, int shift)
{
    static const int32_t zeros[] = ZEROS;
    tflite::ArithmeticParams made = {};
    made.input1_offset = -zeros[0];
    made.input2_offset = -zeros[1];
    made.output_offset = OUTPUT_OFFSET;
    made.output_multiplier = multiplier;
    made.output_shift = shift;
    made.quantized_activation_min = -128;
    made.quantized_activation_max = 127;
    return made;
}

} // namespace

int32_t peer_prepare(const peer_layer *)
{
    return 1;
}

int32_t peer_run(const peer_layer *of)
{
    namespace ops = tflite::reference_integer_ops;
    const peer_layer &layer = *of;
    const RuntimeShape from = picture(layer.from), to = picture(layer.to), bias = shape({layer.to[2]});
    const int32_t down = layer.kernel[0], across = layer.kernel[1];
    switch (layer.kind) {
    case CONVOLUTION: {
        const RuntimeShape weights = shape({layer.to[2], down, across, layer.from[2]});
        ops::ConvPerChannel(convolution<tflite::ConvParams>(layer), layer.multipliers, layer.shifts, from, layer.input,
                            weights, layer.second, bias, layer.bias, to, layer.out);
        return 1;
    }
    case DEPTHWISE: {
        const RuntimeShape weights = shape({1, down, across, layer.to[2]});
        auto params = convolution<tflite::DepthwiseParams>(layer);
        params.depth_multiplier = static_cast<int16_t>(layer.depth_multiplier);
        ops::DepthwiseConvPerChannel(params, layer.multipliers, layer.shifts, from, layer.input, weights, layer.second,
                                     bias, layer.bias, to, layer.out);
        return 1;
    }
    case LINEAR: {
        tflite::FullyConnectedParams params = {};
        params.input_offset = INPUT_OFFSET;
        params.output_offset = OUTPUT_OFFSET;
        params.output_multiplier = MULTIPLIER;
        params.output_shift = layer.shift;
        params.quantized_activation_min = -128;
        params.quantized_activation_max = 127;
        const RuntimeShape row = shape({1, layer.from[2]}), results = shape({1, layer.to[2]});
        const RuntimeShape weights = shape({layer.to[2], layer.from[2]});
        ops::FullyConnected(params, row, layer.input, weights, layer.second, bias, layer.bias, results, layer.out);
        return 1;
    }
    case AVERAGE:
        return ops::AveragePool(pool(layer), from, layer.input, to, layer.out);
    case LARGEST:
        ops::MaxPool(pool(layer), from, layer.input, to, layer.out);
        return 1;
    case SUM: {
        auto params = arithmetic(0x60000000, -19);
        params.left_shift = 20;
        params.input1_multiplier = MULTIPLIER;
        params.input2_multiplier = 0x48000000;
        params.input2_shift = -1;
        ops::Add(params, to, layer.input, to, layer.second, to, layer.out);
        return 1;
    }
    case PRODUCT:
        ops::Mul(arithmetic(0x60000000, -7), to, layer.input, to, layer.second, to, layer.out);
        return 1;
    case SOFTMAX: {
        tflite::SoftmaxParams params = {};
        params.input_multiplier = MULTIPLIER;
        params.input_left_shift = 22;
        params.diff_min = -200;
        const RuntimeShape rows = shape({layer.to[1], layer.to[2]});
        tflite::reference_ops::Softmax(params, rows, layer.input, rows, layer.out);
        return 1;
    }
    }
    return 0;
}

/* Called by failing checks, which does not happen for these layers. */
extern "C" void abort(void)
{
    for (;;) {
    }
}
