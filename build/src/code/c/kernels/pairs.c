/* Adds the products of two pairs. */
static int32_t tl_add_pairs(int32_t a, int32_t b, int32_t sum)
{
#ifdef TL_DSP
    return __smlad((int16x2_t)a, (int16x2_t)b, sum);
#else
    int32_t low = (int16_t)((uint32_t)a & 0xffff) * (int16_t)((uint32_t)b & 0xffff);
    int32_t high = (int16_t)((uint32_t)a >> 16) * (int16_t)((uint32_t)b >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
#endif
}
