/* With Arm's DSP extension, an instruction multiplies two pairs of 16-bit values. */
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>
#define TL_DSP 1
#endif
