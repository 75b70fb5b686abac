use super::adding::sums_of_tensor;
use super::engine::{Geometry, Order, Reducer, reduce};
use super::reducers::{ArgExtreme, Max, Moments, Spread};
use super::store_states;
use crate::ThreadPool;
use crate::compute::testing::Noise;
use crate::elementwise::Arithmetic;
use crate::number::Compute;
use torchlet_core::layout::{DimOrder, Sizes};
use torchlet_core::rules::{DimSet, reduced_shape};
use torchlet_core::{Parallel, ScalarType, Serial, TensorInfo, TensorRef};

/// A random shape and memory order; about a tenth of the shapes are empty.
fn random_info(noise: &mut Noise, scalar_type: ScalarType) -> TensorInfo {
    let rank = noise.below(5);
    let sizes: Sizes = (0..rank)
        .map(|_| match noise.below(40) {
            0 => 0,
            1 => 70,
            n => 1 + n as i32 % 5,
        })
        .collect();
    let mut dim_order: DimOrder = (0..rank as u8).collect();
    for i in (1..rank).rev() {
        dim_order.swap(i, noise.below(i + 1));
    }
    TensorInfo { scalar_type, sizes, dim_order }
}

/// The indices of all elements in row-major order.
fn indices(sizes: &[i32]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in sizes {
        all = all
            .iter()
            .flat_map(|index| (0..size as usize).map(move |i| [&index[..], &[i]].concat()))
            .collect();
    }
    all
}

fn offset_of(info: &TensorInfo, index: &[usize]) -> usize {
    index.iter().zip(&info.strides()).map(|(i, stride)| i * stride).sum()
}

/// The values that contribute to each result, in the output's memory order.
fn groups<T: Copy>(
    data: &[T],
    input: &TensorInfo,
    dims: DimSet,
    out: &TensorInfo,
    keep: bool,
) -> Vec<Vec<T>> {
    let mut groups = vec![vec![]; out.numel()];
    for index in indices(&input.sizes) {
        let reduced: Vec<usize> = index
            .iter()
            .enumerate()
            .filter(|(dim, _)| keep || !dims.contains(*dim))
            .map(|(dim, &i)| if dims.contains(dim) { 0 } else { i })
            .collect();
        groups[offset_of(out, &reduced)].push(data[offset_of(input, &index)]);
    }
    groups
}

fn run<C: Compute, R: Reducer<C>, D: Compute>(
    parallel: &dyn Parallel,
    input: &TensorRef,
    dims: DimSet,
    out: &TensorInfo,
    order: Order,
    reducer: &R,
    finish: impl Fn(R::State) -> D + Sync,
) -> Vec<D> {
    let mut results = vec![D::default(); out.numel()];
    let geometry = Geometry::new(input.info(), dims, out, order);
    let outs = ([bytemuck::cast_slice_mut(&mut results)], [size_of::<D>()]);
    reduce(parallel, input, &geometry, reducer, outs, &|states, [bytes]| {
        store_states(D::SCALAR_TYPE, states, bytes, &finish);
    });
    results
}

fn sums<C: Arithmetic>(
    parallel: &dyn Parallel,
    input: &TensorRef,
    dims: DimSet,
    out: &TensorInfo,
) -> Vec<C> {
    let out = TensorInfo { scalar_type: C::SCALAR_TYPE, ..out.clone() };
    let mut results = vec![C::default(); out.numel()];
    let bytes = bytemuck::cast_slice_mut(&mut results);
    sums_of_tensor(parallel, input, dims, (&out, bytes), |sum: C| sum);
    results
}

#[test]
fn reduces_any_dims_in_any_layout() {
    let pool = ThreadPool::new(2);
    let mut noise = Noise::new(5);
    for round in 0..600 {
        let input = random_info(&mut noise, ScalarType::Float);
        let data: Vec<f32> = (0..input.numel()).map(|_| noise.below(17) as f32 - 8.0).collect();
        let tensor = TensorRef::new(input.clone(), bytemuck::cast_slice(&data)).unwrap();
        let chosen: Vec<i64> = (0..input.rank() as i64).filter(|_| noise.below(2) == 0).collect();
        let dims = DimSet::of(&chosen, input.rank()).unwrap();
        let keep = noise.below(2) == 0;
        let mut out = random_info(&mut noise, ScalarType::Float);
        out.sizes = reduced_shape(&input.sizes, dims, keep);
        out.dim_order = (0..out.sizes.len() as u8).collect();
        for i in (1..out.rank()).rev() {
            out.dim_order.swap(i, noise.below(i + 1));
        }
        let groups = groups(&data, &input, dims, &out, keep);
        let parallel: &dyn Parallel = if round % 2 == 0 { &pool } else { &Serial };
        let what = format!("{input} {chosen:?} {out}");

        let sums: Vec<f32> = self::sums(parallel, &tensor, dims, &out);
        assert!(sums.iter().zip(&groups).all(|(sum, of)| *sum == of.iter().sum::<f32>()), "{what}");
        // The same sums in integers, converted.
        let sums: Vec<i64> = self::sums(parallel, &tensor, dims, &out);
        let integers = groups.iter().map(|of| of.iter().sum::<f32>() as i64);
        assert!(sums.into_iter().eq(integers), "{what}");

        let first = run(
            parallel,
            &tensor,
            dims,
            &out,
            Order::Index,
            &ArgExtreme::<true>,
            |(_, index): (f32, usize)| index as i64,
        );
        for (first, of) in first.iter().zip(&groups) {
            let best = of.iter().copied().fold(f32::MIN, f32::max);
            let expected = of.iter().position(|x| *x == best).unwrap_or(0);
            assert_eq!(*first as usize, expected, "{what}");
        }
        let spreads =
            run(parallel, &tensor, dims, &out, Order::Memory, &Moments, |spread: Spread<f32>| {
                spread.variance(0.0)
            });
        for (variance, of) in spreads.iter().zip(&groups) {
            let mean = of.iter().sum::<f32>() / of.len() as f32;
            let expected = of.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / of.len() as f32;
            let near = (variance - expected).abs() < 1e-4 || variance.is_nan() && expected.is_nan();
            assert!(near, "{what}: {variance} {expected}");
        }
    }
}

/// Sums of many values keep their precision and do not depend on the number of threads.
#[test]
fn long_sums_are_precise() {
    let pool = ThreadPool::new(3);
    let count = 3_000_000;
    let data: Vec<f32> = Noise::new(3).floats(count).iter().map(|x| x + 1.0).collect();
    let exact: f64 = data.iter().map(|&x| f64::from(x)).sum();
    let out = TensorInfo::contiguous(ScalarType::Float, &[]).unwrap();
    let tensor = TensorRef::from_slice(&[count as i32], &data).unwrap();
    let dims = DimSet::all(1);
    let sum = |parallel: &dyn Parallel| sums::<f32>(parallel, &tensor, dims, &out)[0];
    assert_eq!(sum(&Serial), sum(&pool));
    assert!((f64::from(sum(&Serial)) / exact - 1.0).abs() < 2e-7, "{} {exact}", sum(&Serial));
    // Adjacent columns, which are computed together.
    let columns = 3;
    let tensor = TensorRef::from_slice(&[1_000_000, columns], &data).unwrap();
    let out = TensorInfo::contiguous(ScalarType::Float, &[columns]).unwrap();
    let dims = DimSet::of(&[0], 2).unwrap();
    let sums: Vec<f32> = sums(&pool, &tensor, dims, &out);
    for (column, sum) in sums.iter().enumerate() {
        let exact: f64 = data.iter().skip(column).step_by(3).map(|&x| f64::from(x)).sum();
        assert!((f64::from(*sum) / exact - 1.0).abs() < 1e-6, "{sum} {exact}");
    }
}

#[test]
fn first_nan_is_the_argmax() {
    let mut data = vec![1.0f32; 700];
    data[650] = f32::NAN;
    data[677] = f32::NAN;
    data[3] = f32::INFINITY;
    let tensor = TensorRef::from_slice(&[700], &data).unwrap();
    let out = TensorInfo::contiguous(ScalarType::Float, &[]).unwrap();
    let dims = DimSet::all(1);
    let largest = run(&Serial, &tensor, dims, &out, Order::Memory, &Max, |x: f32| x);
    assert!(largest[0].is_nan());
    let index = |(_, index): (f32, usize)| index as i64;
    assert_eq!(run(&Serial, &tensor, dims, &out, Order::Index, &ArgExtreme::<true>, index), [650]);
    assert_eq!(run(&Serial, &tensor, dims, &out, Order::Index, &ArgExtreme::<false>, index), [650]);
}
