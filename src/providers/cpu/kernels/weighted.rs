//! What convolutions and matrix products share: weights, a bias, and the layers behind them that they do at once.

use super::chain::{Chain, Channels};
use super::primitive::{self, Argument, PrimitiveLauncher, Side, Source, Weights};
use super::scope::Scope;
use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request};
use crate::providers::common::epilogue::{self, Epilogue};
use crate::providers::common::quantized;
use crate::providers::cpu::handle::{Options, Primitive};
use std::sync::Arc;

/// The part of a kernel that does not depend on how input 0 meets the weights, which are input 1.
pub struct Weighted {
    /// For reports: the op and those of the links.
    pub name: String,
    /// The weights.
    pub weights: Source,
    /// The bias: input 2, or a constant that is added first.
    pub bias: Side,
    /// What follows.
    pub chain: Chain,
    /// The first of the kernel's inputs that is an operand of the chain.
    pub first: usize,
}

impl Weighted {
    /// A candidate for every epilogue that the primitive does, each with the kernel that `make` gives.
    pub fn candidates<K: Kernel + 'static>(
        scope: &Scope,
        epilogues: &[Epilogue],
        channels: Channels,
        make: impl Fn(Weighted) -> K,
    ) -> Vec<Candidate> {
        let decompressed: Vec<LayerId> = [1, 2].iter().filter_map(|&at| known(scope, at)?.1).collect();
        let one = |epilogue: &Epilogue, decompressed: &[LayerId]| {
            let chain = Chain::new(scope.network, epilogue, channels, scope.input(2).is_some())?;
            let layers = epilogue.layers_behind(scope.layer);
            let name = epilogue::name(scope.network, &layers);
            let (weighted, inputs) = Self::new(scope, name, chain, !decompressed.is_empty());
            Some(Candidate {
                kernel: Arc::new(make(weighted)),
                layers: [decompressed, &layers].concat(),
                inputs,
                outputs: vec![epilogue.result()],
            })
        };
        let mut candidates: Vec<_> = epilogues
            .iter()
            .filter_map(|epilogue| one(epilogue, &decompressed))
            .collect();
        if let Some(none) = epilogues.last().filter(|_| !decompressed.is_empty()) {
            candidates.extend(one(none, &[]));
        }
        candidates
    }

    fn new(scope: &Scope, name: String, chain: Chain, decompress: bool) -> (Self, Vec<TensorId>) {
        let known = |at| known(scope, at).filter(|(_, layer)| decompress || layer.is_none());
        let network = scope.network;
        let mut inputs: Vec<TensorId> = scope.input(0).into_iter().collect();
        let weights = match (scope.input(1), known(1)) {
            (_, Some((array, _))) => Source::Constant(Weights::new(array)),
            (tensor, None) => {
                inputs.extend(tensor);
                Source::Input(1)
            }
        };
        let added = chain.bias.as_ref().map(|(array, _)| array.clone());
        let bias = match (added.or(known(2).map(|(array, _)| array)), scope.input(2)) {
            (Some(array), _) => Side::Kept(array),
            (None, Some(tensor)) => {
                inputs.push(tensor);
                Side::Input(inputs.len() - 1, network[tensor].ty.dtype)
            }
            (None, None) => Side::None,
        };
        let first = inputs.len();
        inputs.extend(chain.operands());
        let this = Self {
            name,
            weights,
            bias,
            chain,
            first,
        };
        (this, inputs)
    }

    /// What the speed depends on, for the timing cache.
    pub fn identity(&self) -> String {
        let weights = match &self.weights {
            Source::Constant(weights) => format!("{:?}", weights.source().shape()),
            Source::Input(_) => "given".into(),
        };
        format!("{weights} bias {:?}{}", self.bias.dtype(), self.chain.identity())
    }

    /// The form that takes input 0 in one layout and gives the result in another.
    pub fn form(&self, from: Layout, to: Layout) -> Form {
        primitive::form(from, self.first, self.chain.layouts(to), to)
    }

    /// As [`Kernel::in_place`].
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        self.chain.in_place(self.first)
    }

    /// The shape of the weights at the shapes of a request.
    pub fn weights_shape<'a>(&'a self, request: &'a Request) -> &'a [usize] {
        match &self.weights {
            Source::Constant(weights) => weights.source().shape(),
            Source::Input(i) => &request.inputs[*i].shape,
        }
    }

    /// What the primitive is asked to do behind its own work, to a result of this shape.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn options(&self, request: &Request, result: &[usize]) -> Result<Options> {
        Ok(Options {
            post: self.chain.post_ops(result, &request.inputs[self.first..])?,
            ..Options::threads(request.threads)
        })
    }

    /// The instance that runs a primitive with these weights, bias and operands.
    ///
    /// # Errors
    /// If oneDNN fails to pack the weights.
    pub fn instance(&self, primitive: Primitive, request: &Request) -> Result<Prepared> {
        let weights = self.weights.argument(primitive.weight_format(), request.threads)?;
        Ok(self.finish(primitive, vec![Argument::Input(0), weights], request))
    }

    /// The instance of a primitive that was made for [`lengthened`] operands: zeros take the place of both.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn instance_of_zeros(&self, primitive: Primitive, request: &Request, bytes: [usize; 2]) -> Result<Prepared> {
        let packed = primitive
            .weight_format()
            .map_or(bytes[1], |format| format.packed_bytes());
        let zeros = |bytes| Buffer::try_zeroed(bytes).map(|zeros| Argument::Packed(Arc::new(zeros)));
        Ok(self.finish(primitive, vec![zeros(bytes[0])?, zeros(packed)?], request))
    }

    fn finish(&self, primitive: Primitive, mut arguments: Vec<Argument>, request: &Request) -> Prepared {
        arguments.extend(self.bias.argument());
        arguments.extend(Chain::arguments(self.first, &request.inputs[self.first..]));
        PrimitiveLauncher::new(primitive, arguments).prepared()
    }
}

/// A constant input, or one that a Dequantize layer makes of constants: the kernel then keeps what that gives, and runs it too.
fn known(scope: &Scope, index: usize) -> Option<(Array, Option<LayerId>)> {
    quantized::constant(scope.network, scope.input(index)?)
}

/// A shape with one element wherever it has none. A sum without terms is one of zeros: oneDNN leaves the result of
/// the former as it was, or divides by its length.
pub fn lengthened(shape: &[usize]) -> Vec<usize> {
    shape.iter().map(|&extent| extent.max(1)).collect()
}
