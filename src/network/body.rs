//! Networks that layers hold: the branches of an If, the body of a Loop.

use crate::error::{Error, Result};
use crate::network::array::{Array, Buffer};
use crate::network::attr::{Attr, Attrs};
use crate::network::dim::{Dim, Range};
use crate::network::dtype::DType;
use crate::network::op::{OpDef, TensorType};
use crate::network::{Network, Source, TensorId};
use std::collections::HashSet;
use std::sync::Arc;

/// A network that a layer holds. It reads what its op says, then what it captures from the network around, and last the
/// sizes of that network on which its shapes depend: an empty tensor whose extents they are.
#[derive(Debug, Clone)]
pub struct Body(pub Arc<Network>);

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Body {
    /// The symbols that it takes from the network around, in the order of their sizes.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let sizes = self.0.inputs().last().map(|&t| self.0[t].ty.shape.as_slice());
        let sizes = sizes.unwrap_or_default().iter();
        sizes.filter_map(|dim| dim.as_symbol().cloned()).collect()
    }
}

/// A body on its way into a layer.
pub struct OpenBody {
    /// The attribute that it becomes.
    pub attr: String,
    /// The network, without the input for sizes.
    pub network: Network,
    /// What its last inputs stand for in the network around.
    pub captures: Vec<TensorId>,
}

/// The empty array that tells a network sizes, as the input that [`Network::add_sizes`] makes takes them.
///
/// # Errors
/// If a size is negative.
pub fn sizes(values: &[i64]) -> Result<Array> {
    let size = |&value: &i64| {
        usize::try_from(value).map_err(|_| Error::shape("a dimension would be negative").got(value.to_string()))
    };
    let shape = std::iter::once(Ok(0))
        .chain(values.iter().map(size))
        .collect::<Result<_>>()?;
    Array::new(DType::Bool, shape, Arc::new(Buffer::zeroed(0)), 0)
}

impl Network {
    /// Adds an input that is an empty tensor; its extents are 0 and then these symbols. That is how their values come
    /// in where no other input has such a dimension. The 0 stands first, so that no product of many is too great.
    pub(crate) fn add_sizes(&mut self, symbols: &[Arc<str>]) {
        let shape = symbols.iter().map(|name| Dim::symbol(name.clone()));
        let shape: Vec<Dim> = std::iter::once(Dim::from(0i64)).chain(shape).collect();
        let sizes = self.push_tensor("sizes", TensorType::new(DType::Bool, shape), Source::Input);
        self.inputs.push(sizes);
    }

    /// Brings in a tensor of the network around this body. What is constant there, or follows from shapes, is the same
    /// here; anything else becomes an input.
    pub fn capture(&mut self, around: &Network, tensor: TensorId) -> TensorId {
        let tensor = &around[tensor];
        let dims = tensor.ty.shape.iter().chain(tensor.ty.value.iter().flatten());
        for symbol in dims.flat_map(Dim::symbols) {
            let range = around.symbols.get(&symbol).copied().unwrap_or_default();
            self.symbols.entry(symbol).or_insert(range);
        }
        let source = match (&tensor.source, &tensor.ty.value) {
            (Source::Constant(constant), _) => Source::Constant(constant.clone()),
            (_, Some(_)) => Source::Symbolic,
            _ => Source::Input,
        };
        let is_input = matches!(source, Source::Input);
        let id = self.push_tensor(&tensor.name, tensor.ty.clone(), source);
        if is_input {
            self.inputs.push(id);
        }
        id
    }

    /// Adds a layer that holds networks. Its inputs are the given ones, then for each body what it captures and the
    /// sizes that it needs.
    ///
    /// # Errors
    /// As [`Network::add_layer`].
    pub fn add_control(
        &mut self,
        name: &str,
        op: &'static OpDef,
        mut attrs: Attrs,
        inputs: &[Option<TensorId>],
        bodies: Vec<OpenBody>,
    ) -> Result<Vec<TensorId>> {
        let dims = self
            .tensors
            .iter()
            .flat_map(|t| t.ty.shape.iter().chain(t.ty.value.iter().flatten()));
        let known: HashSet<Arc<str>> = dims.flat_map(Dim::symbols).collect();
        let mut inputs = inputs.to_vec();
        for mut body in bodies {
            let symbols = body.network.symbols.keys().filter(|s| known.contains(*s));
            let symbols: Vec<_> = symbols.cloned().collect();
            body.network.add_sizes(&symbols);
            body.network.verify().map_err(|e| e.layer(name))?;
            attrs.insert(body.attr, Attr::Body(Body(Arc::new(body.network))));
            inputs.extend(body.captures.into_iter().map(Some));
            inputs.push(Some(self.add_symbolic(&format!("{name}.sizes"), &symbols)));
        }
        self.add_layer(name, op, attrs, &inputs)
    }

    /// Adds an int64 tensor whose elements are symbols.
    fn add_symbolic(&mut self, name: &str, symbols: &[Arc<str>]) -> TensorId {
        let ty = TensorType {
            dtype: DType::Int64,
            shape: vec![symbols.len().into()],
            value: Some(symbols.iter().map(|name| Dim::symbol(name.clone())).collect()),
        };
        self.push_tensor(name, ty, Source::Symbolic)
    }

    /// Puts what `change` makes of them in the place of the networks that layers hold; inputs and results stay in number and
    /// type.
    ///
    /// # Errors
    /// As `change`; names the layer.
    pub(crate) fn change_bodies(&mut self, change: impl Fn(Network) -> Result<Network>) -> Result<()> {
        for layer in self.layers.values_mut() {
            for attr in layer.attrs.values_mut() {
                if let Attr::Body(body) = attr {
                    let changed = change((*body.0).clone()).map_err(|e| e.layer(&layer.name))?;
                    *body = Body(Arc::new(changed));
                }
            }
        }
        Ok(())
    }

    /// Gives the symbols of a body, and of the bodies in it, the ranges that they have around it.
    pub(crate) fn take_ranges(&mut self, ranges: impl Fn(&str) -> Option<Range>) {
        for (name, range) in &mut self.symbols {
            *range = ranges(name).unwrap_or(*range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_great_sizes_are_told_without_memory() {
        assert_eq!(sizes(&[1 << 20; 9]).unwrap().shape()[1..], [1 << 20; 9]);
        assert!(sizes(&[2, -1]).is_err());
    }
}
