//! Whether products of floats of 16 bits are faster than those of float32: without AMX some processors take longer for them.

use super::handle::{Desc, Matmul, Options};
use super::team;
use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use std::sync::OnceLock;
use std::time::Instant;

/// Rows, terms and columns of the product that is timed: one of a small transformer, whose weights fit into a cache.
const SIZES: [usize; 3] = [128, 512, 512];
/// The least time of so many counts.
const RUNS: usize = 7;

/// How many times float32's time a product in bfloat16 takes on one thread; measured once a process, in some milliseconds.
pub fn of_bfloat16() -> Option<f64> {
    static FOUND: OnceLock<Option<f64>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let seconds = |dtype| team::run_alone(|| least(dtype)).ok();
        Some(seconds(DType::BFloat16)? / seconds(DType::Float32)?)
    })
}

/// The least time of a product, in seconds.
fn least(dtype: DType) -> Result<f64> {
    let [rows, terms, columns] = SIZES;
    let spec = Matmul {
        a: Desc::plain(dtype, &[rows, terms])?,
        b: Desc::plain(dtype, &[terms, columns])?,
        bias: None,
        dst: Desc::plain(dtype, &[rows, columns])?,
        pack_b: true,
    };
    let mut primitive = spec.create(None, &Options::threads(1))?;
    let ones = |shape: &[usize]| Array::from_f64(dtype, shape.to_vec(), &vec![1.0; shape.iter().product()]);
    let (a, b) = (ones(&[rows, terms])?, ones(&[terms, columns])?);
    let y = Buffer::try_zeroed(rows * columns * dtype.size())?;
    let packed = match primitive.weight_format() {
        Some(format) => Some(format.pack(b.bytes(), 1)?),
        None => None,
    };
    let weights = packed
        .as_ref()
        .map_or(b.bytes().as_ptr(), |packed| packed.as_ptr().cast_const());
    let workspace = Buffer::try_zeroed(primitive.workspace())?;
    let mut seconds = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        // SAFETY: the arrays have the shapes and dtypes of the spec, and this thread alone knows them.
        unsafe { primitive.run(&[a.bytes().as_ptr(), weights], y.as_ptr(), workspace.as_ptr())? };
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_timed_in_both() {
        assert!(least(DType::Float32).unwrap() > 0.0);
        if is_x86_feature_detected!("avx512bf16") {
            let ratio = of_bfloat16().unwrap();
            assert!((0.02..50.0).contains(&ratio), "{ratio}");
        }
    }
}
