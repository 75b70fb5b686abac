//! Operators that create random tensors.

use super::describe::*;
use super::*;

operators! {
    random;
    CAUCHY(
        input: Tensor, median: Float = 0.0, sigma: Float = 1.0,
        generator: OptionalGenerator = None
    ) = aten::cauchy.default <- out { is_random: true };
    EXPONENTIAL(input: Tensor, lambd: Float = 1.0, generator: OptionalGenerator = None)
        = aten::exponential.default <- out { is_random: true };
    GEOMETRIC(input: Tensor, p: Float, generator: OptionalGenerator = None)
        = aten::geometric.default <- out { is_random: true };
    LOG_NORMAL(
        input: Tensor, mean: Float = 1.0, std: Float = 2.0, generator: OptionalGenerator = None
    ) = aten::log_normal.default <- out { is_random: true };
    MULTINOMIAL(
        input: Tensor, num_samples: Int, replacement: Bool = false,
        generator: OptionalGenerator = None
    ) = aten::multinomial.default <- out { is_random: true };
    NORMAL_TENSOR_TENSOR(mean: Tensor, std: Tensor, generator: OptionalGenerator = None)
        = aten::normal.Tensor_Tensor <- Tensor_Tensor_out { is_random: true };
    NORMAL_TENSOR_FLOAT(mean: Tensor, std: Float = 1.0, generator: OptionalGenerator = None)
        = aten::normal.Tensor_float <- Tensor_float_out { is_random: true };
    NORMAL_FLOAT_TENSOR(mean: Float, std: Tensor, generator: OptionalGenerator = None)
        = aten::normal.float_Tensor <- float_Tensor_out { is_random: true };
    NORMAL_FLOAT_FLOAT(
        mean: Float, std: Float, size: Ints, generator: OptionalGenerator = None,
        dtype: OptionalDtype = None, layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    ) = aten::normal.float_float <- float_float_out without 4..8 { is_random: true };
    POISSON(input: Tensor, generator: OptionalGenerator = None) = aten::poisson.default <- out
        { is_random: true };
    RAND(OnesArgs) = aten::rand.default <- out without 1..5 { is_random: true };
    RAND_LIKE(OnesLikeArgs) = aten::rand_like.default <- out without 1..5 { is_random: true };
    RANDINT(
        high: Int, size: Ints, dtype: OptionalDtype = 4, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::randint.default <- out without 2..6 { is_random: true };
    RANDINT_LOW(
        low: Int, high: Int, size: Ints, dtype: OptionalDtype = 4, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::randint.low <- low_out without 3..7 { is_random: true };
    RANDINT_LIKE(
        input: Tensor, high: Int, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        memory_format: OptionalMemoryFormat = None
    ) = aten::randint_like.default <- out without 2..6 { is_random: true };
    RANDN(OnesArgs) = aten::randn.default <- out without 1..5 { is_random: true };
    RANDN_LIKE(OnesLikeArgs) = aten::randn_like.default <- out without 1..5 { is_random: true };
    RANDPERM(
        n: Int, dtype: OptionalDtype = 4, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::randperm.default <- out without 1..5 { is_random: true };
    UNIFORM(input: Tensor, from: Float = 0.0, to: Float = 1.0, generator: OptionalGenerator = None)
        = aten::uniform.default <- out { is_random: true };
}
