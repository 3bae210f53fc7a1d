//! Jobs recorded beside each other: on several streams, with events between them.

use super::Device;
use super::stream::{Event, Stream};
use crate::device::{Event as _, NumberedJob};
use crate::error::Result;

use crate::providers::cuda::library::driver::EVENT_UNTIMED;
use std::sync::Arc;

/// So many jobs run beside each other.
const LANES: usize = 4;

/// The streams of one recording; the first one is that which records.
pub struct Lanes<'a> {
    first: &'a Stream,
    others: Vec<Stream>,
    /// Behind each job, and at the start.
    done: Vec<Event>,
    start: Event,
    /// The last job on each stream.
    tails: [Option<usize>; LANES],
    /// For each stream and each other one, the last job there that it has waited for.
    waited: [[Option<usize>; LANES]; LANES],
    lane_of: Vec<usize>,
}

impl<'a> Lanes<'a> {
    /// Streams for so many jobs.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn new(device: &Arc<Device>, first: &'a Stream, jobs: usize) -> Result<Self> {
        Ok(Self {
            first,
            others: (1..LANES).map(|_| device.stream()).collect::<Result<_>>()?,
            done: (0..jobs).map(|_| device.event(EVENT_UNTIMED)).collect::<Result<_>>()?,
            start: device.event(EVENT_UNTIMED)?,
            tails: [None; LANES],
            waited: [[None; LANES]; LANES],
            lane_of: vec![],
        })
    }

    fn stream(&self, lane: usize) -> &Stream {
        lane.checked_sub(1).map_or(self.first, |other| &self.others[other])
    }

    /// The stream for a job: that of a job that it waits for, if nothing came behind it there, else a free one.
    fn choose(&self, after: &[usize]) -> usize {
        let behind = after
            .iter()
            .find_map(|&job| self.tails.iter().position(|&tail| tail == Some(job)));
        let free = || self.tails.iter().position(Option::is_none);
        let oldest = || (0..LANES).min_by_key(|&lane| self.tails[lane]);
        behind.or_else(free).or_else(oldest).unwrap_or(0)
    }

    /// Puts all jobs into their streams, while the first one records.
    ///
    /// # Errors
    /// What a job returns, or if the driver refuses.
    pub fn record(&mut self, after: &[Vec<usize>], job: NumberedJob) -> Result<()> {
        self.start.record(self.first)?;
        for (number, after) in after.iter().enumerate() {
            let lane = self.choose(after);
            if lane > 0 && self.tails[lane].is_none() {
                self.start.hold(self.stream(lane))?;
            }
            for &other in after {
                self.wait(lane, other)?;
            }
            job(number, self.stream(lane))?;
            self.done[number].record(self.stream(lane))?;
            self.tails[lane] = Some(number);
            self.lane_of.push(lane);
        }
        // A recording ends on the stream that it began on.
        (1..LANES)
            .filter_map(|lane| self.tails[lane])
            .try_for_each(|tail| self.done[tail].hold(self.first))
    }

    fn wait(&mut self, lane: usize, job: usize) -> Result<()> {
        let of = self.lane_of[job];
        if of != lane && self.waited[lane][of] < Some(job) {
            self.done[job].hold(self.stream(lane))?;
            self.waited[lane][of] = Some(job);
        }
        Ok(())
    }
}
