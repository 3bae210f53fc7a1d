//! Engines in files.

use crate::engine::built::{ANEW, Built};
use crate::engine::config::BuilderConfig;
use crate::engine::default_dims::ASSUMED;
use crate::engine::format::{self, Header};
use crate::engine::general::General;
use crate::engine::{Engine, builder, config};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::network::array::{Array, Buffer};
use crate::network::document::Document;
use crate::network::dtype::DType;
use crate::plan::Provider;
use crate::threads::default_threads;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An engine file that was read, and is not planned yet.
pub struct Saved {
    path: PathBuf,
    header: Header,
    weights: Vec<Array>,
}

impl Saved {
    /// Reads an engine file; its weights are mapped.
    ///
    /// # Errors
    /// If the file is no engine, is damaged or newer than this code.
    pub fn open(path: &Path) -> Result<Self> {
        let (header, weights) = format::open(path)?;
        Self::checked(path.into(), header, weights)
    }

    /// Reads an engine from its bytes, of which it keeps a copy.
    ///
    /// # Errors
    /// As [`Saved::open`], and if there is no memory for them.
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let path = PathBuf::from("the engine in memory");
        let mut buffer = Buffer::try_zeroed(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        let (header, weights) = format::parse(Arc::new(buffer)).map_err(|e| format::refused(&path, &e))?;
        Self::checked(path, header, weights)
    }

    fn checked(path: PathBuf, header: Header, weights: Vec<Array>) -> Result<Self> {
        let saved = Self { path, header, weights };
        let sound = config::check_profiles(&saved.header.profiles);
        let sound = sound.and_then(|()| saved.header.built.as_ref().map_or(Ok(()), Built::check));
        sound.map_err(|e| saved.refused(e))?;
        Ok(saved)
    }

    /// How it was built, as far as the file says: the options that hold unless the caller says otherwise.
    pub fn config(&self) -> BuilderConfig {
        let known = self.header.built.as_ref().map(Built::config);
        let config = known.unwrap_or_else(|| BuilderConfig {
            threads: default_threads(),
            ..BuilderConfig::default()
        });
        BuilderConfig {
            // Where the build timed nothing, opening it does not begin to.
            optimization_level: match self.header.times.is_empty() {
                true => 0,
                false => config.optimization_level,
            },
            ..config
        }
    }

    /// Plans the engine. Precision and profiles are those of the build; what was timed otherwise is planned anew, with a note.
    ///
    /// # Errors
    /// If the network is damaged, or some layer runs on no provider here.
    pub fn plan(mut self, config: BuilderConfig, providers: &[Arc<dyn Provider>]) -> Result<Engine> {
        let (network, source) = self.networks().map_err(|e| self.refused(e))?;
        let header = &self.header;
        let original = source.clone().filter(|_| !header.fixed_weights);
        let equal = network.takes_broadcasts_equal();
        let general = source.filter(|source| equal && !source.takes_broadcasts_equal());
        let config = BuilderConfig {
            compute: header.compute,
            tf32: header.tf32,
            deterministic: header.deterministic || config.deterministic,
            profiles: header.profiles.clone(),
            refittable: original.is_some(),
            ..config
        };
        let engine = builder::plan_again(network, config, providers, header).map_err(|e| self.refused(e))?;
        Ok(Engine {
            original,
            general: general.map(General::new),
            ..engine
        })
    }

    /// The network, and the one as it came where the file has it.
    fn networks(&mut self) -> Result<(Network, Option<Arc<Network>>)> {
        let network = std::mem::take(&mut self.header.network);
        let mut weights = std::mem::take(&mut self.weights);
        let mut own = weights.split_off(network.constant_count()).into_iter();
        let source = self.header.source.take().map(|source| {
            let shared = |number| self.header.shared.get(&number);
            let weight = |number| shared(number).map_or_else(|| own.next(), |&at| weights.get(at).cloned());
            let originals: Option<Vec<_>> = (0..source.constant_count()).map(weight).collect();
            source.read(originals.ok_or_else(|| Error::format("the weights of the network in the file are damaged"))?)
        });
        let source = source.transpose()?.map(Arc::new);
        Ok((network.read(weights)?, source))
    }

    fn refused(&self, error: Error) -> Error {
        format::refused(&self.path, &format::of_another(error, &self.header.producer))
    }
}

/// What two arrays have in common that are one.
fn place(array: &Array) -> (DType, &[usize], *const u8) {
    (array.dtype(), array.shape(), array.bytes().as_ptr())
}

impl Engine {
    /// Saves the engine to a file.
    ///
    /// # Errors
    /// If the file can't be written; an older one of this name stays as it was.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (network, mut weights) = Document::write(self.portable.as_ref().unwrap_or(&self.network))?;
        let general = self.general.as_ref().map(|general| &general.network);
        let source = self.original.as_ref().or(general);
        let source = source.map(|source| Document::write(source)).transpose()?;
        let mut shared = BTreeMap::new();
        let source = source.map(|(document, originals)| {
            let held = weights.clone();
            let known: HashMap<_, usize> = held.iter().map(place).zip(0..).collect();
            for (number, array) in originals.into_iter().enumerate() {
                match known.get(&place(&array)) {
                    Some(&at) => _ = shared.insert(number, at),
                    None => weights.push(array),
                }
            }
            document
        });
        let passing = |note: &&String| note.starts_with(ANEW) || note.starts_with(ASSUMED);
        let lasting = self.notes.iter().filter(|note| !passing(note));
        let header = Header {
            producer: format::PRODUCER.into(),
            network,
            fixed_weights: source.is_some() && self.original.is_none(),
            source,
            shared,
            compute: self.config.compute,
            tf32: self.config.tf32,
            deterministic: self.config.deterministic,
            built: Some(self.built.clone()),
            profiles: self.profiles().cloned().collect(),
            times: self.times(),
            notes: lasting.cloned().collect(),
            weights: vec![],
        };
        format::save(path, header, &weights)
    }

    /// Opens an engine file with these options.
    ///
    /// # Errors
    /// As [`Saved::open`] and [`Saved::plan`].
    pub fn load(path: &Path, config: BuilderConfig, providers: &[Arc<dyn Provider>]) -> Result<Self> {
        Saved::open(path)?.plan(config, providers)
    }
}
