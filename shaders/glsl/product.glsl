// The epilogue of GEMM shaders: out[m][n] = activation(alpha * product[m][n] + beta * bias +
// residual), for each batch. Include after tensor.glsl, run.glsl and activations.glsl. FIELDS are
// the additional push constants of the shader; its additional buffers start at binding 3, its
// additional specialisation constants at 10. RUN_LEFT(n) is the number of contiguous columns from
// `n` on: the rest of the row, unless the shader defines it differently.
#ifndef RUN_LEFT
#define RUN_LEFT(n) (push.n - n)
#endif

layout(constant_id = 3) const uint BIAS = 0;
layout(constant_id = 4) const uint OUT = 0;
// Whether all rows start at multiples of four elements.
layout(constant_id = 5) const uint OUT_ALIGNED = 0;
layout(constant_id = 6) const uint HAS_BIAS = 0;

// See epilogue.glsl.
layout(constant_id = 7) const uint ACTIVATION = 0;
layout(constant_id = 8) const uint RESIDUAL = 0;
layout(constant_id = 9) const uint HAS_RESIDUAL = 0;

#include "epilogue.glsl"

layout(push_constant) uniform Push {
    uint m;
    uint n;
    // The batch stride of the bias, which repeats after `period` batches.
    uint bias_batch;
    uint period;
    uint bias_row;
    uint bias_column;
    float alpha;
    float beta;
    // Parameters of the activation.
    float a;
    float b;
    FIELDS
} push;

RUN_IN(0, bias, BIAS)
RUN_IN(1, residual, RESIDUAL)
RUN_OUT(2, y, OUT)

// Writes four columns of a row, as far as they exist.
void finish(const uint batch, const uint m, const uint n, vec4 sum) {
    if (m >= push.m || n >= push.n) return;
    sum *= push.alpha;
    if (HAS_BIAS != 0) {
        uint at = batch % push.period * push.bias_batch + m * push.bias_row;
        uvec4 columns = min(n + uvec4(0, 1, 2, 3), uvec4(push.n - 1));
        sum += push.beta * bias_each(at + columns * push.bias_column);
    }
    uint at = (batch * push.m + m) * push.n + n;
    EPILOGUE(at, sum, min(RUN_LEFT(n), 4))
    if (OUT_ALIGNED != 0) y_write_f4(at, sum);
    else y_write_run(at, sum, min(RUN_LEFT(n), 4));
}
