/* A sum of tensors with other scales. Operands are shifted to the left by 20 bits for precision. */
struct tl_addition {
    int32_t zeros[2], multipliers[3], shifts[3], offset, low, high;
};

static void tl_add(const struct tl_addition *s, const int8_t *a, const int8_t *b, int8_t *out,
                   int32_t count)
{
    int32_t at;
    for (at = 0; at < count; at++) {
        uint32_t first = ((uint32_t)a[at] - (uint32_t)s->zeros[0]) << 20;
        uint32_t second = ((uint32_t)b[at] - (uint32_t)s->zeros[1]) << 20;
        uint32_t sum = (uint32_t)tl_scaled((int32_t)first, s->multipliers[0], s->shifts[0])
            + (uint32_t)tl_scaled((int32_t)second, s->multipliers[1], s->shifts[1]);
        sum = (uint32_t)tl_scaled((int32_t)sum, s->multipliers[2], s->shifts[2]);
        out[at] = (int8_t)tl_bounded((int32_t)(sum + (uint32_t)s->offset), s->low, s->high);
    }
}
