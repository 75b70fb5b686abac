#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "functions.glsl"

// A chain of element-wise functions over up to four inputs, four elements an invocation. Stage s computes
// register 4 + s from the registers that its operands name; registers 0 to 3 are the inputs.

layout(constant_id = 3) const uint OUT = 0;
layout(constant_id = 4) const uint TYPE_0 = 0;
layout(constant_id = 5) const uint TYPE_1 = 0;
layout(constant_id = 6) const uint TYPE_2 = 0;
layout(constant_id = 7) const uint TYPE_3 = 0;
// How each input is read.
layout(constant_id = 8) const uint LAYOUT_0 = 0;
layout(constant_id = 9) const uint LAYOUT_1 = 0;
layout(constant_id = 10) const uint LAYOUT_2 = 0;
layout(constant_id = 11) const uint LAYOUT_3 = 0;
// Functions as in functions.glsl; those of two operands from 100 on.
layout(constant_id = 12) const uint FUNCTION_0 = 0;
layout(constant_id = 13) const uint FUNCTION_1 = 0;
layout(constant_id = 14) const uint FUNCTION_2 = 0;
layout(constant_id = 15) const uint FUNCTION_3 = 0;
layout(constant_id = 16) const uint FUNCTION_4 = 0;
layout(constant_id = 17) const uint FUNCTION_5 = 0;
// The operands of each stage: a in the low byte, then b, c.
layout(constant_id = 18) const uint OPERANDS_0 = 0;
layout(constant_id = 19) const uint OPERANDS_1 = 0;
layout(constant_id = 20) const uint OPERANDS_2 = 0;
layout(constant_id = 21) const uint OPERANDS_3 = 0;
layout(constant_id = 22) const uint OPERANDS_4 = 0;
layout(constant_id = 23) const uint OPERANDS_5 = 0;

layout(push_constant) uniform Push {
    uint numel;
    // Two numbers for each stage: parameters of its function, or in place of an operand b and its factor.
    float parameters[12];
    // What inputs are walked by that are read along strides.
    uint sizes[3];
    int base[4];
    int strides[12];
} push;

const uint UNUSED = 0;
const uint ALIKE = 1;
const uint ONE_ELEMENT = 2;
const uint STRIDED = 3;

const uint NO_STAGE = 0xffffffffu;
const uint BINARY_FROM = 100;
const uint WHERE = 200;
// In place of a register: the first parameter of the stage.
const uint NUMBER = 255;

TENSOR_IN(0, in0, TYPE_0)
TENSOR_IN(1, in1, TYPE_1)
TENSOR_IN(2, in2, TYPE_2)
TENSOR_IN(3, in3, TYPE_3)
TENSOR_OUT(4, y, OUT)

uint place(uint i, uint input_index) {
    uint x = i % push.sizes[2];
    i /= push.sizes[2];
    uint y = i % push.sizes[1];
    i /= push.sizes[1];
    ivec3 at = ivec3(i, y, x);
    uint first = input_index * 3;
    return uint(push.base[input_index] + at.x * push.strides[first] + at.y * push.strides[first + 1] + at.z * push.strides[first + 2]);
}

#define READ(index, name, layout) \
    if (layout == ALIKE) registers[index] = name##_f4(i); \
    if (layout == ONE_ELEMENT) registers[index] = vec4(name##_f(uint(push.base[index]))); \
    if (layout == STRIDED) { \
        [[unroll]] for (uint k = 0; k < 4; ++k) registers[index][k] = name##_f(place(min(i + k, push.numel - 1), index)); \
    }

#define OPERAND(operands, shift) registers[min((operands >> shift) & 0xff, 9)]

#define FUNCTIONS(unary, binary, function) \
    UNARY(unary, function) \
    BINARY(binary, function - BINARY_FROM)

FUNCTIONS(unary_0, binary_0, FUNCTION_0)
FUNCTIONS(unary_1, binary_1, FUNCTION_1)
FUNCTIONS(unary_2, binary_2, FUNCTION_2)
FUNCTIONS(unary_3, binary_3, FUNCTION_3)
FUNCTIONS(unary_4, binary_4, FUNCTION_4)
FUNCTIONS(unary_5, binary_5, FUNCTION_5)

#define STAGE(index, function, operands, unary, binary) \
    if (function != NO_STAGE) { \
        float p = push.parameters[2 * index]; \
        float q = push.parameters[2 * index + 1]; \
        vec4 a = OPERAND(operands, 0); \
        vec4 b = ((operands >> 8) & 0xff) == NUMBER ? vec4(p) : OPERAND(operands, 8); \
        vec4 result; \
        if (function < BINARY_FROM) result = unary(a, p, q); \
        else if (function < WHERE) result = binary(a, b, q); \
        else result = mix(OPERAND(operands, 16), b, notEqual(a, vec4(0))); \
        registers[4 + index] = result; \
        last = result; \
    }

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 registers[10];
    vec4 last = vec4(0);
    READ(0, in0, LAYOUT_0)
    READ(1, in1, LAYOUT_1)
    READ(2, in2, LAYOUT_2)
    READ(3, in3, LAYOUT_3)
    STAGE(0, FUNCTION_0, OPERANDS_0, unary_0, binary_0)
    STAGE(1, FUNCTION_1, OPERANDS_1, unary_1, binary_1)
    STAGE(2, FUNCTION_2, OPERANDS_2, unary_2, binary_2)
    STAGE(3, FUNCTION_3, OPERANDS_3, unary_3, binary_3)
    STAGE(4, FUNCTION_4, OPERANDS_4, unary_4, binary_4)
    STAGE(5, FUNCTION_5, OPERANDS_5, unary_5, binary_5)
    y_write_f4(i, last);
}
