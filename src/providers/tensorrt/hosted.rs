//! Plugins inside of TensorRT: the layers of a network that TensorRT calls back, each behind the [`table`] of `plugin_abi.h`,
//! which `cpp/tensorrt/flavour/plugin.cc` wraps in TensorRT's classes.
//!
//! A plan keeps what a plugin is and how the network typed it; opening the plan asks the registry of plugins, as an engine
//! file does.

mod table;

use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::dim::build::{Algebra, BinaryOp};
use crate::network::op::TensorType;
use crate::network::plugin::{Held, Prepared};
use crate::providers::plugin::library::abi::{self, Expr, Exprs, Shape};
use crate::providers::plugin::library::types;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

/// Takes the last failure of a plugin inside of TensorRT, whose own messages do not contain it.
pub fn take_error() -> Option<Error> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

static LAST: Mutex<Option<Error>> = Mutex::new(None);

/// A plugin with the types of its layer, as a plan keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosted {
    layer: String,
    held: Held,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
    #[serde(skip)]
    ready: Ready,
}

/// What runs at concrete shapes; a clone is not ready.
#[derive(Default)]
struct Ready(Option<Box<dyn Prepared>>);

impl Clone for Ready {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "ready" } else { "not ready" })
    }
}

impl Hosted {
    /// The plugin of a layer.
    ///
    /// # Errors
    /// If a tensor can't cross, or the extents of the outputs do not follow from the single extents of the inputs.
    pub fn new(layer: &str, held: Held, inputs: Vec<TensorType>, outputs: Vec<TensorType>) -> Result<Self> {
        types::symbolic(&inputs)?;
        types::symbolic(&outputs)?;
        let made = Self {
            layer: layer.into(),
            held,
            inputs,
            outputs,
            ready: Ready::default(),
        };
        let symbols = made
            .outputs
            .iter()
            .flat_map(|ty| ty.shape.iter().flat_map(Dim::symbols));
        for symbol in symbols {
            made.place(&symbol)?;
        }
        Ok(made)
    }

    /// The input and the axis whose extent a symbol is.
    fn place(&self, symbol: &str) -> Result<(usize, usize)> {
        let is_it = |dim: &Dim| dim.as_symbol().is_some_and(|known| &**known == symbol);
        let mut places = self.inputs.iter().enumerate();
        let found = places.find_map(|(input, ty)| Some((input, ty.shape.iter().position(is_it)?)));
        found.ok_or_else(|| {
            Error::unsupported(format!(
                "an output has the size {symbol:?}, which is no extent of an input by itself"
            ))
        })
    }
}

/// Dimensions that TensorRT calculates for one output.
struct Outside<'a> {
    hosted: &'a Hosted,
    shapes: &'a [Shape],
    exprs: &'a Exprs,
}

impl Algebra for Outside<'_> {
    type Value = Expr;

    fn number(&mut self, value: i64) -> Result<Expr> {
        let mut made = Expr::default();
        checked((self.exprs.constant)(self.exprs.host, value, &mut made))?;
        Ok(made)
    }

    fn symbol(&mut self, name: &str) -> Result<Expr> {
        let (input, axis) = self.hosted.place(name)?;
        let given = self.shapes.get(input).and_then(|shape| shape.dims.get(axis)).copied();
        given.ok_or_else(|| Error::internal("TensorRT gives other inputs than the layer has"))
    }

    fn binary(&mut self, op: BinaryOp, left: Expr, right: Expr) -> Result<Expr> {
        let number = match op {
            BinaryOp::Add => 0,
            BinaryOp::Multiply => 1,
            BinaryOp::Max => 2,
            BinaryOp::Min => 3,
            BinaryOp::FloorDivide => 7,
            BinaryOp::CeilDivide => 8,
        };
        let mut made = Expr::default();
        let operation = self.exprs.operation;
        checked(operation(self.exprs.host, number, left.id, right.id, &mut made))?;
        Ok(made)
    }
}

fn checked(status: i32) -> Result<()> {
    match status {
        abi::OK => Ok(()),
        _ => Err(Error::unsupported("TensorRT can't calculate a dimension of the output")),
    }
}

#[cfg(test)]
mod tests;
