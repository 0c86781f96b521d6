//! A link's scheduler, which may have all that it is told and decides written down.

use std::io;
use weir_sched::link::trace::Recorder;
use weir_sched::link::{
    ChannelId, ChannelTerms, Closed, ConfigError, Decision, Dropped, Link, LinkConfig, RateRefused, Refused,
};
use weir_units::{BitsPerSecond, Nanos};

/// Takes a line of a record. It never waits.
pub type Line = Box<dyn FnMut(String) + Send>;
/// Begins a record with its first line.
pub type Tracing<'a> = Box<dyn FnOnce(&str) -> io::Result<Line> + 'a>;

/// The scheduler.
pub(super) enum Scheduled {
    Plain(Box<Link<Vec<u8>>>),
    Recorded { recorder: Box<Recorder<Vec<u8>>>, trace: Line },
}

/// Why there is none.
pub(super) enum Failed {
    Config(ConfigError),
    Trace(io::Error),
}

impl Scheduled {
    /// A link without channels. All that it decides is recorded, if there is a record.
    pub(super) fn new(config: LinkConfig, trace: Option<Tracing<'_>>) -> Result<Self, Failed> {
        let Some(trace) = trace else {
            return Link::new(config).map(|link| Self::Plain(Box::new(link))).map_err(Failed::Config);
        };
        let mut recorder = Recorder::new(config).map_err(Failed::Config)?;
        let trace = trace(recorder.take().trim_end()).map_err(Failed::Trace)?;
        Ok(Self::Recorded { recorder: Box::new(recorder), trace })
    }

    /// The scheduler itself, for whoever only looks.
    pub(super) fn link(&self) -> &Link<Vec<u8>> {
        match self {
            Self::Plain(link) => link,
            Self::Recorded { recorder, .. } => recorder.link(),
        }
    }

    pub(super) fn open(&mut self, terms: ChannelTerms, now: Nanos) -> Result<ChannelId, Refused> {
        self.ask(|link| link.open(terms, now), |recorder| recorder.open(terms, now))
    }

    pub(super) fn change(&mut self, id: ChannelId, terms: ChannelTerms, now: Nanos) -> Result<(), Refused> {
        self.ask(|link| link.change(id, terms, now), |recorder| recorder.change(id, terms, now))
    }

    pub(super) fn close(&mut self, id: ChannelId, now: Nanos) -> Option<Closed<Vec<u8>>> {
        self.ask(|link| link.close(id, now), |recorder| recorder.close(id, now))
    }

    pub(super) fn set_rate(
        &mut self,
        rate: BitsPerSecond,
        reservable: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), RateRefused> {
        self.ask(
            |link| link.set_rate(rate, reservable, now),
            |recorder| recorder.set_rate(rate, reservable, now),
        )
    }

    pub(super) fn forgive(&mut self, wanted: BitsPerSecond, now: Nanos) {
        self.ask(|link| link.forgive(wanted, now), |recorder| recorder.forgive(wanted, now));
    }

    pub(super) fn next(&mut self, now: Nanos) -> Decision<Vec<u8>> {
        self.ask(|link| link.next(now), |recorder| recorder.next(now))
    }

    pub(super) fn enqueue(
        &mut self,
        id: ChannelId,
        frame: Vec<u8>,
        len: u32,
        now: Nanos,
    ) -> Result<(), Dropped<Vec<u8>>> {
        match self {
            Self::Plain(link) => link.enqueue(id, frame, len, now),
            Self::Recorded { recorder, trace } => {
                noted(recorder, trace, |recorder| recorder.enqueue(id, frame, len, now))
            }
        }
    }

    /// Asks either; a recorder writes one line for it.
    fn ask<R>(
        &mut self,
        link: impl FnOnce(&mut Link<Vec<u8>>) -> R,
        recorded: impl FnOnce(&mut Recorder<Vec<u8>>) -> R,
    ) -> R {
        match self {
            Self::Plain(plain) => link(plain),
            Self::Recorded { recorder, trace } => noted(recorder, trace, recorded),
        }
    }
}

fn noted<R>(
    recorder: &mut Recorder<Vec<u8>>,
    trace: &mut Line,
    ask: impl FnOnce(&mut Recorder<Vec<u8>>) -> R,
) -> R {
    let answer = ask(recorder);
    trace(recorder.take().trim_end().to_owned());
    answer
}
