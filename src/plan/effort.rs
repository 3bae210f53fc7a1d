//! How thoroughly an engine is tuned: what the optimization levels mean.

use crate::plan::{Form, Settings};

/// What is done with a form of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    Time,
    /// It is taken to be slower than those before it.
    Guess,
    /// Another one stands for it.
    Skip,
}

impl Effort {
    /// What is done with a form behind some that ran.
    pub fn of(settings: &Settings, form: &Form, before: &[Form]) -> Self {
        let alike = |other: &Form| (&other.inputs, &other.outputs) == (&form.inputs, &form.outputs);
        match settings.optimization_level {
            0..=2 if before.iter().any(alike) => Effort::Skip,
            0 => Effort::Guess,
            1 if !before.is_empty() => Effort::Guess,
            _ => Effort::Time,
        }
    }
}

/// How often forms may be timed, from the least on.
const ROUNDS: [u32; 3] = [1, 3, 10];

/// How often a form is timed; its least time counts.
pub(super) fn rounds(settings: &Settings) -> u32 {
    ROUNDS[usize::from(settings.optimization_level.saturating_sub(3)).min(ROUNDS.len() - 1)]
}

/// Under which keys the time of a form may stand that was timed so often or more often, the most thorough one first; the last
/// one is for just so often.
pub(super) fn keys(key: &str, rounds: u32) -> impl Iterator<Item = String> {
    let enough = ROUNDS.iter().rev().filter(move |&&known| known >= rounds);
    enough.map(move |&known| match known {
        1 => key.to_string(),
        known => format!("{key}|{known} rounds"),
    })
}

/// All keys under which times of the kernel of a key may stand.
pub(super) fn alike(key: &str) -> impl Iterator<Item = String> {
    let same = ROUNDS
        .iter()
        .find_map(|rounds| key.strip_suffix(&format!("|{rounds} rounds")));
    keys(same.unwrap_or(key), ROUNDS[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Tactic;
    use crate::plan::layout::Layout;

    #[test]
    fn each_level_times_no_less_than_the_one_before() {
        let form = |number, layout| Form {
            tactic: Tactic::new("tile", number),
            inputs: vec![layout],
            outputs: vec![layout],
        };
        let layouts = [Layout::Plain, Layout::ChannelsLast];
        let forms: Vec<_> = layouts
            .iter()
            .flat_map(|&l| [form(0, l), form(1, l), form(2, l)])
            .collect();
        let timed = |optimization_level| {
            let settings = Settings {
                optimization_level,
                ..Settings::default()
            };
            let efforts = (0..forms.len()).map(|at| Effort::of(&settings, &forms[at], &forms[..at]));
            let efforts: Vec<_> = efforts.collect();
            let of = |effort| efforts.iter().filter(|&&e| e == effort).count();
            (of(Effort::Time), of(Effort::Guess), rounds(&settings))
        };
        let all = [0, 1, 2, 3, 4, 5].map(timed);
        assert_eq!(all, [(0, 2, 1), (1, 1, 1), (2, 0, 1), (6, 0, 1), (6, 0, 3), (6, 0, 10)]);
    }

    #[test]
    fn a_more_thorough_time_serves() {
        assert_eq!(keys("k", 3).collect::<Vec<_>>(), ["k|10 rounds", "k|3 rounds"]);
        assert_eq!(keys("k", 1).last().as_deref(), Some("k"));
        assert!(alike("k|3 rounds").eq(["k|10 rounds", "k|3 rounds", "k"]));
    }
}
