#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "functions.glsl"

// A chain of element-wise functions over up to five inputs; four elements per invocation. Stage s
// computes register 5 + s from the registers named by its operands; registers 0 to 4 are the
// inputs. The last stage's result is written, and optionally that of one other stage.

layout(constant_id = 3) const uint OUT = 0;
layout(constant_id = 4) const uint KEPT = 0;
// The stage whose result is also written.
layout(constant_id = 5) const uint KEPT_STAGE = 0;
layout(constant_id = 6) const uint TYPE_0 = 0;
layout(constant_id = 7) const uint TYPE_1 = 0;
layout(constant_id = 8) const uint TYPE_2 = 0;
layout(constant_id = 9) const uint TYPE_3 = 0;
layout(constant_id = 10) const uint TYPE_4 = 0;
// The layout of each input.
layout(constant_id = 11) const uint LAYOUT_0 = 0;
layout(constant_id = 12) const uint LAYOUT_1 = 0;
layout(constant_id = 13) const uint LAYOUT_2 = 0;
layout(constant_id = 14) const uint LAYOUT_3 = 0;
layout(constant_id = 15) const uint LAYOUT_4 = 0;
// Function codes as in functions.glsl; those of binary functions are offset by 100.
layout(constant_id = 16) const uint FUNCTION_0 = 0;
layout(constant_id = 17) const uint FUNCTION_1 = 0;
layout(constant_id = 18) const uint FUNCTION_2 = 0;
layout(constant_id = 19) const uint FUNCTION_3 = 0;
layout(constant_id = 20) const uint FUNCTION_4 = 0;
layout(constant_id = 21) const uint FUNCTION_5 = 0;
layout(constant_id = 22) const uint FUNCTION_6 = 0;
layout(constant_id = 23) const uint FUNCTION_7 = 0;
layout(constant_id = 24) const uint FUNCTION_8 = 0;
// The operands of each stage: a in the low byte, then b, c.
layout(constant_id = 25) const uint OPERANDS_0 = 0;
layout(constant_id = 26) const uint OPERANDS_1 = 0;
layout(constant_id = 27) const uint OPERANDS_2 = 0;
layout(constant_id = 28) const uint OPERANDS_3 = 0;
layout(constant_id = 29) const uint OPERANDS_4 = 0;
layout(constant_id = 30) const uint OPERANDS_5 = 0;
layout(constant_id = 31) const uint OPERANDS_6 = 0;
layout(constant_id = 32) const uint OPERANDS_7 = 0;
layout(constant_id = 33) const uint OPERANDS_8 = 0;

layout(push_constant) uniform Push {
    uint numel;
    // Two values per stage: parameters of its function, or a scalar operand b and its factor.
    float parameters[18];
    // Sizes and strides for strided inputs, for all dimensions except the first, whose size is not
    // needed.
    uint sizes[2];
    int strides[9];
} push;

const uint UNUSED = 0;
const uint ALIKE = 1;
const uint ONE_ELEMENT = 2;
// From here on: strided, with the first, second or third set of strides.
const uint STRIDED = 3;

const uint NO_STAGE = 0xffffffffu;
const uint BINARY_FROM = 100;
const uint WHERE = 200;
// Instead of a register: the first parameter of the stage.
const uint NUMBER = 255;

TENSOR_IN(0, in0, TYPE_0)
TENSOR_IN(1, in1, TYPE_1)
TENSOR_IN(2, in2, TYPE_2)
TENSOR_IN(3, in3, TYPE_3)
TENSOR_IN(4, in4, TYPE_4)
TENSOR_OUT(5, y, OUT)
TENSOR_OUT(6, kept, KEPT)

uint place(uint i, const uint strides) {
    uint x = i % push.sizes[1];
    i /= push.sizes[1];
    uint y = i % push.sizes[0];
    i /= push.sizes[0];
    ivec3 at = ivec3(i, y, x);
    uint first = strides * 3;
    return uint(at.x * push.strides[first] + at.y * push.strides[first + 1] + at.z * push.strides[first + 2]);
}

#define READ(index, name, layout) \
    if (layout == ALIKE) registers[index] = name##_f4(i); \
    if (layout == ONE_ELEMENT) registers[index] = vec4(name##_f(0)); \
    if (layout >= STRIDED) { \
        [[unroll]] for (uint k = 0; k < 4; ++k) registers[index][k] = name##_f(place(min(i + k, push.numel - 1), layout - STRIDED)); \
    }

#define OPERAND(operands, shift) registers[min((operands >> shift) & 0xff, 13)]

UNARY(unary_0, FUNCTION_0)
UNARY(unary_1, FUNCTION_1)
UNARY(unary_2, FUNCTION_2)
UNARY(unary_3, FUNCTION_3)
UNARY(unary_4, FUNCTION_4)
UNARY(unary_5, FUNCTION_5)
UNARY(unary_6, FUNCTION_6)
UNARY(unary_7, FUNCTION_7)
UNARY(unary_8, FUNCTION_8)

// Binary functions are short, so a single function contains them all.
vec4 binary_of(const uint function, const vec4 a, const vec4 b, const float alpha) {
    BINARY_CASES(function)
    return a;
}

#define STAGE(index, function, operands, unary) \
    if (function != NO_STAGE) { \
        float p = push.parameters[2 * index]; \
        float q = push.parameters[2 * index + 1]; \
        vec4 a = OPERAND(operands, 0); \
        vec4 b = ((operands >> 8) & 0xff) == NUMBER ? vec4(p) : OPERAND(operands, 8); \
        vec4 result; \
        if (function < BINARY_FROM) result = unary(a, p, q); \
        else if (function < WHERE) result = binary_of(function - BINARY_FROM, a, b, q); \
        else result = mix(OPERAND(operands, 16), b, notEqual(a, vec4(0))); \
        registers[5 + index] = result; \
        if (KEPT_STAGE == index) kept_write_f4(i, result); \
        last = result; \
    }

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 registers[14];
    vec4 last = vec4(0);
    READ(0, in0, LAYOUT_0)
    READ(1, in1, LAYOUT_1)
    READ(2, in2, LAYOUT_2)
    READ(3, in3, LAYOUT_3)
    READ(4, in4, LAYOUT_4)
    STAGE(0, FUNCTION_0, OPERANDS_0, unary_0)
    STAGE(1, FUNCTION_1, OPERANDS_1, unary_1)
    STAGE(2, FUNCTION_2, OPERANDS_2, unary_2)
    STAGE(3, FUNCTION_3, OPERANDS_3, unary_3)
    STAGE(4, FUNCTION_4, OPERANDS_4, unary_4)
    STAGE(5, FUNCTION_5, OPERANDS_5, unary_5)
    STAGE(6, FUNCTION_6, OPERANDS_6, unary_6)
    STAGE(7, FUNCTION_7, OPERANDS_7, unary_7)
    STAGE(8, FUNCTION_8, OPERANDS_8, unary_8)
    y_write_f4(i, last);
}
