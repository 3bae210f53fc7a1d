//! Products of one tensor of 8 bits with as many constants (queries, keys and values), as one launch of warpgroups, or one after another
//! where that is faster.

use super::{Quantized, rows, singles};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::tactic::tactics;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request, Tactic, Tier};
use crate::providers::common::quantized::Dequantized;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::matmul::together::siblings;
use crate::providers::cuda::kernels::matmul::warpgroup::SHAPES;
use crate::providers::cuda::kernels::singles::{IN_TURN, Single, Singles};
use std::sync::Arc;

tactics! {
    /// A way to compute them.
    enum Way {
        /// By warpgroups, in one of the shapes that look best.
        AtOnce(number: u32) = "warpgroups at once",
    }
}

/// The scope's product with others that read the same and have the same shapes, if it is the first of them.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Option<Candidate> {
    let products = products_of_8_bits(scope);
    if products.len() < 2 {
        return None;
    }
    let of = |&layer: &LayerId| {
        let found = singles(&Scope { layer, ..*scope }, gpu).ok()?.into_iter();
        Some(found.filter(|single| is_held(scope.network, single)).collect())
    };
    let all: Vec<Vec<Single<Quantized>>> = products.iter().map(of).collect::<Option<_>>()?;
    let found = alike(all)?;
    let is_same = |single: &Single<Quantized>| single.kernel.scheme == found[0].kernel.scheme;
    found.iter().all(is_same).then(|| Together::candidate(found))
}

/// Products of the tensor of 8 bits that the scope's reads, each of which may have a Dequantize layer of its own in front.
fn products_of_8_bits(scope: &Scope) -> Vec<LayerId> {
    let network = scope.network;
    let left = |layer: LayerId| {
        let &[Some(left), Some(right)] = network[layer].inputs.as_slice() else {
            return None;
        };
        network.producer(right)?;
        Dequantized::of(network, left).map(|left| left.tensor)
    };
    let Some(read) = left(scope.layer).filter(|_| scope.op() == "MatMul") else {
        return vec![];
    };
    let results = network[read].users.iter().flat_map(|&user| &network[user].outputs);
    let products = results.flat_map(|&result| network[result].users.iter().copied());
    siblings(scope, products.collect(), left)
}

/// Whether rows are multiplied, and what follows gives one result and reads nothing but constants.
fn is_held(network: &Network, single: &Single<Quantized>) -> bool {
    let constant = |tensor: TensorId| network[tensor].constant().is_some();
    single.kernel.reads_rows() && single.outputs.len() == 1 && single.inputs[1..].iter().copied().all(constant)
}

/// The kernel of each product that does the most of what is written alike for all of them.
fn alike(all: Vec<Vec<Single<Quantized>>>) -> Option<Vec<Single<Quantized>>> {
    let same = |text: &str| {
        let place =
            |singles: &Vec<Single<Quantized>>| singles.iter().position(|single| single.kernel.behind.text == text);
        all.iter().map(place).collect::<Option<Vec<usize>>>()
    };
    let places = all
        .first()?
        .iter()
        .find_map(|single| same(&single.kernel.behind.text))?;
    let chosen = all.into_iter().zip(places);
    Some(chosen.map(|(mut singles, place)| singles.swap_remove(place)).collect())
}

struct Together {
    singles: Singles<Quantized>,
    inputs: usize,
}

impl Together {
    fn candidate(singles: Vec<Single<Quantized>>) -> Candidate {
        let mut inputs = singles[0].inputs[..1].to_vec();
        let mut layers: Vec<LayerId> = vec![];
        let (mut outputs, mut kernels) = (vec![], vec![]);
        for single in singles {
            let begin = inputs.len();
            inputs.extend(&single.inputs[1..]);
            kernels.push((single.kernel, std::iter::once(0).chain(begin..inputs.len()).collect()));
            outputs.extend(single.outputs);
            // All of them bear the layer in front.
            let own: Vec<LayerId> = single
                .layers
                .into_iter()
                .filter(|layer| !layers.contains(layer))
                .collect();
            layers.extend(own);
        }
        let kernel = Self {
            singles: Singles(kernels),
            inputs: inputs.len(),
        };
        Candidate {
            kernel: Arc::new(kernel),
            layers,
            inputs,
            outputs,
        }
    }
}

impl Kernel for Together {
    fn name(&self) -> String {
        self.singles.name()
    }

    fn identity(&self) -> String {
        self.singles.identity()
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        self.singles.first().products_of_8_bits()
    }

    fn forms(&self) -> Vec<Form> {
        let form = |tactic: Tactic| Form {
            tactic,
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain; self.singles.0.len()],
        };
        let each = self.singles.first().forms().into_iter();
        let each = each.map(|form| form.tactic.within(IN_TURN));
        let at_once = (0..SHAPES).map(|number| Way::AtOnce(number).tactic());
        at_once.chain(each).map(form).collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        if let Some(inner) = request.form.tactic.inner(IN_TURN) {
            return self.singles.in_turn(request, &inner);
        }
        let Way::AtOnce(number) = Way::of(&request.form.tactic)?;
        let kernels: Vec<&Quantized> = self.singles.kernels().collect();
        let is_empty = request.outputs[0].is_empty() || request.inputs[0].is_empty();
        let convolution = (!is_empty).then(|| rows::matrices(&request.inputs[0], &request.outputs[0]));
        match convolution.and_then(|c| rows::prepared(&kernels, &c, number as usize)) {
            Some(made) => made,
            // Few rows, which other forms take.
            None => Ok(self
                .singles
                .in_turn(request, &super::Way::Plain.tactic())?
                .with_tier(Tier::Reference)),
        }
    }
}
