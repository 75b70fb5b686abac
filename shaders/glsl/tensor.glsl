// Tensors in buffers of 32-bit words. The element type is a specialisation constant, so that the
// branches below are folded when the pipeline is created.
//
// TENSOR_IN(binding, name, type) declares a tensor to read:
//     float name_f(uint i), int name_i(uint i): element i
//     vec4 name_f4(uint i), ivec4 name_i4(uint i): elements i to i + 3; i is a multiple of 4
// TENSOR_OUT(binding, name, type) declares a tensor to write, four elements at a time, so that each
// word has one writer:
//     void name_write_f4(uint i, vec4 v), void name_write_i4(uint i, ivec4 v); i is a multiple of 4
//
// The memory of a tensor is a multiple of 16 bytes, so that four elements can always be read and
// written.
//
// invocation_x(), invocation_y(): the index of an invocation of one-dimensional work. Devices limit
// the number of workgroups per dimension; work beyond the limit is folded into the next dimension,
// in which workgroups have one invocation. The last workgroups may be beyond the end.
//
// WORKGROUP_Z: the z index of a workgroup, if z counts batches, or batches times the shares of a
// sum. Dispatches beyond the device limit are split; each has the index of its first workgroup in
// `push.base_z`.

#extension GL_EXT_control_flow_attributes : enable

const uint F32 = 0;
const uint F16 = 1;
const uint I32 = 2;
const uint U8 = 3;
const uint I8 = 4;
const uint BOOL = 5;

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

uint invocation_x() {
    return gl_GlobalInvocationID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x * gl_WorkGroupSize.x;
}

uint invocation_y() {
    return gl_GlobalInvocationID.y + gl_WorkGroupID.z * gl_NumWorkGroups.y * gl_WorkGroupSize.y;
}

#define WORKGROUP_Z (push.base_z + gl_WorkGroupID.z)

bool is_float(const uint type) { return type == F32 || type == F16; }

float word_f(const uint word, const uint type, const uint lane) {
    if (type == F32) return uintBitsToFloat(word);
    if (type == F16) return unpackHalf2x16(word)[lane];
    if (type == I32) return float(int(word));
    if (type == I8) return float(bitfieldExtract(int(word), int(lane) * 8, 8));
    return float(bitfieldExtract(word, int(lane) * 8, 8));
}

int word_i(const uint word, const uint type, const uint lane) {
    if (type == F32) return int(uintBitsToFloat(word));
    if (type == F16) return int(unpackHalf2x16(word)[lane]);
    if (type == I32) return int(word);
    if (type == I8) return bitfieldExtract(int(word), int(lane) * 8, 8);
    return int(bitfieldExtract(word, int(lane) * 8, 8));
}

uint shift_of(const uint type) { return type == F32 || type == I32 ? 0 : type == F16 ? 1 : 2; }

uint pack_bytes(ivec4 v) {
    v &= 0xff;
    return uint(v.x) | uint(v.y) << 8 | uint(v.z) << 16 | uint(v.w) << 24;
}

// Converts to an integer, towards zero. Values beyond 32 bits and NaN become the least integer, as
// on x86 and therefore in PyTorch; devices differ.
ivec4 integers(const vec4 v) {
    bvec4 fits = lessThan(abs(v), vec4(2147483648.0));
    return mix(ivec4(-2147483647 - 1), ivec4(v), fits);
}

#define TENSOR_READERS(name, type) \
    float name##_f(const uint i) { return word_f(name.words[i >> shift_of(type)], type, i & ((1 << shift_of(type)) - 1)); } \
    int name##_i(const uint i) { return word_i(name.words[i >> shift_of(type)], type, i & ((1 << shift_of(type)) - 1)); } \
    vec4 name##_f4(const uint i) { \
        if (type == F32) return uintBitsToFloat(name##_by_4.words[i >> 2]); \
        if (type == F16) { \
            uvec2 pair = name##_by_2.words[i >> 2]; \
            return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y)); \
        } \
        if (type == I32) return vec4(ivec4(name##_by_4.words[i >> 2])); \
        return vec4(name##_f(i), name##_f(i + 1), name##_f(i + 2), name##_f(i + 3)); \
    } \
    ivec4 name##_i4(const uint i) { \
        if (type == I32) return ivec4(name##_by_4.words[i >> 2]); \
        return ivec4(name##_i(i), name##_i(i + 1), name##_i(i + 2), name##_i(i + 3)); \
    }

#define TENSOR_WRITERS(name, type) \
    void name##_write_i4(const uint i, const ivec4 v) { \
        if (type == F32 || type == F16) { \
            vec4 f = vec4(v); \
            if (type == F32) name##_by_4.words[i >> 2] = floatBitsToUint(f); \
            else name##_by_2.words[i >> 2] = uvec2(packHalf2x16(f.xy), packHalf2x16(f.zw)); \
        } else if (type == I32) { \
            name##_by_4.words[i >> 2] = uvec4(v); \
        } else if (type == BOOL) { \
            name.words[i >> 2] = pack_bytes(ivec4(notEqual(v, ivec4(0)))); \
        } else { \
            name.words[i >> 2] = pack_bytes(v); \
        } \
    } \
    void name##_write_f4(const uint i, const vec4 v) { \
        if (type == F32) { \
            name##_by_4.words[i >> 2] = floatBitsToUint(v); \
        } else if (type == F16) { \
            name##_by_2.words[i >> 2] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); \
        } else if (type == BOOL) { \
            name.words[i >> 2] = pack_bytes(ivec4(notEqual(v, vec4(0)))); \
        } else { \
            name##_write_i4(i, integers(v)); \
        } \
    }

// Views of the same memory as one, two and four words. Reading four elements at an index that is
// not a multiple of four would read those at the multiple before it.
#define WORDS_IN(slot, name) \
    layout(set = 0, binding = slot) readonly buffer name##_block { uint words[]; } name; \
    layout(set = 0, binding = slot) readonly buffer name##_block2 { uvec2 words[]; } name##_by_2; \
    layout(set = 0, binding = slot) readonly buffer name##_block4 { uvec4 words[]; } name##_by_4;

#define WORDS_OUT(slot, name) \
    layout(set = 0, binding = slot) buffer name##_block { uint words[]; } name; \
    layout(set = 0, binding = slot) buffer name##_block2 { uvec2 words[]; } name##_by_2; \
    layout(set = 0, binding = slot) buffer name##_block4 { uvec4 words[]; } name##_by_4;

#define TENSOR_IN(slot, name, type) \
    WORDS_IN(slot, name) \
    TENSOR_READERS(name, type)

#define TENSOR_OUT(slot, name, type) \
    WORDS_OUT(slot, name) \
    TENSOR_READERS(name, type) \
    TENSOR_WRITERS(name, type)
