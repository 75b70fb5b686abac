// Tensors that are read and written four elements at a time, at any position. Include after
// tensor.glsl.
//
// RUN_IN(binding, name, type) declares a floating-point tensor to read:
//     float name_f(uint i): element i
//     vec4 name_f4(uint i): elements i to i + 3 in one load; i is a multiple of 4
//     vec4 name_each(uvec4 i): four elements
// RUN_OUT(binding, name, type) declares one to write:
//     void name_write_run(uint i, vec4 v, uint count): the first elements of v from element i on
//
// Other invocations may write the other half of a word at the same time. With STORAGE16, for
// devices with 16-bit elements in storage buffers, this is a normal store; otherwise, two atomic
// operations.

#define RUN_IN(slot, name, type) \
    WORDS_IN(slot, name) \
    float name##_f(const uint i) { \
        if (type == F32) return uintBitsToFloat(name.words[i]); \
        return unpackHalf2x16(name.words[i >> 1] >> ((i & 1) << 4)).x; \
    } \
    vec4 name##_f4(const uint i) { \
        if (type == F32) return uintBitsToFloat(name##_by_4.words[i >> 2]); \
        uvec2 pair = name##_by_2.words[i >> 2]; \
        return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y)); \
    } \
    vec4 name##_each(const uvec4 i) { return vec4(name##_f(i.x), name##_f(i.y), name##_f(i.z), name##_f(i.w)); }

#ifdef STORAGE16
#extension GL_EXT_shader_16bit_storage : require
#define HALF_OUT(slot, name) \
    layout(set = 0, binding = slot) buffer name##_block16 { uint16_t elements[]; } name##_by_half; \
    void name##_write_half(const uint i, const float v) { \
        name##_by_half.elements[i] = uint16_t(packHalf2x16(vec2(v, 0.0))); \
    }
#else
#define HALF_OUT(slot, name) \
    void name##_write_half(const uint i, const float v) { \
        uint shift = (i & 1) << 4; \
        atomicAnd(name.words[i >> 1], 0xffff0000u >> shift); \
        atomicOr(name.words[i >> 1], (packHalf2x16(vec2(v, 0.0)) & 0xffffu) << shift); \
    }
#endif

#define RUN_OUT(slot, name, type) \
    WORDS_OUT(slot, name) \
    HALF_OUT(slot, name) \
    void name##_write_run(const uint i, const vec4 v, const uint count) { \
        if (type == F32) { \
            name.words[i] = floatBitsToUint(v.x); \
            if (count > 1) name.words[i + 1] = floatBitsToUint(v.y); \
            if (count > 2) name.words[i + 2] = floatBitsToUint(v.z); \
            if (count > 3) name.words[i + 3] = floatBitsToUint(v.w); \
        } else if ((i & 1) == 0) { \
            if (count > 1) name.words[i >> 1] = packHalf2x16(v.xy); \
            else name##_write_half(i, v.x); \
            if (count > 3) name.words[(i >> 1) + 1] = packHalf2x16(v.zw); \
            else if (count > 2) name##_write_half(i + 2, v.z); \
        } else { \
            name##_write_half(i, v.x); \
            if (count > 2) name.words[(i >> 1) + 1] = packHalf2x16(v.yz); \
            else if (count > 1) name##_write_half(i + 1, v.y); \
            if (count > 3) name##_write_half(i + 3, v.w); \
        } \
    } \
    void name##_write_f4(const uint i, const vec4 v) { \
        if (type == F32) name##_by_4.words[i >> 2] = floatBitsToUint(v); \
        else name##_by_2.words[i >> 2] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); \
    }
