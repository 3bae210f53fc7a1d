//! Runs passes: verifies the network behind each, and prints it where that is asked for.

use super::{CLEAN, Counts, Pass, Settings, passes};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::knobs;
use crate::network::Network;
use std::io::Write;

/// A pipeline that has not settled after so many rounds is a defect.
const MAX_ROUNDS: usize = 32;

/// What runs passes on one network.
pub(super) struct Runner<'s> {
    settings: &'s Settings,
    verify: bool,
    dumps: Vec<knobs::DumpPoint>,
    disabled: Vec<String>,
    /// How often each rewrote something.
    pub counts: Counts,
}

/// The passes that are left out.
fn disabled() -> Result<Vec<String>> {
    let named = knobs::DISABLED.get()?;
    let known: Vec<&str> = passes().map(|pass| pass.name).chain(knobs::FEATURES).collect();
    match named.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(Error::invalid("NEURENIX_DISABLE names what is not there")
            .expected(known.join(", "))
            .got(unknown)),
        None => Ok(named),
    }
}

impl<'s> Runner<'s> {
    pub fn new(settings: &'s Settings) -> Result<Self> {
        Ok(Self {
            settings,
            verify: cfg!(debug_assertions) || knobs::VERIFY.get()?,
            dumps: knobs::DUMP.get()?,
            disabled: disabled()?,
            counts: Counts::new(),
        })
    }

    pub fn run(&mut self, network: &mut Network, pass: &Pass) -> Result<usize> {
        interrupt::poll()?;
        if self.disabled.iter().any(|name| name == pass.name) {
            return Ok(0);
        }
        let during = |e: Error| e.during(format!("in pass {}", pass.name));
        self.dump(network, pass, true)?;
        let count = (pass.apply)(network, self.settings).map_err(during)?;
        if self.verify && count > 0 {
            network.verify().map_err(during)?;
        }
        self.dump(network, pass, false)?;
        *self.counts.entry(pass.name).or_default() += count;
        Ok(count)
    }

    /// Runs the passes in turn; each stops being asked once all of them in a row have found nothing.
    pub fn until_stable(&mut self, network: &mut Network, passes: &[&Pass]) -> Result<()> {
        let mut idle = 0;
        for pass in passes.iter().cycle().take(MAX_ROUNDS * passes.len()) {
            idle = if self.run(network, pass)? == 0 { idle + 1 } else { 0 };
            if idle == passes.len() {
                return Ok(());
            }
        }
        let names: Vec<_> = passes.iter().map(|p| p.name).collect();
        Err(Error::internal(format!("the passes did not settle in {MAX_ROUNDS} rounds")).got(names.join(", ")))
    }

    /// Brings a network into its simplest form again after composite ops were written in smaller ones: no pass that
    /// recognises composite ops undoes that.
    pub fn tidy(&mut self, network: &mut Network) -> Result<()> {
        let recognises = |pass: &&&Pass| pass.name.starts_with("recognise");
        let passes: Vec<_> = CLEAN.iter().filter(|pass| !recognises(pass)).copied().collect();
        self.until_stable(network, &passes)
    }

    fn dump(&self, network: &Network, pass: &Pass, before: bool) -> Result<()> {
        let wanted = |p: &&knobs::DumpPoint| p.before == before && (p.pass == pass.name || p.pass == "*");
        for point in self.dumps.iter().filter(wanted) {
            let when = if before { "before" } else { "after" };
            let text = format!("# {when} {}\n{network}", pass.name);
            match &point.path {
                None => eprint!("{text}"),
                Some(path) => {
                    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                    file.and_then(|mut f| f.write_all(text.as_bytes()))
                        .map_err(|e| Error::from(e).got(path).hint(knobs::DUMP.doc))?;
                }
            }
        }
        Ok(())
    }
}
