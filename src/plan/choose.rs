//! Chooses the form of every kernel: the least total of kernels and of reorders between them.

use crate::plan::Form;
use crate::plan::layout::Layout;
use std::collections::HashMap;

/// A kernel in the chain: its forms with their times, and which edges it reads and gives.
pub struct Choice {
    /// The forms that can run.
    pub forms: Vec<Form>,
    /// Nanoseconds of each.
    pub times: Vec<f64>,
    /// The edge of each input.
    pub inputs: Vec<usize>,
    /// The edge of each output.
    pub outputs: Vec<usize>,
}

/// A tensor between kernels.
#[derive(Clone, Default)]
pub struct Edge {
    /// Nanoseconds of a reorder to another layout.
    pub reorder: f64,
    /// It arrives in the plain layout: an input or a constant of the network.
    pub given: bool,
    /// It must leave in the plain layout: a result of the network.
    pub result: bool,
    /// It keeps its memory where it is brought from the plain layout to channels last, and back.
    pub bitcast: bool,
}

/// A choice must win by this much, so that noise does not decide and builds repeat.
const CLEARLY: f64 = 0.98;

/// The number of the chosen form of each kernel.
pub fn choose(choices: &[Choice], edges: &[Edge]) -> Vec<usize> {
    let web = Web::new(choices, edges);
    let starts = Layout::ALL.map(|layout| web.settle(web.uniform(layout)));
    let mut best: Option<(f64, Vec<usize>)> = None;
    for forms in starts {
        let total = web.total(&forms);
        if best.as_ref().is_none_or(|(least, _)| total < least * CLEARLY) {
            best = Some((total, forms));
        }
    }
    best.map(|(_, forms)| forms).unwrap_or_default()
}

/// Nanoseconds of the chain with these forms, reorders included.
pub fn total(choices: &[Choice], edges: &[Edge], forms: &[usize]) -> f64 {
    Web::new(choices, edges).total(forms)
}

struct Web<'a> {
    choices: &'a [Choice],
    edges: &'a [Edge],
    producer: HashMap<usize, (usize, usize)>,
    readers: HashMap<usize, Vec<(usize, usize)>>,
}

impl<'a> Web<'a> {
    fn new(choices: &'a [Choice], edges: &'a [Edge]) -> Self {
        let mut web = Self {
            choices,
            edges,
            producer: HashMap::new(),
            readers: HashMap::new(),
        };
        for (i, choice) in choices.iter().enumerate() {
            web.producer
                .extend(choice.outputs.iter().enumerate().map(|(at, &edge)| (edge, (i, at))));
            for (at, &edge) in choice.inputs.iter().enumerate() {
                web.readers.entry(edge).or_default().push((i, at));
            }
        }
        web
    }

    /// Every kernel in its cheapest form when all edges lie in `layout`.
    fn uniform(&self, layout: Layout) -> Vec<usize> {
        let pick = |choice: &Choice| {
            let cost = |f: usize| {
                let form = &choice.forms[f];
                let operands = choice
                    .inputs
                    .iter()
                    .zip(&form.inputs)
                    .chain(choice.outputs.iter().zip(&form.outputs));
                let away: f64 = operands
                    .filter(|(_, l)| **l != layout)
                    .map(|(&e, _)| self.edges[e].reorder)
                    .sum();
                choice.times[f] + away
            };
            least(choice.forms.len(), 0, cost)
        };
        self.choices.iter().map(pick).collect()
    }

    /// Changes kernels while that lowers the total: one at a time, then each with those beside it.
    fn settle(&self, mut forms: Vec<usize>) -> Vec<usize> {
        /// Each round carries a layout past what two kernels had to agree on.
        const MOST_ROUNDS: usize = 4;
        for _ in 0..MOST_ROUNDS {
            forms = self.settle_each(forms);
            if !self.settle_beside(&mut forms) {
                break;
            }
        }
        forms
    }

    /// Changes one kernel with those beside it where that lowers the total; whether it did. A convolution between two Transposes
    /// takes a layout that they undo only where all three change.
    fn settle_beside(&self, forms: &mut [usize]) -> bool {
        let mut changed = false;
        for i in 0..forms.len() {
            let group = self.beside(i);
            let edges = self.edges_of(&group);
            if edges.iter().any(|edge| self.is_read_by_many(*edge)) {
                continue;
            }
            for f in self.fastest_by_layouts(i) {
                let before: Vec<usize> = group.iter().map(|&k| forms[k]).collect();
                let cost = self.around(forms, &group, &edges);
                forms[i] = f;
                for &k in &group[1..] {
                    forms[k] = least(self.choices[k].forms.len(), forms[k], |g| self.local(forms, k, g));
                }
                if self.around(forms, &group, &edges) < cost * CLEARLY {
                    changed = true;
                } else {
                    group.iter().zip(before).for_each(|(&k, f)| forms[k] = f);
                }
            }
        }
        changed
    }

    /// A kernel, and those that give what it reads or read what it gives.
    fn beside(&self, i: usize) -> Vec<usize> {
        /// More do not agree on a layout by chance.
        const MOST: usize = 8;
        let choice = &self.choices[i];
        let producers = choice.inputs.iter().filter_map(|edge| self.producer.get(edge));
        let readers = choice
            .outputs
            .iter()
            .filter_map(|edge| self.readers.get(edge))
            .flatten();
        let mut group = vec![i];
        for &(k, _) in producers.chain(readers) {
            if group.len() < MOST && !group.contains(&k) {
                group.push(k);
            }
        }
        group
    }

    /// The fastest form of a kernel for each choice of layouts.
    fn fastest_by_layouts(&self, i: usize) -> Vec<usize> {
        let Choice { forms, times, .. } = &self.choices[i];
        let layouts = |f: usize| (&forms[f].inputs, &forms[f].outputs);
        let mut found: Vec<usize> = vec![];
        for f in 0..forms.len() {
            match found.iter_mut().find(|g| layouts(**g) == layouts(f)) {
                Some(g) if times[f] < times[*g] * CLEARLY => *g = f,
                Some(_) => {}
                None => found.push(f),
            }
        }
        found
    }

    /// Whether so many kernels read an edge that its cost, which each of them changes, takes long to add up.
    fn is_read_by_many(&self, edge: usize) -> bool {
        const MANY: usize = 32;
        self.readers.get(&edge).is_some_and(|readers| readers.len() > MANY)
    }

    /// What some kernels read and give.
    fn edges_of(&self, group: &[usize]) -> Vec<usize> {
        let mut edges: Vec<usize> = group
            .iter()
            .flat_map(|&k| self.choices[k].inputs.iter().chain(&self.choices[k].outputs))
            .copied()
            .collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// The time of some kernels, with the reorders of all that they read and give.
    fn around(&self, forms: &[usize], group: &[usize], edges: &[usize]) -> f64 {
        let times: f64 = group.iter().map(|&k| self.choices[k].times[forms[k]]).sum();
        let reorders = edges
            .iter()
            .map(|&edge| self.outgoing(forms, edge, self.given(forms, edge)));
        times + reorders.sum::<f64>()
    }

    /// The layout in which an edge is given.
    fn given(&self, forms: &[usize], edge: usize) -> Layout {
        match self.producer.get(&edge) {
            Some(&(p, at)) => self.choices[p].forms[forms[p]].outputs[at],
            None => Layout::Plain,
        }
    }

    /// Changes one kernel at a time while that lowers the total.
    fn settle_each(&self, mut forms: Vec<usize>) -> Vec<usize> {
        /// Each sweep carries a layout past one more kernel that takes any; more sweeps than that never paid.
        const MOST_SWEEPS: usize = 12;
        for sweep in 0..MOST_SWEEPS {
            let mut changed = false;
            for step in 0..forms.len() {
                let i = if sweep % 2 == 0 { step } else { forms.len() - 1 - step };
                let chosen = least(self.choices[i].forms.len(), forms[i], |f| self.local(&forms, i, f));
                changed |= chosen != forms[i];
                forms[i] = chosen;
            }
            if !changed {
                break;
            }
        }
        forms
    }

    /// The cost of kernel `i` in form `f`, with the reorders around it.
    fn local(&self, forms: &[usize], i: usize, f: usize) -> f64 {
        let choice = &self.choices[i];
        let form = &choice.forms[f];
        let mut cost = choice.times[f];
        for (&edge, &layout) in choice.inputs.iter().zip(&form.inputs) {
            cost += self.reorder(edge, self.given(forms, edge), layout);
        }
        for (&edge, &layout) in choice.outputs.iter().zip(&form.outputs) {
            cost += self.outgoing(forms, edge, layout);
        }
        cost
    }

    /// The reorders that the readers of an edge need when it lies in `layout`; readers of one layout share one.
    fn outgoing(&self, forms: &[usize], edge: usize, layout: Layout) -> f64 {
        let wanted = |&(i, at): &(usize, usize)| self.choices[i].forms[forms[i]].inputs[at];
        let mut targets: Vec<Layout> = self.readers.get(&edge).into_iter().flatten().map(wanted).collect();
        if self.edges[edge].result {
            targets.push(Layout::Plain);
        }
        targets.sort();
        targets.dedup();
        targets
            .into_iter()
            .map(|target| self.reorder(edge, layout, target))
            .sum()
    }

    fn reorder(&self, edge: usize, from: Layout, to: Layout) -> f64 {
        let edge = &self.edges[edge];
        let same = from == to || (edge.bitcast && ![from, to].contains(&Layout::Blocked16));
        if same { 0.0 } else { edge.reorder }
    }

    fn total(&self, forms: &[usize]) -> f64 {
        let kernels: f64 = self.choices.iter().zip(forms).map(|(choice, &f)| choice.times[f]).sum();
        let inner: f64 = self
            .choices
            .iter()
            .zip(forms)
            .flat_map(|(choice, &f)| choice.outputs.iter().zip(&choice.forms[f].outputs))
            .map(|(&edge, &layout)| self.outgoing(forms, edge, layout))
            .sum();
        let given = (0..self.edges.len()).filter(|&e| self.edges[e].given);
        kernels + inner + given.map(|e| self.outgoing(forms, e, Layout::Plain)).sum::<f64>()
    }
}

/// The first choice that is clearly the least, starting from `current`.
fn least(count: usize, current: usize, cost: impl Fn(usize) -> f64) -> usize {
    let mut best = (current, cost(current));
    for i in (0..count).filter(|&i| i != current) {
        let c = cost(i);
        if c < best.1 * CLEARLY {
            best = (i, c);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Tactic;

    fn uniform_form(layout: Layout) -> Form {
        Form {
            tactic: Tactic::ONLY,
            inputs: vec![layout],
            outputs: vec![layout],
        }
    }

    fn chain(times: &[[f64; 3]]) -> (Vec<Choice>, Vec<Edge>) {
        let forms: Vec<_> = Layout::ALL.into_iter().map(uniform_form).collect();
        let choice = |(i, t): (usize, &[f64; 3])| Choice {
            forms: forms.clone(),
            times: t.to_vec(),
            inputs: vec![i],
            outputs: vec![i + 1],
        };
        let mut edges = vec![
            Edge {
                reorder: 10.0,
                ..Edge::default()
            };
            times.len() + 1
        ];
        edges[0].given = true;
        edges[times.len()].result = true;
        (times.iter().enumerate().map(choice).collect(), edges)
    }

    #[test]
    fn a_layout_is_taken_when_it_pays_for_its_reorders() {
        let (choices, edges) = chain(&[[100.0, 50.0, 90.0]; 3]);
        assert_eq!(choose(&choices, &edges), [1, 1, 1]);
        let (choices, edges) = chain(&[[100.0, 95.0, 99.0]; 3]);
        assert_eq!(choose(&choices, &edges), [0, 0, 0]);
    }

    #[test]
    fn transposes_and_the_convolution_between_them_change_together() {
        let (mut choices, mut edges) = chain(&[[50.0, 900.0, 900.0]; 5]);
        choices[2].times = vec![100.0, 101.0, 900.0];
        let pairs = Layout::ALL
            .into_iter()
            .flat_map(|from| Layout::ALL.map(|to| (from, to)));
        for (i, free) in [
            (1, (Layout::Plain, Layout::ChannelsLast)),
            (3, (Layout::ChannelsLast, Layout::Plain)),
        ] {
            choices[i].times = pairs
                .clone()
                .map(|pair| if pair == free { 0.0 } else { 20.0 })
                .collect();
            let form = |(from, to)| Form {
                outputs: vec![to],
                ..uniform_form(from)
            };
            choices[i].forms = pairs.clone().map(form).collect();
        }
        edges.iter_mut().for_each(|edge| edge.reorder = 30.0);
        assert_eq!(choose(&choices, &edges), [0, 1, 1, 3, 0]);
    }

    #[test]
    fn a_kernel_that_takes_any_layout_follows_its_neighbours() {
        let (choices, edges) = chain(&[[100.0, 50.0, 100.0], [5.0, 5.0, 5.0], [100.0, 50.0, 100.0]]);
        assert_eq!(choose(&choices, &edges), [1, 1, 1]);
    }
}
