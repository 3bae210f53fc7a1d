//! The dimensions that a plugin calculates with: it has numbers, we have the expressions.

use super::abi;
use crate::error::{Error, Result};
use crate::network::dim::Dim;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The expressions of one call.
#[derive(Default)]
pub struct Dims {
    known: Vec<Dim>,
    /// Why the last operation failed.
    failed: Option<Error>,
}

impl Dims {
    /// The face of a dimension for the plugin.
    pub fn add(&mut self, dim: Dim) -> abi::Expr {
        let constant = dim.as_const();
        self.known.push(dim);
        abi::Expr {
            constant: constant.unwrap_or_default(),
            id: (self.known.len() - 1) as u32,
            is_constant: constant.is_some().into(),
        }
    }

    /// A shape for the plugin.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub fn shape(&mut self, dims: &[Dim]) -> Result<abi::Shape> {
        let mut shape = abi::Shape {
            rank: rank(dims.len())?,
            ..Default::default()
        };
        for (to, dim) in shape.dims.iter_mut().zip(dims) {
            *to = self.add(dim.clone());
        }
        Ok(shape)
    }

    /// The shape that a plugin gave.
    ///
    /// # Errors
    /// If its rank is none.
    pub fn read(&self, shape: &abi::Shape) -> Result<Vec<Dim>> {
        let dims = usize::try_from(shape.rank).ok().and_then(|rank| shape.dims.get(..rank));
        let dims = dims.ok_or_else(|| {
            Error::shape("getOutputDimensions gave a shape with a wrong nbDims")
                .expected(format!("0 to {}", abi::MAX_DIMS))
                .got(shape.rank.to_string())
        })?;
        dims.iter().map(|dim| self.get(dim.id)).collect()
    }

    /// Why a call of the plugin failed, if it was for what we refused; else that error.
    pub fn reason(self, error: Error) -> Error {
        match self.failed {
            Some(ours) => ours.during(error.message()),
            None => error,
        }
    }

    /// What a plugin calls, while `self` stays where it is.
    pub fn face(&mut self) -> abi::Exprs {
        abi::Exprs {
            host: std::ptr::from_mut(self).cast(),
            constant,
            operation,
        }
    }

    fn get(&self, id: u32) -> Result<Dim> {
        let found = self.known.get(id as usize).cloned();
        found.ok_or_else(|| Error::shape("a dimension is none of this call's"))
    }

    fn operate(&mut self, operation: i32, first: u32, second: u32) -> Result<Dim> {
        let (a, b) = (self.get(first)?, self.get(second)?);
        let numbers = a.as_const().zip(b.as_const());
        Ok(match (operation, numbers) {
            (0, _) => a + b,
            (1, _) => a * b,
            (2, _) => a.greatest(&b),
            (3, _) => a.least(&b),
            (4, _) => a - b,
            (5, Some((a, b))) => i64::from(a == b).into(),
            (6, Some((a, b))) => i64::from(a < b).into(),
            (7 | 8, _) if b.as_const().is_some_and(|b| b <= 0) => {
                return Err(Error::invalid("a dimension is divided by what is not above zero").got(b.to_string()));
            }
            (7, _) => a.floordiv(&b),
            (8, _) => a.ceildiv(&b),
            (5 | 6, None) => {
                return Err(Error::unsupported("dimensions that only a call tells are not compared")
                    .got(format!("{a} and {b}")));
            }
            (unknown, _) => {
                return Err(Error::invalid("there is no such DimensionOperation").got(unknown.to_string()));
            }
        })
    }
}

/// A number of dimensions, as it crosses.
///
/// # Errors
/// If there are too many.
pub fn rank(dims: usize) -> Result<i32> {
    if dims > abi::MAX_DIMS {
        return Err(Error::shape("a tensor has too many dimensions for a plugin in C++")
            .expected(format!("at most {}", abi::MAX_DIMS))
            .got(dims.to_string()));
    }
    Ok(dims as i32)
}

/// Does `make` for the plugin; nothing of ours unwinds into its code.
///
/// # Safety
/// `host` is that of a [`Dims::face`] whose owner is alive, and `to` takes an expression.
unsafe fn answer(host: *mut c_void, to: *mut abi::Expr, make: impl FnOnce(&mut Dims) -> Result<Dim>) -> i32 {
    // SAFETY: the caller says so; the plugin's calls come one after another, while we wait for it.
    let (dims, to) = unsafe { (&mut *host.cast::<Dims>(), &mut *to) };
    let made = catch_unwind(AssertUnwindSafe(|| make(dims)));
    match made.unwrap_or_else(|_| Err(Error::internal("a dimension can't be calculated"))) {
        Ok(dim) => {
            *to = dims.add(dim);
            abi::OK
        }
        Err(error) => {
            dims.failed = Some(error);
            abi::FAILED
        }
    }
}

extern "C" fn constant(host: *mut c_void, value: i64, made: *mut abi::Expr) -> i32 {
    // SAFETY: the header passes on our own `host`, and the address of a variable.
    unsafe { answer(host, made, |_| Ok(value.into())) }
}

extern "C" fn operation(host: *mut c_void, operation: i32, first: u32, second: u32, made: *mut abi::Expr) -> i32 {
    // SAFETY: as above.
    unsafe { answer(host, made, |dims| dims.operate(operation, first, second)) }
}
