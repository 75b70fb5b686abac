/* Four bytes, the first one lowest. */
static uint32_t tl_word(const int8_t *bytes)
{
#ifdef TL_DSP
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
#else
    return (uint32_t)(uint8_t)bytes[0] | (uint32_t)(uint8_t)bytes[1] << 8
        | (uint32_t)(uint8_t)bytes[2] << 16 | (uint32_t)(uint8_t)bytes[3] << 24;
#endif
}

/* The even bytes of a word as a pair. */
static int32_t tl_even(uint32_t word)
{
#ifdef TL_DSP
    return (int32_t)__sxtb16((int8x4_t)word);
#else
    uint32_t low = ((word & 0xff) ^ 0x80) - 0x80, high = ((word >> 16 & 0xff) ^ 0x80) - 0x80;
    return (int32_t)((low & 0xffff) | high << 16);
#endif
}

/* The odd bytes. The intrinsic lacks the rotation that is part of the instruction. */
static int32_t tl_odd(uint32_t word)
{
#if defined(TL_DSP) && defined(__GNUC__)
    int32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
#else
    return tl_even(word >> 8);
#endif
}

/* Widens units of four values to pairs, with an offset that is added to both values of a pair. The
   pairs of a unit are `step` words apart. */
static void tl_widen(const int8_t *values, int32_t units, uint32_t offset, uint32_t *wide,
                     int32_t step)
{
    for (; units > 0; units--) {
        uint32_t word = tl_word(values);
#ifdef TL_DSP
        wide[0] = (uint32_t)__sxtab16((int16x2_t)offset, (int8x4_t)word);
        wide[step] = (uint32_t)__sxtab16((int16x2_t)offset, (int8x4_t)(word >> 8 | word << 24));
#else
        uint32_t even = (uint32_t)tl_even(word), odd = (uint32_t)tl_odd(word), mask = 0xffff0000;
        wide[0] = ((even + offset) & ~mask) | ((even & mask) + (offset & mask));
        wide[step] = ((odd + offset) & ~mask) | ((odd & mask) + (offset & mask));
#endif
        values += 4;
        wide += 2 * step;
    }
}
