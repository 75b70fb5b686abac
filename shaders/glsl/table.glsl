// A lookup table for int8 values. Include after tensor.glsl.
//
// TABLE(binding) declares the table, with the entry for -128 first:
//     uint recoded(ivec4 codes): the entries for four values, as a word

#define TABLE(slot) \
    WORDS_IN(slot, table) \
    uint recoded(const ivec4 codes) { \
        uvec4 at = uvec4(codes + 128) & 255; \
        uvec4 found; \
        [[unroll]] for (uint i = 0; i < 4; ++i) found[i] = table.words[at[i] >> 2] >> ((at[i] & 3) << 3); \
        return pack_bytes(ivec4(found)); \
    }
