static void tl_dequantize(float scale, float zero, const int8_t *input, float *out, int32_t count)
{
    int32_t at;
    for (at = 0; at < count; at++)
        out[at] = ((float)input[at] - zero) * scale;
}
