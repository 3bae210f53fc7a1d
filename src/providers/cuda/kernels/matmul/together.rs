//! Products of the same left operand with as many right ones, small enough that one of them leaves most of a GPU idle: as one
//! launch, or one after another where that is faster.

use super::behind::Behind;
use super::problem::Problem;
use super::warpgroup::Grouped;
use super::{MatMul, Way, follow, own, problem, single, warpgroup};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request, Tactic};
use crate::providers::common::epilogue::{Epilogue, Operand};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::singles::{IN_TURN, Single, Singles};
use std::sync::Arc;

/// So many products are one launch: queries, keys and values.
const MOST: usize = 3;

/// The scope's product with others that read the same and have the same shapes, if it is the first of them.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Option<Candidate> {
    let dtype = scope.output_type(0).dtype;
    let products = products_of_floats(scope);
    if !own::has_tensor_cores(&gpu.device, dtype) || products.len() < 2 {
        return None;
    }
    let problem = problem::opt(scope)?;
    let ways = Ways {
        tiles: is_small(&problem, products.len(), gpu.device.multiprocessors as usize),
        groups: warpgroup::fits(&gpu.device, dtype, &problem),
    };
    if !ways.tiles && !ways.groups {
        return None;
    }
    let behind = alike(scope, &products)?;
    let singles = products.iter().zip(behind).map(|(&layer, behind)| {
        let scope = Scope { layer, ..*scope };
        let operands = [scope.input(0)?, scope.input(1)?];
        Some(single(&scope, operands, &behind, gpu))
    });
    Some(Together::candidate(singles.collect::<Option<Vec<_>>>()?, ways, gpu))
}

/// Of these products those with constants that have the left operand and the shapes of the scope's; none where that is not the first
/// that is run together. `left` says what a product reads, where its right operand is a constant. None of them reads what another gives.
pub fn siblings(scope: &Scope, mut products: Vec<LayerId>, left: impl Fn(LayerId) -> Option<TensorId>) -> Vec<LayerId> {
    let network = scope.network;
    let own = scope.layer();
    let held = |layer: LayerId| Some((left(layer)?, &network[network[layer].inputs[1]?].ty.shape));
    let Some(wanted) = held(scope.layer) else { return vec![] };
    let flags = |layer: LayerId| ["transA", "transB"].map(|name| network[layer].attrs.flag(name));
    products.retain(|&layer| {
        network[layer].op.name == own.op.name && held(layer) == Some(wanted) && flags(layer) == flags(scope.layer)
    });
    if products.len() < 2 {
        return vec![];
    }
    let positions = scope.positions();
    products.sort_by_key(|layer| positions[layer]);
    products.dedup();
    let starts = products.chunks(MOST).find(|chunk| chunk[0] == scope.layer);
    starts.map(<[_]>::to_vec).unwrap_or_default()
}

/// Those of floats.
fn products_of_floats(scope: &Scope) -> Vec<LayerId> {
    let network = scope.network;
    let left = |layer: LayerId| {
        let &[Some(left), Some(right)] = network[layer].inputs.as_slice() else {
            return None;
        };
        network[right].constant().map(|_| left)
    };
    let Some(read) = left(scope.layer) else { return vec![] };
    siblings(scope, network[read].users.clone(), left)
}

/// What follows each product, the most that is written alike for all of them and reads nothing but constants.
fn alike(scope: &Scope, products: &[LayerId]) -> Option<Vec<Epilogue>> {
    let network = scope.network;
    let written = |layer: LayerId| {
        let epilogues = follow::epilogues(&Scope { layer, ..*scope }).into_iter();
        let epilogues = epilogues.filter(|epilogue| epilogue.others().is_empty());
        let with_code = epilogues.map(move |epilogue| (Behind::new(network, &epilogue), epilogue));
        let constant = |operand: &Operand| network[operand.tensor].constant().is_some();
        let held = with_code.filter(move |(behind, _)| behind.operands.iter().all(constant));
        held.map(|(behind, epilogue)| (behind.text, epilogue))
    };
    let all: Vec<Vec<(String, Epilogue)>> = products.iter().map(|&layer| written(layer).collect()).collect();
    let same = |text: &str| {
        let of = |epilogues: &Vec<(String, Epilogue)>| {
            let found = epilogues.iter().find(|(other, _)| other == text);
            found.map(|(_, epilogue)| epilogue.clone())
        };
        all.iter().map(of).collect::<Option<Vec<_>>>()
    };
    all.first()?.iter().find_map(|(text, _)| same(text))
}

/// Whether so many products leave processors idle, most of them if they run one after another.
fn is_small(problem: &Problem, count: usize, processors: usize) -> bool {
    const SIDE: usize = 64;
    count * problem.batches() * problem.m.div_ceil(SIDE) * problem.n.div_ceil(SIDE) < 2 * processors
}

/// What runs products at once, at the shapes to optimise for.
#[derive(Clone, Copy)]
struct Ways {
    /// Tiles on tensor cores.
    tiles: bool,
    /// Warpgroups.
    groups: bool,
}

/// How products are run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Manner {
    /// At once, in one of our tiles.
    Tile(u32),
    /// At once, by warpgroups in one of their shapes.
    Group(u32),
    /// One after another, each in this tactic of a product alone.
    InTurn(Tactic),
}

impl Manner {
    fn of(tactic: &Tactic) -> Result<Self> {
        if let Some(inner) = tactic.inner(IN_TURN) {
            return Ok(Manner::InTurn(inner));
        }
        match Way::of(tactic)? {
            Way::Tile(number) => Ok(Manner::Tile(number)),
            Way::Group(number) => Ok(Manner::Group(number)),
            _ => Err(tactic.unknown()),
        }
    }

    /// The name that a form bears.
    fn tactic(self) -> Tactic {
        match self {
            Manner::Tile(number) => Way::Tile(number).tactic(),
            Manner::Group(number) => Way::Group(number).tactic(),
            Manner::InTurn(inner) => inner.within(IN_TURN),
        }
    }
}

struct Together {
    singles: Singles<MatMul>,
    inputs: usize,
    ways: Ways,
    gpu: Arc<Gpu>,
}

impl Together {
    fn candidate(singles: Vec<Single<MatMul>>, ways: Ways, gpu: &Arc<Gpu>) -> Candidate {
        let mut inputs = singles[0].inputs[..1].to_vec();
        let mut slots = vec![vec![0]; singles.len()];
        // As `Written` declares them: right operands, those of each tail, and what the code does not read.
        let parts = |single: &Single<MatMul>| {
            [
                1..2,
                2..2 + single.kernel.read,
                2 + single.kernel.read..single.inputs.len(),
            ]
        };
        for part in 0..3 {
            for (single, slots) in singles.iter().zip(&mut slots) {
                let part = &single.inputs[parts(single)[part].clone()];
                slots.extend(inputs.len()..inputs.len() + part.len());
                inputs.extend(part);
            }
        }
        let layers = singles
            .iter()
            .flat_map(|single| single.layers.iter().copied())
            .collect();
        let outputs = singles.iter().flat_map(|single| single.outputs.clone()).collect();
        let kernels = singles.into_iter().map(|single| single.kernel);
        let kernel = Self {
            singles: Singles(kernels.zip(slots).collect()),
            inputs: inputs.len(),
            ways,
            gpu: gpu.clone(),
        };
        Candidate {
            kernel: Arc::new(kernel),
            layers,
            inputs,
            outputs,
        }
    }

    fn written(&self) -> own::Written {
        let kernels = || self.singles.kernels();
        own::Written {
            products: self.singles.0.len(),
            unused: kernels().map(|kernel| kernel.unused).sum(),
            ..self.singles.first().written()
        }
    }

    /// Whether the products are so small at these shapes that tiles for all of them at once pay.
    fn leaves_processors_idle(&self, problem: &Problem) -> bool {
        is_small(problem, self.singles.0.len(), self.gpu.device.multiprocessors as usize)
    }

    fn at_once(&self, problem: &Problem, manner: Manner) -> Result<Prepared> {
        let written = self.written();
        match manner {
            Manner::Tile(tile) => Ok(own::tensor(&self.gpu, problem, &written, tile)?.into()),
            Manner::Group(shape) => {
                let dtype = self.singles.first().dtype;
                Grouped::new(&self.gpu, dtype, problem, &written, shape).map(Grouped::prepared)
            }
            Manner::InTurn(_) => Err(Error::internal("products one after another are not one kernel")),
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

    /// Ours for all at once, and what libraries do with each.
    fn forms(&self) -> Vec<Form> {
        let form = |manner: Manner| Form {
            tactic: manner.tactic(),
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain; self.singles.0.len()],
        };
        let each = self.singles.first().forms().into_iter().map(|form| form.tactic);
        let library = each.filter(|tactic| !matches!(Way::of(tactic), Ok(Way::Tile(_) | Way::Group(_))));
        let tiles = if self.ways.tiles { own::TILES } else { 0 };
        let groups = if self.ways.groups { warpgroup::SHAPES } else { 0 };
        let own = (0..tiles).map(Manner::Tile).chain((0..groups).map(Manner::Group));
        own.chain(library.map(Manner::InTurn)).map(form).collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let problem = self.singles.first().problem(request);
        let first = || Way::Library(0).tactic();
        match Manner::of(&request.form.tactic)? {
            Manner::InTurn(tactic) => self.singles.in_turn(request, &tactic),
            _ if problem.k == 0 => self.singles.in_turn(request, &first()),
            Manner::Tile(_) if !self.leaves_processors_idle(&problem) => self.singles.in_turn(request, &first()),
            manner => self.at_once(&problem, manner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::dtype::DType;
    use crate::network::ops;
    use crate::providers::common::scope::Orders;

    /// Products with biases of one input, each as wide as is said; the last one also with a Relu.
    fn projections(widths: &[usize]) -> (Network, Vec<LayerId>) {
        let mut network = Network::new("test");
        let shape = ["b", "128", "8"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float16, shape).unwrap();
        let mut products = vec![];
        for (number, &width) in widths.iter().enumerate() {
            let mut held = |shape: &[usize]| {
                let values: Vec<f64> = (0..shape.iter().product()).map(|i| i as f64).collect();
                network.add_constant("", Array::from_f64(DType::Float16, shape.to_vec(), &values).unwrap())
            };
            let (w, b) = (held(&[8, width]), held(&[width]));
            let mut op = |op: &str, inputs: &[TensorId]| {
                let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
                let op = ops::find(op).unwrap();
                network.add_layer("", op, Attrs::new(), &inputs).unwrap()[0]
            };
            let product = op("MatMul", &[x, w]);
            let mut y = op("Add", &[product, b]);
            if number + 1 == widths.len() {
                y = op("Relu", &[y]);
            }
            network.mark_output(y, &format!("y{number}")).unwrap();
            products.push(network.producer(product).unwrap().0);
        }
        (network, products)
    }

    fn found(network: &Network, layer: LayerId) -> (Vec<LayerId>, Option<usize>) {
        let orders = Orders::default();
        let scope = Scope {
            network,
            layer,
            orders: &orders,
        };
        let products = products_of_floats(&scope);
        let behind = alike(&scope, &products).map(|found| found.iter().map(|epilogue| epilogue.steps.len()).sum());
        (products, behind)
    }

    #[test]
    fn queries_keys_and_values_are_one_launch_with_what_all_of_them_add() {
        let (network, products) = projections(&[8, 8, 8]);
        assert_eq!(found(&network, products[0]), (products.clone(), Some(3)));
        assert_eq!(found(&network, products[1]).0, []);
        let (network, products) = projections(&[16, 8, 8]);
        assert_eq!(found(&network, products[0]).0, []);
        assert_eq!(found(&network, products[1]).0, products[1..]);
    }

    #[test]
    fn large_products_are_not() {
        let problem = |m: usize| Problem::new([false; 2], &[m, 768], &[768, 768]);
        assert!(is_small(&problem(128), 3, 132));
        assert!(!is_small(&problem(4096), 3, 132));
    }
}
