//! UDP packets and bytes by port.

use super::stream;
use crate::page::{HtmlCell, table_with_bars};
use crate::series::float;
use crate::sinks::{Finding, ReportSection, SectionContext};
use crate::text::grouped;
use crate::top::TopKeys;
use crate::value;
use weir_units::Bytes;
use {
    weir_admission::{Manifest, StreamField},
    weir_session::Record,
};

const ROWS: usize = 20;

#[derive(Debug)]
pub(crate) struct Ports {
    totals: (u16, [StreamField; 5]),
    ports: TopKeys<u64, Traffic>,
}

#[derive(Debug, Default)]
struct Traffic {
    to: (u64, u64),
    from: (u64, u64),
}

impl Ports {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let totals =
            stream(manifest, "totals", ["port", "packets_to", "bytes_to", "packets_from", "bytes_from"])?;
        Some(Self { totals, ports: TopKeys::default() })
    }

    fn row(&mut self, record: &Record<'_>) -> Option<()> {
        let [port, packets_to, bytes_to, packets_from, bytes_from] = &self.totals.1;
        let read = |field| value::unsigned(field, record);
        let (to, from) = ((read(packets_to)?, read(bytes_to)?), (read(packets_from)?, read(bytes_from)?));
        let traffic = self.ports.add(read(port)?, to.0.saturating_add(from.0));
        traffic.to = (traffic.to.0.saturating_add(to.0), traffic.to.1.saturating_add(to.1));
        traffic.from = (traffic.from.0.saturating_add(from.0), traffic.from.1.saturating_add(from.1));
        Some(())
    }
}

impl Finding for Ports {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.totals.0 {
            self.row(record);
        }
    }

    fn section(&self, _: &SectionContext<'_>) -> Option<ReportSection> {
        let heaviest = self.ports.heaviest(ROWS);
        let most = heaviest.first()?.1.max(1);
        let head = [
            HtmlCell::right("UDP port"),
            HtmlCell::right("packets to it"),
            HtmlCell::right("bytes to it"),
            HtmlCell::right("packets from it"),
            HtmlCell::right("bytes from it"),
        ];
        let rows = heaviest.iter().map(|(port, packets, traffic)| {
            let cells = vec![
                HtmlCell::right(&port.to_string()),
                HtmlCell::right(&grouped(traffic.to.0)),
                HtmlCell::right(&Bytes(traffic.to.1).to_string()),
                HtmlCell::right(&grouped(traffic.from.0)),
                HtmlCell::right(&Bytes(traffic.from.1).to_string()),
            ];
            (cells, float(*packets) / float(most))
        });
        let all = self.ports.len();
        Some(ReportSection {
            title: "UDP traffic by port",
            note: if all > ROWS {
                format!("The {ROWS} busiest of {all} ports. The bar is the packets in both directions.")
            } else {
                "The ports that were asked for. The bar is the packets in both directions.".to_owned()
            },
            body: table_with_bars(&head, rows),
            highlight: None,
        })
    }
}
