//! `_native.Dim`.

use super::attrs::write_dim;
use crate::error::Error;
use crate::network::dim;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The extent of a dimension that only a call tells: an expression of named sizes. It adds, subtracts and multiplies as
/// an int does, has `//` and `%`, `ceildiv`, `minimum` and `maximum`; what no size is in any more is an int.
#[pyclass(frozen, name = "Dim", module = "neurenix")]
pub struct Dim {
    pub(super) inner: dim::Dim,
}

/// What a dimension goes together with.
#[derive(FromPyObject)]
pub enum Extent<'py> {
    Symbolic(Bound<'py, Dim>),
    Number(i64),
}

impl Extent<'_> {
    fn dim(&self) -> dim::Dim {
        match self {
            Extent::Symbolic(dim) => dim.get().inner.clone(),
            Extent::Number(number) => (*number).into(),
        }
    }
}

/// A dimension as an int, or as a [`Dim`] where sizes are in it.
pub fn write<'py>(py: Python<'py>, dim: &dim::Dim) -> PyResult<Bound<'py, PyAny>> {
    match dim.as_const() {
        Some(_) => write_dim(py, dim),
        None => Ok(Bound::new(py, Dim { inner: dim.clone() })?.into_any()),
    }
}

#[pymethods]
impl Dim {
    /// The dimension of an expression: "batch", "2*width + 1".
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let inner = text.parse::<dim::Dim>()?;
        Ok(Self { inner })
    }

    fn __add__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &(self.inner.clone() + other.dim()))
    }

    fn __radd__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__add__(py, other)
    }

    fn __sub__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &(self.inner.clone() - other.dim()))
    }

    fn __rsub__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &(other.dim() - self.inner.clone()))
    }

    fn __mul__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &(self.inner.clone() * other.dim()))
    }

    fn __rmul__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__mul__(py, other)
    }

    fn __neg__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &(dim::Dim::from(0i64) - self.inner.clone()))
    }

    fn __floordiv__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &self.inner.floordiv(&divisor(&other)?))
    }

    fn __rfloordiv__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &other.dim().floordiv(&self.inner))
    }

    fn __mod__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &self.inner.modulo(&divisor(&other)?))
    }

    fn __rmod__<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &other.dim().modulo(&self.inner))
    }

    /// The quotient, rounded up.
    fn ceildiv<'py>(&self, py: Python<'py>, divisor: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &self.inner.ceildiv(&self::divisor(&divisor)?))
    }

    /// The lesser of two.
    fn minimum<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &self.inner.least(&other.dim()))
    }

    /// The greater of two.
    fn maximum<'py>(&self, py: Python<'py>, other: Extent<'py>) -> PyResult<Bound<'py, PyAny>> {
        write(py, &self.inner.greatest(&other.dim()))
    }

    /// The dimensions that are broadcast to give this one: more than one where each of them may be 1.
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let operands = self.inner.operands();
        operands.iter().map(|dim| write_dim(py, dim)).collect()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<bool> {
        let other = other.cast::<Dim>().ok();
        let same = other.is_some_and(|other| other.get().inner == self.inner);
        match op {
            CompareOp::Eq => Ok(same),
            CompareOp::Ne => Ok(!same),
            _ => Err(self.unknown().into()),
        }
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.hash(&mut hasher);
        hasher.finish()
    }

    fn __index__(&self) -> PyResult<i64> {
        Err(self.unknown().into())
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Dim({:?})", self.inner.to_string())
    }
}

impl Dim {
    fn unknown(&self) -> Error {
        Error::shape(format!("only a call tells how much {} is", self.inner)).hint(
            "calculate with the dimension: + - * // % and its ceildiv, minimum and maximum give expressions that hold at \
             every size",
        )
    }
}

fn divisor(other: &Extent) -> PyResult<dim::Dim> {
    let divisor = other.dim();
    match divisor.as_const() {
        Some(value) if value <= 0 => Err(Error::shape("a dimension is divided by what is not above zero")
            .got(value.to_string())
            .into()),
        _ => Ok(divisor),
    }
}
