//! Which of cuDNN's engines are timed, and which of them is meant at other shapes.

use crate::providers::cuda::library::cudnn::Engine;

/// So many of cuDNN's engines are timed, at most.
pub const ENGINES: u32 = 14;
/// How much of a convolution an engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// All but what follows.
    Bare,
}

/// The engines that are worth timing, by their places: of each sort so many, no two of them the same.
fn worth(engines: &[Engine], compiling: usize, ready: usize) -> Vec<usize> {
    let mut left = [ready, compiling];
    let new = |&at: &usize| !engines[..at].contains(&engines[at]);
    let mut take = |&at: &usize| {
        let left = &mut left[usize::from(engines[at].compiles)];
        let taken = *left > 0;
        *left -= usize::from(taken);
        taken
    };
    (0..engines.len()).filter(new).filter(|at| take(at)).collect()
}

/// The numbers that are timed, whatever the level, as parts and places among the engines for them.
pub fn numbered(whole: &[Engine], bare: &[Engine]) -> Vec<(Part, usize)> {
    /// A second to build each; where there are no others, what the first ones leave is seldom worth the wait.
    const COMPILING: [usize; 2] = [2, 3];
    /// A few milliseconds to build each.
    const READY: usize = 8;
    let has_ready = |engines: &[Engine]| engines.iter().any(|engine| !engine.compiles);
    let mut all = worth(whole, COMPILING[usize::from(has_ready(whole))], READY);
    // The first one is what runs where nothing is timed.
    all.sort_by_key(|&at| whole[at].compiles);
    let rest = worth(bare, usize::from(!has_ready(bare)), READY);
    let all = all.into_iter().map(|at| (Part::Whole, at));
    let numbers = all.chain(rest.into_iter().map(|at| (Part::Bare, at)));
    numbers.take(ENGINES as usize).collect()
}

/// The places of an engine among others for the same graph: the one that is set in the same way first, then another way.
pub fn alike(engines: &[Engine], wanted: &Engine) -> Vec<usize> {
    let same = engines.iter().position(|engine| engine == wanted);
    let set_otherwise = |engine: &Engine| engine.index == wanted.index && engine != wanted;
    same.into_iter().chain(engines.iter().position(set_otherwise)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(index: i64, knob: i64, compiles: bool) -> Engine {
        Engine {
            index,
            knobs: vec![(0, knob)],
            on_tensor_cores: true,
            compiles,
        }
    }

    #[test]
    fn few_engines_that_compile_are_timed_and_none_twice() {
        let slow: Vec<Engine> = (0..9).map(|knob| engine(7, knob, true)).collect();
        assert_eq!(worth(&slow, 2, 8), [0, 1]);
        let twice = [engine(1, 0, false), engine(1, 0, false), engine(1, 1, false)];
        assert_eq!(worth(&twice, 2, 8), [0, 2]);
        let numbers = numbered(&slow, &twice);
        assert_eq!(numbers[..2], [(Part::Whole, 0), (Part::Whole, 1)]);
        assert_eq!(numbers[2..], [(Part::Bare, 0), (Part::Bare, 2)]);
        let many: Vec<Engine> = (0..40).map(|index| engine(index, 0, index % 2 == 0)).collect();
        assert_eq!(numbered(&many, &many).len(), ENGINES as usize);
        assert_eq!(numbered(&many, &many)[0], (Part::Whole, 1));
        assert_eq!(numbered(&many, &[]).len(), 11);
    }

    #[test]
    fn an_engine_is_found_again_at_another_place() {
        let engines = [
            engine(3, 0, false),
            engine(5, 1, false),
            engine(5, 2, true),
            engine(5, 0, true),
        ];
        assert_eq!(alike(&engines, &engine(5, 2, true)), [2, 1]);
        assert_eq!(alike(&engines, &engine(3, 8, false)), [0]);
        assert!(alike(&engines, &engine(4, 0, false)).is_empty());
    }
}
