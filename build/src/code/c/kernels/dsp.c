/* With Arm's DSP extension, an instruction multiplies two pairs of 16-bit values. */
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>
#define TL_DSP 1
#endif

/* Loops apart from the rest of their functions have more registers; others are repeated for
   constant arguments. */
#ifdef __GNUC__
#define TL_APART __attribute__((noinline))
#define TL_REPEATED inline __attribute__((always_inline))
#else
#define TL_APART
#define TL_REPEATED inline
#endif
